"""Text to tree and back: the tree, the errors, the limits."""

from __future__ import annotations

import time

import promql_parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.query.promql.ast import (
    Aggregate,
    AtEdge,
    Binary,
    MatrixSelector,
    Number,
    Subquery,
    Unary,
    VectorSelector,
    unwrapped,
)
from lakerunner.query.promql.durations import duration_ms
from lakerunner.query.promql.parser import parse
from lakerunner.query.promql.printer import pretty, print_expr
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.syntax.errors import ParseError
from lakerunner.query.syntax.limits import MAX_DEPTH, MAX_TEXT_LENGTH
from lakerunner.query.vectors.matching import Cardinality
from tests.examples import examples

# -- what is read ------------------------------------------------------------------------------------------------


def test_power_binds_tighter_than_a_sign_and_to_the_right() -> None:
    expr = parse("-2 ^ 3 ^ 2 * x")
    assert isinstance(expr, Binary) and expr.op == "*"
    assert isinstance(expr.left, Unary)
    assert isinstance(expr.left.expr, Binary)
    assert isinstance(expr.left.expr.right, Binary)


def test_a_signed_number_is_a_number() -> None:
    assert parse("- - -1") == Number(-1.0)


def test_modifiers_of_selectors_come_in_any_order() -> None:
    for text in ("m[5m] @ 100 offset 1m", "m[5m] offset 1m @ 100"):
        expr = parse(text)
        assert isinstance(expr, MatrixSelector)
        assert expr.vector.at == 100_000
        assert expr.vector.offset is not None
    edge = parse("m @ end()")
    assert isinstance(edge, VectorSelector) and edge.at is AtEdge.END


def test_offset_takes_one_operand() -> None:
    expr = parse("m offset 1m + 2")
    assert isinstance(expr, Binary) and expr.op == "+"


def test_keywords_may_be_metric_and_label_names() -> None:
    expr = parse('sum by (on) (offset{by="x", group_left="y"}) + fill(0) fill')
    assert isinstance(expr, Binary)
    assert expr.matching.fill_left == expr.matching.fill_right == 0
    assert isinstance(expr.left, Aggregate) and expr.left.grouping == ("on",)
    assert isinstance(expr.right, VectorSelector) and expr.right.name == "fill"


def test_quoted_names() -> None:
    expr = parse('sum by ("a.b") ({"my.metric", "x.y"="z"})')
    assert isinstance(expr, Aggregate) and expr.grouping == ("a.b",)
    assert isinstance(expr.expr, VectorSelector) and expr.expr.name == ""
    assert print_expr(expr) == 'sum by ("a.b") ({"x.y"="z",__name__="my.metric"})'


def test_group_modifiers() -> None:
    expr = parse("a * on (x) group_left (y) b")
    assert isinstance(expr, Binary)
    assert expr.matching.cardinality is Cardinality.MANY_TO_ONE
    assert expr.matching.include == ("y",)


def test_positions_point_into_the_text() -> None:
    text = "1 + sum(rate(foo[5m:1m]))"
    expr = parse(text)
    assert isinstance(expr, Binary) and isinstance(expr.right, Aggregate)
    call = expr.right.expr
    subquery = call.args[0]  # type: ignore[union-attr]
    assert isinstance(subquery, Subquery)
    assert text[subquery.start : subquery.end] == "foo[5m:1m]"
    assert text[call.start : call.end] == "rate(foo[5m:1m])"


