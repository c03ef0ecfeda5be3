"""Parsers on odd and hostile lines."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.model.errors import LimitHit
from lakerunner.query.logql import ast
from lakerunner.query.logql.entries import ERROR, ERROR_DETAILS
from lakerunner.query.logql.parser import parse
from lakerunner.query.logql.stages.compile import compile_stages
from lakerunner.query.logql.stages.json_kernel import MAX_DEPTH
from tests.query.logql.stages import lenient_json
from tests.query.logql.stages.suite_entries import Labels, entries_of, rows_of


def parsed(
    stages: str,
    *lines: str,
    stream: Mapping[str, str] | None = None,
    metadata: Mapping[str, str] | None = None,
    wanted: frozenset[str] | None = None,
) -> list[Labels]:
    """The parsed labels of each line."""
    expr = parse('{a="b"} ' + stages)
    assert isinstance(expr, ast.LogSelector)
    entries = entries_of(lines, [stream or {}] * len(lines), [metadata or {}] * len(lines))
    return [row[4] for row in rows_of(compile_stages(expr.stages, wanted)(entries, lambda: None))]


def failing(error: str, details: str | None = None, **labels: str) -> Labels:
    return {**labels, ERROR: error} | ({} if details is None else {ERROR_DETAILS: details})


@pytest.mark.parametrize(
    ("line", "labels"),
    [
        ('{"a":1,"b":{"c":"x","d":[1],"e":null}}', {"a": "1", "b_c": "x"}),
        ('{"a":"1","a":"2"} trailing', {"a": "1"}),
        ('{"a b":"x"," c ":"y","1st":"z","b":{"1st":"w"}}', {"a_b": "x", "c": "y", "_1st": "z", "b_1st": "w"}),
        ('{"\\u0061":"\\u00e9\\n\\ud83d\\ude00"}', {"a": "é\n😀"}),
        ('{"a":"\\ud83d alone","b":"bad \\x","c":"\ufffd"}', {"a": "", "b": "", "c": " "}),
        ('{"a":"x\\u0000y"}', {"a": "x\0y"}),
        ('{"a":"nul \0 inside"}', {"a": "nul \0 inside"}),
        ('{"a":1e9999,"b":-,"c":12abc}', {"a": "1e9999", "b": "-", "c": "12abc"}),
        ('{"a":1,"b":"cut', failing("JSONParserErr", lenient_json.BAD_STRING, a="1")),
        ('{"a":1,"b":{"c":2', failing("JSONParserErr", lenient_json.BAD_OBJECT, a="1")),
        ('{"a":1,"b":[1,2', failing("JSONParserErr", lenient_json.BAD_ARRAY, a="1")),
        ('{"a":1,}', {"a": "1"}),
        ('{"a":{"b":1,},"c":2, }', {"a_b": "1", "c": "2"}),
        ('{"a":1,,}', failing("JSONParserErr", lenient_json.BAD_OBJECT, a="1")),
        ('{"a":tru}', failing("JSONParserErr", lenient_json.BAD_VALUE)),
        ('{"\\x":1}', failing("JSONParserErr", lenient_json.BAD_ESCAPE)),
        ("", failing("JSONParserErr", lenient_json.BAD_OBJECT)),
        ("{", failing("JSONParserErr", lenient_json.BAD_JSON)),
        ("text", failing("JSONParserErr", lenient_json.BAD_OBJECT)),
        ("{}", {}),
    ],
)
def test_json(line: str, labels: Labels) -> None:
    assert parsed("| json", line) == [labels]


def test_json_gives_a_stored_name_another_one_and_keeps_what_was_parsed_before() -> None:
    line = '{"app":"x","pod":"y","level":"info"}'
    found = parsed("| json", line, stream={"app": "a"}, metadata={"pod": "p"})
    assert found == [{"app_extracted": "x", "pod_extracted": "y", "level": "info"}]
    assert parsed('| label_format level="mine" | json', line) == [{"app": "x", "pod": "y", "level": "mine"}]
    assert parsed("| json | drop level | json", line) == [{"app": "x", "pod": "y"}]
    assert parsed("| drop app | json", line, stream={"app": "a"}) == [
        {"app_extracted": "x", "pod": "y", "level": "info"}
    ]


def test_only_wanted_labels_are_made_and_errors_before_the_last_of_them_are_found() -> None:
    found = parsed("| json", '{"a":1,"b":2}', '{"a":1,"b":', wanted=frozenset({"a", "c"}))
    assert found == [{"a": "1"}, failing("JSONParserErr", lenient_json.BAD_JSON, a="1")]
    assert parsed("| json", '{"a":1,"b":', wanted=frozenset({"a"})) == [{"a": "1"}]
    assert parsed("| logfmt --strict", "a=1 =2", wanted=frozenset({"a"})) == [{"a": "1"}]
    assert parsed("| logfmt", "a=1 b=2", wanted=frozenset({"b"})) == [{"b": "2"}]
    assert parsed('| regexp "(?P<a>.)(?P<b>.)"', "xy", wanted=frozenset({"b"})) == [{"b": "y"}]
    assert parsed('| pattern "<a> <b>"', "x y", wanted=frozenset({"b_extracted"}), stream={"b": "s"}) == [
        {"b_extracted": "y"}
    ]


@pytest.mark.parametrize(
    ("line", "labels"),
    [
        ('{"a":{"b":["x",{"c":"y"}]}}', {"x": '["x",{"c":"y"}]', "y": "x", "z": "y"}),
        ('{"a":{"b":[null,7]}}', {"x": "[null,7]", "y": "", "z": ""}),
        ('{"a":{"b":["q\\"q"]}}', {"x": '["q"q"]', "y": 'q"q', "z": ""}),
        ('{"a":{"c":1},"b":[1]}', {"x": "", "y": "", "z": ""}),
        ('{"a":{"b":["cut', failing("JSONParserErr", lenient_json.BAD_ARRAY, x="", y="", z="")),
        ('{"a":{"b":[1"\\u00e9",2"\\q"]}}', {"x": "", "y": '1"é"', "z": ""}),
        ("", {}),
        ("text", failing("JSONParserErr")),
    ],
)
def test_json_paths(line: str, labels: Labels) -> None:
    assert parsed('| json x="a.b", y="a.b[0]", z=`a.b[1]["c"]`', line) == [labels]


@pytest.mark.parametrize(
    ("flags", "line", "labels"),
    [
        ("", 'a=1 b="x \\"y\\" \\u00e9" c= d e=""', {"a": "1", "b": 'x "y" é'}),
        ("--keep-empty", "a=1 c= d", {"a": "1", "c": "", "d": ""}),
        ("", 'a=1 =x b"c d=e=f g="open', {"a": "1"}),
        ("--strict", "a=1 =x b=2", failing("LogfmtParserErr", "logfmt syntax error at pos 5 : unexpected '='", a="1")),
        (
            "--strict",
            'a=1 b="open',
            failing("LogfmtParserErr", "logfmt syntax error at pos 12 : unterminated quoted value", a="1"),
        ),
        (
            "--strict",
            'a="\\q"',
            failing("LogfmtParserErr", "logfmt syntax error at pos 7 : invalid quoted value"),
        ),
        ("", "a-b=1 a-b=2 \ufffd=3 c=\ufffd", {"a_b": "1", "c": " "}),
        # Only quoted values have escapes.
        ("", "a=\ufb01\\n b=\ufffd\\q", {"a": "\ufb01\\n", "b": " \\q"}),
        ("", "", {}),
        ("", " \0\t ", {}),
        ("", "\u00a0=1 b=2", {"b": "2"}),
    ],
)
def test_logfmt(flags: str, line: str, labels: Labels) -> None:
    assert parsed(f"| logfmt {flags}", line) == [labels]


def test_values_with_a_replacement_character_are_empty_where_logfmt_names_labels() -> None:
    lines = ("a=\ufffd", 'a="x\ufffd"', 'a="\\ufffd"', 'a="\\ud83d"', 'a="\\\\ufffd"', "a=\ufb01")
    found = parsed('| logfmt x="a"', *lines)
    assert [labels["x"] for labels in found] == ["", "", "", "", "\\ufffd", "\ufb01"]


def test_unpack() -> None:
    line = '{"_entry":"the \\"line\\"","app":"x","n":1,"pod":"y","pod":"z"}'
    assert parsed("| unpack", line, stream={"app": "a"}) == [{"app_extracted": "x", "pod": "z"}]
    broken = '{"_entry":"bad \\x","app":"x"}'
    assert parsed("| unpack", broken) == [failing("JSONParserErr", lenient_json.BAD_ESCAPE)]
    assert parsed("| unpack", '{"app":"x"}', "", "[]") == [
        {},
        {},
        failing("JSONParserErr", "expecting json object(6), but it is not"),
    ]


def test_an_unpacked_line_keeps_replacement_characters() -> None:
    expr = parse('{a="b"} | unpack')
    assert isinstance(expr, ast.LogSelector)
    lines = ['{"_entry":"x\ufffd\\n\\ufffd","a":"\ufffd"}', '{"_entry":"\ufffd"}']
    made = compile_stages(expr.stages)(entries_of(lines), lambda: None)
    assert made.lines.to_pylist() == ["x\ufffd\n\ufffd", "\ufffd"]
    assert [row[4] for row in rows_of(made)] == [{"a": " "}, {}]


def test_a_filter_by_address_looks_at_broken_lines_if_their_parser_named_the_label_itself() -> None:
    lines = ('{"a":"10.0.0.1","b":', '{"a":"1.2.3.4","b":', '{"a":"1.2.3.4"}')
    address = 'ip("10.0.0.0/8")'
    assert [labels["a"] for labels in parsed(f"| json | a={address}", *lines)] == ["10.0.0.1"]
    for stages in (f"| json | label_format x=a | x={address}", f'| json x="a", y="b" | x={address}'):
        assert [labels["x"] for labels in parsed(stages, *lines)] == ["10.0.0.1", "1.2.3.4"]


def test_patterns_capture_up_to_the_next_literal() -> None:
    assert parsed('| pattern "<a> - <b>;<c>"', "x - y;z", "x - y", "x", "", " - ;") == [
        {"a": "x", "b": "y", "c": "z"},
        {"a": "x", "b": "y"},
        {"a": "x"},
        {},
        {"a": "", "b": "", "c": ""},
    ]


def test_patterns_of_repeated_characters_take_no_longer() -> None:
    line, literal = "a" * (1 << 20), "a" * 5_000 + "b"
    assert parsed(f"| pattern `<x>{literal}<y>`", line) == [{"x": line}]
    assert parsed(f"| pattern `<x>{literal}<y>`", line + "bc") == [{"x": line[5_000:], "y": "c"}]
    assert parsed(f"|> `<_>{literal}<_>`", line) == []


def test_groups_that_do_not_take_part_are_empty() -> None:
    assert parsed('| regexp "(x)(?P<a>y)?(?P<b>[)(]+)"', "x()", "xy)", "z") == [
        {"a": "", "b": "()"},
        {"a": "y", "b": ")"},
        {},
    ]


def test_huge_lines() -> None:
    text = "x" * (10 << 20)
    assert parsed("| json", json.dumps({"a": text}))[0]["a"] == text
    assert parsed("| logfmt", f'a="{text}" b=1')[0]["b"] == "1"
    assert parsed("| unpack", json.dumps({"_entry": text, "b": "1"})) == [{"b": "1"}]
    assert len(parsed("| json", "{" * (10 << 20))) == 1
    assert len(parsed("| json", '{"a":' * (2 << 20))) == 1


def test_nesting_is_limited() -> None:
    def nested(depth: int) -> str:
        return '{"a":' * depth + "1" + "}" * depth

    assert list(parsed("| json", nested(MAX_DEPTH))[0].values()) == ["1"]
    (deeper,) = parsed("| json", nested(MAX_DEPTH + 2))
    assert deeper[ERROR] == "JSONParserErr"
    assert "deeper than" in deeper[ERROR_DETAILS]


def test_long_names_are_cut() -> None:
    (labels,) = parsed("| json", f'{{"{"k" * 50_000}":{{"{"l" * 50_000}":{{"{"m" * 50_000}":1}}}}}}')
    assert [len(name) for name in labels] == [1 << 16]


def test_too_many_labels_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [json.dumps({f"k{number}": 1}) for number in range(2_000)]
    assert parsed("| json", *lines)[1_999] == {"k1999": "1"}
    monkeypatch.setattr("lakerunner.query.logql.stages.fields.MAX_CELLS", 1_000)
    with pytest.raises(LimitHit, match="different labels"):
        parsed("| json", *lines)
    monkeypatch.setattr("lakerunner.query.logql.stages.fields.MAX_KEYS", 1_000)
    with pytest.raises(LimitHit, match="different keys"):
        parsed("| json", *lines)


def test_stages_stop_when_nobody_waits() -> None:
    class GoneError(Exception):
        pass

    def check() -> None:
        raise GoneError

    entries = entries_of(["a=1"])
    for stages in ("| json", "| logfmt", '| pattern "<a>=<b>"', '| regexp "(?P<a>.)"', "| unpack", '| json x="a"'):
        expr = parse('{a="b"} ' + stages)
        assert isinstance(expr, ast.LogSelector)
        with pytest.raises(GoneError):
            compile_stages(expr.stages)(entries, check)


_PIECES = [
    "{",
    "}",
    "[",
    "]",
    '"',
    ":",
    ",",
    " ",
    "\\",
    '"a"',
    '"b":',
    "1",
    "true",
    "null",
    "x",
    "\\u0041",
    '{"c":',
    "é",
    # Longer than what is compared at once.
    "y" * 17,
]


@given(st.lists(st.lists(st.sampled_from(_PIECES), max_size=14).map("".join), min_size=1, max_size=6))
def test_malformed_json_gives_what_the_plain_rules_give(lines: list[str]) -> None:
    lines = [*lines, *(f'{{"a":{line}}}' for line in lines)]
    for line, labels in zip(lines, parsed("| json", *lines), strict=True):
        names, error = set(), None
        try:
            for path, _ in lenient_json.leaves(line.encode()):
                names.add("_".join(path_part.decode() for path_part in path))
        except lenient_json.Malformed as reason:
            error = str(reason)
        assert labels.get(ERROR_DETAILS) == error, line
        if "\\" not in line and "é" not in line and " " not in line:
            assert set(labels) - {ERROR, ERROR_DETAILS} == {name.strip("_") for name in names} - {""}, line


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.text('a"\\\ufffd', max_size=40),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=2), inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(st.dictionaries(st.text("abcd", min_size=1, max_size=3), _VALUES, max_size=5), min_size=1, max_size=5))
def test_json_documents_are_flattened(documents: list[dict[str, object]]) -> None:
    def flat(value: object, prefix: str, into: Labels) -> Labels:
        if isinstance(value, dict):
            for key, inner in value.items():
                flat(inner, "_".join(part for part in (prefix, key) if part), into)
        elif not prefix:
            pass
        elif isinstance(value, str):
            into.setdefault(prefix, value.replace("\ufffd", " "))
        elif isinstance(value, bool | int):
            into.setdefault(prefix, json.dumps(value))
        return into

    for ascii_only in (True, False):
        lines = [json.dumps(document, ensure_ascii=ascii_only) for document in documents]
        if all(pa.array([line]).validate() is None for line in lines):
            assert parsed("| json", *lines) == [flat(document, "", {}) for document in documents]


@given(st.lists(st.dictionaries(st.text("abcd", min_size=1, max_size=3), st.text(max_size=8), max_size=5), max_size=5))
def test_logfmt_documents_are_read(documents: list[dict[str, str]]) -> None:
    lines = [" ".join(f"{key}={json.dumps(value)}" for key, value in document.items()) for document in documents]
    expected = [{key: value.replace("\ufffd", " ") for key, value in document.items()} for document in documents]
    assert parsed("| logfmt --keep-empty", *lines) == expected


@pytest.mark.parametrize("stages", ['| json | level="l7"', '| json | level="l7" or n > 5 | __error__=""'])
def test_filtering_before_parsing_in_full_changes_nothing(stages: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f'{{"level":"l{number % 50}","n":"{number % 9 or "x"}","m":{number}}}' for number in range(500)]
    lines[57] = '{"level":"l7","cut":"'
    expected = parsed(stages, *lines)
    monkeypatch.setattr("lakerunner.query.logql.stages.parse_and_filter._FEW", 0)
    monkeypatch.setattr("lakerunner.query.logql.stages.parse_and_filter._SAMPLE", 100)
    monkeypatch.setattr("lakerunner.query.logql.stages.parse_and_filter._MOST", 1.0)
    assert expected
    assert parsed(stages, *lines) == expected


@given(
    st.lists(st.dictionaries(st.sampled_from("abcd"), st.integers(0, 99) | st.text("xy", max_size=2)), max_size=9),
    st.frozensets(st.sampled_from(["a", "b", "b_extracted", "c"]), min_size=1),
    st.booleans(),
)
def test_stopping_at_the_last_wanted_label_changes_no_label(
    documents: list[dict[str, int | str]], wanted: frozenset[str], stored: bool
) -> None:
    lines = [json.dumps(document) for document in documents] * 20
    pairs = [" ".join(f"{key}={value}" for key, value in document.items()) for document in documents] * 20
    stream = {"b": "stored"} if stored else None
    for stage, texts in (("| json", lines), ("| logfmt", pairs), ("| logfmt --strict", pairs)):
        whole = parsed(stage, *texts, stream=stream)
        chosen = [{name: value for name, value in labels.items() if name in wanted} for labels in whole]
        assert parsed(stage, *texts, stream=stream, wanted=wanted) == chosen
