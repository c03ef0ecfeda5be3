from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lakerunner.query.logql import ast
from lakerunner.query.logql.entries import Category, Entries
from lakerunner.query.logql.parser import parse
from lakerunner.query.logql.pushdown import push_down
from lakerunner.query.logql.selection import selected
from lakerunner.query.logql.stages.label_patterns import simplified
from lakerunner.query.logql.stages.line_filters import line_filter
from lakerunner.query.logql.stages.matching import matching
from lakerunner.query.series.matchers import Matcher, MatchKind

_VALUES = ["", "warn", "warning", "a warn", "/api", "/api/x", "x/api", "10", "210", "WARN", "two\nlines"]


@pytest.mark.parametrize(
    ("pattern", "accepted"),
    [
        ("warn", ["warn"]),
        ("warn|error", ["warn"]),
        ("warn.*", ["warn", "warning", "a warn"]),
        (".*warn", ["warn", "warning", "a warn"]),
        # A common beginning is shared, and what follows it is searched for anywhere.
        ("/api|/other", ["/api", "/api/x", "x/api"]),
        ("warn|warning", ["warn", "warning", "a warn"]),
        # Alternatives of one character are a class, which is matched as a whole.
        ("/ap[a-z]", ["/api"]),
        ("1.", ["10"]),
        ("10.*", ["10", "210"]),
        ("(?i)warn", ["warn", "WARN"]),
        ("^warn.*", ["warn", "warning"]),
        ("two.lines", []),
        ("", _VALUES),
        (".*", _VALUES),
        (".+", _VALUES[1:]),
        ("w(ar|in)n?", ["warn"]),
        # Escapes, and flags that change nothing, do not hide a literal.
        (r"/\x61pi|/other", ["/api", "/api/x", "x/api"]),
        (r"\Qwarn\E.{0,}", ["warn", "warning", "a warn"]),
        ("(?m)10.*", ["10", "210"]),
        ("(?s)10.*", ["10"]),
        # The same character twice is one character.
        ("1|1", []),
        ("10|1|0", ["10"]),
    ],
)
def test_patterns_of_label_filters_match_as_in_loki(pattern: str, accepted: list[str]) -> None:
    values = pa.array(_VALUES)
    found = matching(values, Matcher("x", MatchKind.REGEX, pattern), lambda: None)
    assert [value for value, one in zip(_VALUES, found, strict=True) if one] == accepted
    others = matching(values, Matcher("x", MatchKind.NOT_REGEX, pattern), lambda: None)
    assert (found != others).all()


@pytest.mark.parametrize("pattern", ["warn.*", "/api|/other", "", "warn", "two.lines", ".+"])
@pytest.mark.parametrize("kind", [MatchKind.REGEX, MatchKind.NOT_REGEX])
def test_a_matcher_of_a_selector_has_to_match_the_whole_value(pattern: str, kind: MatchKind) -> None:
    matcher = Matcher("x", kind, pattern)
    # An empty value is none.
    labels = {(Category.METADATA, "x"): pa.array([value or None for value in _VALUES])}
    entries = Entries(np.arange(len(_VALUES)), pa.array([""] * len(_VALUES)), labels)
    found = selected(entries, [matcher], lambda: None)
    assert [_VALUES[number] for number in found.times_ns] == [value for value in _VALUES if matcher.matches(value)]


@pytest.mark.parametrize(
    ("stage", "found"),
    [
        ('|~ "warn|"', ["warn", "warning", "a warn"]),
        ('|~ "|warn|10"', ["warn", "warning", "a warn", "10", "210"]),
        ('|~ "warn|.*"', ["warn", "warning", "a warn"]),
        ('|~ "(?i)WARN|"', ["warn", "warning", "a warn", "WARN"]),
        ('|~ "x/|.+|"', _VALUES[1:]),
        ('|~ "()"', _VALUES),
        ('|~ ".*" or "10"', ["10", "210"]),
        ('|~ "[w]|"', _VALUES),
        ('!~ "warn|"', [value for value in _VALUES if "warn" not in value]),
        ('!~ ".*" or "10"', []),
    ],
)
def test_alternatives_that_every_line_passes_are_left_out_as_in_loki(stage: str, found: list[str]) -> None:
    expr = parse(f'{{service_name="a"}} {stage}')
    assert isinstance(expr, ast.LogSelector) and isinstance(expr.stages[0], ast.LineFilter)
    entries = Entries(np.arange(len(_VALUES)), pa.array(_VALUES), {})
    kept = line_filter(expr.stages[0])(entries, lambda: None)
    assert kept.lines.to_pylist() == found


@pytest.mark.parametrize("pattern", [".+", "x|.+", ".+|"])
def test_a_line_of_newlines_alone_is_not_empty(pattern: str) -> None:
    entries = Entries(np.arange(3), pa.array(["", "\n", "a\n"]), {})
    for op, found in (("|~", ["\n", "a\n"]), ("!~", [""])):
        expr = parse(f'{{service_name="a"}} {op} "{pattern}"')
        assert isinstance(expr, ast.LogSelector) and isinstance(expr.stages[0], ast.LineFilter)
        assert line_filter(expr.stages[0])(entries, lambda: None).lines.to_pylist() == found


def test_the_scan_leaves_out_such_alternatives_too() -> None:
    def pushed(stage: str) -> object:
        expr = parse(f'{{service_name="a"}} {stage}')
        assert isinstance(expr, ast.LogSelector)
        return push_down(expr).predicate

    assert pushed('|~ "warn|"') == pushed('|~ "warn"') != pushed('|~ "warn*"')
    assert pushed('|~ ".*" or "warn"') == pushed('|~ "warn"')


def test_the_scan_does_not_leave_out_what_a_filter_accepts() -> None:
    expr = parse('{service_name="a"} | trace_id=~"0.*"')
    assert isinstance(expr, ast.LogSelector)
    assert "trace_id" not in str(push_down(expr).predicate)


def test_a_huge_pattern_is_not_taken_apart() -> None:
    assert simplified("(" * 5_000 + "a" + ")" * 5_000) is None