# -- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "column", "part"),
    [
        ("", 1, "no expression"),
        ("sum(", 5, "unclosed left parenthesis"),
        ("sum(rate(x[5m])", 16, "unclosed left parenthesis"),
        ("x[5m", 5, "unclosed left bracket"),
        ('sum(x{a="b"', 12, "unexpected end of input inside braces"),
        ("1 +", 4, "unexpected end of input"),
        ("foo{a=}", 7, "expected string"),
        ("foo bar", 5, 'unexpected "bar"'),
        ("1 > 2", 3, "must use BOOL"),
        ("foo[5m] + 1", 1, "binary expression must contain only scalar and instant vector"),
        ("rate(foo)", 6, "expected type range vector"),
        ("nosuch(foo)", 1, "unknown function"),
        ("sum(foo, bar)", 1, "wrong number of arguments"),
        ('{a=""}', 1, "at least one non-empty matcher"),
        ('foo{a=~"("}', 8, "cannot read regular expression"),
        ("foo offset 1m offset 2m", 1, "may not be set multiple times"),
        ("sum(foo) offset 1m", 1, "must be preceded by"),
        ("foo and on(x) group_left bar", 1, "no grouping allowed"),
        ('"abc', 1, "unterminated quoted string"),
        ("5mm", 1, "bad number or duration"),
        ("foo or fill(0) bar", 1, "not allowed for set operators"),
        ('foo{"bar"}', 1, "must not be set twice"),
        ("1 or foo", 1, "not allowed in binary scalar"),
        ("foo[5m] anchored smoothed", 1, "cannot be used together"),
        ("rate(foo[5m],)", 13, "trailing commas"),
        ("foo[5m][5m:1m]", 1, "only allowed on instant vector, got matrix"),
        ("sum_over_time(1[5m:1m])", 15, "only allowed on instant vector, got scalar"),
    ],
)
def test_errors_point_at_the_token(text: str, column: int, part: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert part in caught.value.reason
    assert (caught.value.line, caught.value.column) == (1, column)


@pytest.mark.parametrize(
    ("name", "hint"), [("raet", 'did you mean "rate"?'), ("summ", 'did you mean "sum"?'), ("q", None)]
)
def test_an_unknown_function_names_the_nearest(name: str, hint: str | None) -> None:
    with pytest.raises(ParseError, match="unknown function") as caught:
        parse(f"{name}(x)")
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    "text",
    [
        "(" * 10_000 + "1" + ")" * 10_000,
        "-" * 10_000 + "x",
        "abs(" * 10_000 + "x" + ")" * 10_000,
        "x[" + "(" * 10_000 + "5m" + ")" * 10_000 + "]",
        "2^" * 10_000 + "2",
        "x[" + "1+" * 50_000 + "1]",
        "x" + "[5m:]" * 10_000,
        "a" * (MAX_TEXT_LENGTH + 1),
        "x + " * 250_000 + "x",
    ],
    ids=[
        "parentheses",
        "signs",
        "calls",
        "durations",
        "powers",
        "sums of durations",
        "subqueries",
        "long name",
        "long text",
    ],
)
def test_what_would_exhaust_us_is_refused_quickly(text: str) -> None:
    # By the thread's own clock: how busy the machine is does not matter.
    begin = time.thread_time()
    with pytest.raises(ParseError):
        parse(text)
    assert time.thread_time() - begin < 2


def test_nesting_up_to_the_limit_works() -> None:
    depth = MAX_DEPTH - 2
    text = "(" * depth + "x" + ")" * depth
    assert print_expr(parse(text)) == text


def test_long_chains_do_not_nest() -> None:
    text = " or ".join(f"m{i}" for i in range(5_000))
    assert print_expr(parse(text)) == text


# -- parse, print, parse -----------------------------------------------------------------------------------------

