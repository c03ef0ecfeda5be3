"""Filters parse to the tree they say, print to text that parses back, and errors point at the token."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.model.errors import BadInput
from lakerunner.query.rows.parser import parse
from lakerunner.query.rows.printer import printed
from lakerunner.query.scan.rows.conditions.predicate import (
    EVERYTHING,
    And,
    Bool,
    Column,
    Compare,
    Contains,
    Duration,
    Exists,
    Float,
    In,
    Int,
    Key,
    Matches,
    Not,
    Op,
    Or,
    Predicate,
    Text,
    Time,
    from_json,
    to_json,
)
from lakerunner.query.syntax.errors import ParseError

A, B, C = (Compare(Column(name), Op.EQUAL, Int(1)) for name in "abc")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            'service_name = "cart" and severity_number >= 17',
            And(
                (
                    Compare(Column("service_name"), Op.EQUAL, Text("cart")),
                    Compare(Column("severity_number"), Op.GREATER_EQUAL, Int(17)),
                )
            ),
        ),
        ("a = 1 or b = 1 and c = 1", Or((A, And((B, C))))),
        ("(a = 1 or b = 1) and c = 1", And((Or((A, B)), C))),
        ("a = 1 and b = 1 and c = 1", And((A, B, C))),
        ("not a = 1 and b = 1", And((Not(A), B))),
        ("NOT (a = 1 OR b = 1)", Not(Or((A, B)))),
        ("a != 1", Not(A)),
        ('"http.status" = 500', Compare(Key("http.status"), Op.EQUAL, Int(500))),
        ("`http.status` = 500", Compare(Key("http.status"), Op.EQUAL, Int(500))),
        ("attr_http_status = 5e2", Compare(Column("attr_http_status"), Op.EQUAL, Float(500.0))),
        ('message =~ "a.*"', Matches(Column("message"), "a.*")),
        ("message !~ `\\d+`", Not(Matches(Column("message"), "\\d+"))),
        ('message search "a|b"', Matches(Column("message"), "a|b", anchored=False)),
        ('message contains "x\\ty"', Contains(Column("message"), "x\ty")),
        ('message not contains "x"', Not(Contains(Column("message"), "x"))),
        ("trace_id exists", Exists(Column("trace_id"))),
        ("trace_id not exists", Not(Exists(Column("trace_id")))),
        ('a in ("x", -2, 1.5, true)', In(Column("a"), (Text("x"), Int(-2), Float(1.5), Bool(True)))),
        ("a not in ()", Not(In(Column("a"), ()))),
        ("duration_ns > 250ms", Compare(Column("duration_ns"), Op.GREATER, Duration(250_000_000))),
        ("duration_ns <= 1m30.5s", Compare(Column("duration_ns"), Op.LESS_EQUAL, Duration(90_500_000_000))),
        ("timestamp < 1970-01-02", Compare(Column("timestamp"), Op.LESS, Time(86_400_000_000_000))),
        ("timestamp < 1970-01-01T01:00:00.5+01:00", Compare(Column("timestamp"), Op.LESS, Time(500_000_000))),
        ("timestamp < 1970-01-01T00:00:00.000000001Z", Compare(Column("timestamp"), Op.LESS, Time(1))),
        ("timestamp < 1969-12-31T23:59:59.9Z", Compare(Column("timestamp"), Op.LESS, Time(-100_000_000))),
        ('column "in" exists', Exists(Column("in"))),
        ("column = 1", Compare(Column("column"), Op.EQUAL, Int(1))),
        ("a = 1 # of all\n and b = 1", And((A, B))),
        ("", EVERYTHING),
        ("()", EVERYTHING),
    ],
)
def test_a_filter_means_what_it_says(text: str, wanted: Predicate) -> None:
    assert parse(text) == wanted


@pytest.mark.parametrize(
    ("text", "at", "reason"),
    [
        ("a = ", 4, "unexpected end of input"),
        ("a = cart", 4, "write texts in quotes"),
        ("a 1", 2, "expected an operator"),
        ("a = 1 b = 2", 6, 'expected "and" or "or"'),
        ("a = 1 and", 9, "the name of a column"),
        ("in = 1", 0, "the name of a column"),
        ("(a = 1", 6, 'expected ")"'),
        ('a =~ "["', 5, "cannot read regular expression"),
        ("a =~ 5", 5, "in quotes"),
        ("a in 5", 5, 'expected "("'),
        ("a in (1 2)", 8, 'expected ")"'),
        ("a = 5mm", 4, "bad number"),
        ("a = 2026-13-01", 4, "bad time"),
        ("a = 9999-01-01", 4, "out of range"),
        ("a = 999999999d", 4, "out of range"),
        ('a = "x', 4, "unterminated"),
        ("a = 'x\\xff'", 4, "not valid UTF-8"),
        ("a ~ 1", 2, "unexpected character"),
        ("(" * 150, 100, "nests deeper"),
    ],
)
def test_an_error_points_at_the_token(text: str, at: int, reason: str) -> None:
    with pytest.raises(ParseError, match="row filter") as raised:
        parse(text)
    assert raised.value.start == at
    assert reason in raised.value.reason


_NAMES = st.one_of(st.sampled_from(["a", "attr_http_status", "in", "Not", "column", "inf", "nan"]), st.text(max_size=4))
_REFS = st.one_of(_NAMES.map(Column), st.text(max_size=5).map(Key))
_NS = st.integers(-(1 << 63), (1 << 63) - 1)
_LITERALS = st.one_of(
    st.text(max_size=5).map(Text),
    st.integers(-(1 << 70), 1 << 70).map(Int),
    st.floats(allow_nan=False).map(Float),
    st.booleans().map(Bool),
    _NS.map(Time),
    _NS.map(Duration),
)
_LEAVES: st.SearchStrategy[Predicate] = st.one_of(
    st.builds(Compare, _REFS, st.sampled_from(Op), _LITERALS),
    st.builds(In, _REFS, st.lists(_LITERALS, max_size=3).map(tuple)),
    st.builds(Matches, _REFS, st.sampled_from(["", "a.*", '"', "\\d", "\n`"]), st.booleans()),
    st.builds(Contains, _REFS, st.text(max_size=5)),
    st.builds(Exists, _REFS),
    st.just(EVERYTHING),
)
_TREES: st.SearchStrategy[Predicate] = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: And(tuple(parts))),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: Or(tuple(parts))),
        inner.map(Not),
    ),
    max_leaves=8,
)


@given(_TREES)
def test_what_is_printed_parses_to_the_same_tree(tree: Predicate) -> None:
    assert parse(printed(tree)) == tree
    assert from_json(to_json(tree)) == tree


@pytest.mark.parametrize(("tree", "text"), [(Or(()), "not ()"), (And((A,)), "a = 1"), (Or((A,)), "a = 1")])
def test_a_tree_that_no_text_has_is_printed_as_its_equal(tree: Predicate, text: str) -> None:
    assert printed(tree) == text


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"and": 5},
        {"exists": True},
        {"compare": "!=", "column": "a", "value": {"int": 1}},
        {"compare": "=", "column": "a", "value": {"int": True}},
        {"compare": "=", "column": "a", "value": {"money": 1}},
        {"compare": "=", "column": "a", "value": {"int": 1, "text": "1"}},
        {"matches": "[", "column": "a", "anchored": True},
        {"not": {"not": "x"}},
    ],
)
def test_a_document_that_is_no_predicate_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        from_json(document)


def test_a_document_that_nests_too_deep_is_refused() -> None:
    document: dict[str, object] = {"exists": True, "column": "a"}
    for _ in range(1_000):
        document = {"not": document}
    with pytest.raises(BadInput, match="deeper"):
        from_json(document)