_names = st.sampled_from(["up", "m_total", "job:rate:sum", "sum", "fill", "step", "offset"])
_labels = st.sampled_from(["job", "instance", "by", "le"])
_strings = st.text(max_size=6).map(lambda text: text.encode("utf-8", "replace").decode())
_durations = st.recursive(
    st.sampled_from(["5m", "1h30m", "10", "0.5", "step()", "range()", "2w", "15ms"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/%^"), inner).map(lambda t: f"{t[0]} {t[1]} {t[2]}"),
        inner.map(lambda text: f"({text})"),
        inner.map(lambda text: f"-({text})"),
        st.tuples(st.sampled_from(["min_of", "max_of"]), inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
    ),
    max_leaves=4,
)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


@st.composite
def _selectors(draw: st.DrawFn) -> str:
    matchers = draw(
        st.lists(st.tuples(_labels, st.sampled_from(["=", "!="]), _strings.map(_quoted)), max_size=2).map(
            lambda items: ",".join("".join(item) for item in items)
        )
    )
    name = draw(st.one_of(_names, st.just("")))
    if not name:
        return '{__name__=~"a.+"' + ("," + matchers if matchers else "") + "}"
    return f"{name}{{{matchers}}}" if matchers else name


@st.composite
def _tails(draw: st.DrawFn) -> str:
    at = draw(st.sampled_from(["", " @ 12.5", " @ -1", " @ start()", " @ end()"]))
    offset = draw(st.sampled_from(["", " offset 5m", " offset -1h", " offset -(1m+2)", " offset step()"]))
    return at + offset


@st.composite
def _vectors(draw: st.DrawFn, depth: int = 3) -> str:
    kind = draw(st.integers(0, 7 if depth else 0))
    below = _vectors(depth - 1)
    match kind:
        case 0:
            return draw(_selectors()) + draw(_tails()) + draw(st.sampled_from(["", " smoothed"]))
        case 1:
            extended = draw(st.sampled_from(["", " anchored", " smoothed"]))
            return f"rate({draw(_selectors())}[{draw(_durations)}]{draw(_tails())}{extended})"
        case 2:
            step = draw(st.one_of(st.just(""), _durations))
            return f"max_over_time(({draw(below)})[{draw(_durations)}:{step}]{draw(_tails())})"
        case 3:
            clause = draw(st.sampled_from(["", " by (job)", " without (le, job)", " by ()"]))
            return f"sum{clause} ({draw(below)})"
        case 4:
            return f"topk by (job) ({draw(st.integers(0, 9))}, {draw(below)})"
        case 5:
            op = draw(st.sampled_from(["+", "-", "/", "%", "^", "atan2", "> bool", "==", "</", ">/"]))
            match = draw(
                st.sampled_from(
                    ["", " on (job)", " ignoring (le)", " on (job) group_left (le)", " ignoring (x) group_right ()"]
                )
            )
            fill = draw(st.sampled_from(["", " fill(0)", " fill_left(-1.5)", " fill_left(1) fill_right(Inf)"]))
            return f"{draw(below)} {op}{match}{fill} {draw(below)}"
        case 6:
            return f"{draw(below)} {draw(st.sampled_from(['and', 'or', 'unless']))} {draw(below)}"
        case _:
            return f"{draw(st.sampled_from(['-', '+']))}({draw(below)})"


@settings(max_examples=examples(150), deadline=None)
@given(_vectors())
def test_printing_is_the_inverse_of_parsing(text: str) -> None:
    tree = parse(text)
    printed = print_expr(tree)
    again = parse(printed)
    assert print_expr(again) == printed
    # What is lost is how a thing was written: the order of conditions, the units of durations.
    assert parse(print_expr(again)) == again
    assert "".join(pretty(tree).split()) == "".join(printed.split())


@settings(max_examples=examples(120), deadline=None)
@given(st.text(alphabet="abc{}[]()+-*/%^=~!<>@,:\"'`0123456789 \n#._offsetbyxs", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        tree = parse(text)
    except ParseError:
        return
    assert parse(print_expr(tree)) == tree


# -- against another parser --------------------------------------------------------------------------------------

_SHARED = [
    "up",
    'up{job="a", instance!~"b.*"}',
    "sum by (job) (rate(m_total[5m] offset 1m))",
    "a + b * c ^ d ^ e - f",
    "-a ^ 2 + 1",
    "a / on (x) group_left (y) b",
    "a > bool ignoring (z) b",
    "a and b or c unless d",
    "quantile(0.9, m) without (x)",
    'count_values("v", m)',
    "avg_over_time(rate(m[1m])[10m:30s])",
    "m @ 100 offset -5m",
    "m[5m] @ end()",
    "histogram_quantile(0.9, sum by (le) (rate(m_bucket[5m])))",
    'label_replace(m, "a", "$1", "b", "(.*)")',
    "1 + 2 % 3",
    "1e3 * 0x1F",
    "vector(1) > 0",
    "a atan2 b",
    "absent(m{x='y'})",
]


@pytest.mark.parametrize("text", _SHARED)
def test_another_parser_reads_our_printing_as_it_reads_the_text(text: str) -> None:
    assert promql_parser.parse(print_expr(parse(text))).prettify() == promql_parser.parse(text).prettify()


@pytest.mark.parametrize(
    "text",
    [
        "1 > 2",
        "sum(",
        "foo{",
        "rate(foo)",
        "foo and bool bar",
        "foo[5m][5m]",
        "a + on (x) 1",
        "nosuch(x)",
        "x offset y",
    ],
)
def test_another_parser_refuses_what_we_refuse(text: str) -> None:
    with pytest.raises(ValueError):
        promql_parser.parse(text)
    with pytest.raises(ParseError):
        parse(text)


def test_a_colon_alone_is_a_metric_name_outside_brackets() -> None:
    for text in (":", "count_over_time(:[5m:1m])"):
        assert print_expr(parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        'foo{__name__=~"x"}',
        'foo{__name__!="x"}',
        'Inf{a="b"}',
        "nan{}",
        "m offset (1m) + m",
        "sum by (without) (m)",
        "sum by (Inf) (m)",
    ],
)
def test_a_second_name_and_a_number_with_labels_are_refused(text: str) -> None:
    with pytest.raises(ParseError):
        parse(text)


def test_an_offset_may_have_many_signs() -> None:
    assert print_expr(parse("m offset --30s")) == "m offset 30s"
    assert print_expr(parse("m offset -0")) == "m"


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("m offset (30s) * 2", "m offset ((30s) * 2)"),
        ("m offset (30s) + 2 @ 10", "m @ 10 offset ((30s) + 2)"),
        ("m offset -(30s) * 2", "(m offset -(30s)) * 2"),
        ("m offset 30s * 2", "(m offset 30s) * 2"),
    ],
)
def test_an_offset_that_begins_with_a_parenthesis_is_arithmetic(text: str, meaning: str) -> None:
    assert _meaning(text) == _meaning(meaning)


def _meaning(text: str) -> str:
    """Without the parentheses, in the order of evaluation."""
    found = unwrapped(parse(text))
    if isinstance(found, Binary):
        return f"{_meaning(print_expr(found.left))} {found.op} {print_expr(found.right)}"
    assert isinstance(found, VectorSelector) and found.offset is not None
    return f"{found.name} @ {found.at} offset {duration_ms(found.offset, QueryTimes(0, 0, 0))}"


def test_several_names_in_braces_are_conditions() -> None:
    found = parse('{"foo", __name__=~"f.*"}')
    assert isinstance(found, VectorSelector)
    assert [(matcher.name, matcher.value) for matcher in found.matchers] == [("__name__", "foo"), ("__name__", "f.*")]
    assert parse('{"foo"}') == parse('{__name__="foo"}')
