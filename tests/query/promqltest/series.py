"""Series as scripts write them: a metric, and a sequence of values in a short notation."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from lakerunner.model.labels import METRIC_NAME, LabelSet
from lakerunner.query.promql.ast import VectorSelector
from lakerunner.query.promql.parser import Parser
from lakerunner.query.series.batch import STALE
from lakerunner.query.series.histograms.histogram import CUSTOM_SCHEMA, Histogram, ResetHint
from lakerunner.query.series.histograms.math import add, subtract
from lakerunner.query.syntax.durations import parse_duration_ms

_NUMBER = r"[+-]?(?:(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?|(?i:inf|nan))"
#: Like Go, a zero in front makes a number octal.
_OCTAL = re.compile(r"[+-]?0[0-7]+")
_ITEM = re.compile(
    rf"(?P<gap>_)(?:x(?P<gaps>\d+))?$|(?P<base>stale|{_NUMBER})(?:(?P<step>[+-]{_NUMBER}))?(?:x(?P<times>\d+))?$"
)
_HISTOGRAM_ITEM = re.compile(r"(\{\{.*?\}\})(?:([+-])(\{\{.*?\}\}))?(?:x(\d+))?$")
_FIELD = re.compile(r"(\w+):(\[[^\]]*\]|\S+)")
_HINT = "counter_reset_hint"
_FIELDS = frozenset(
    [
        *("schema", "count", "sum", "z_bucket", "z_bucket_w", "buckets", "n_buckets", "offset", "n_offset"),
        *("custom_values", _HINT),
    ]
)
_START_ITEM = re.compile(r"([+-]?)((?:\d+(?:ms|[ywdhms]))+|\d+)(?:([+-])((?:\d+(?:ms|[ywdhms]))+))?(?:x(\d+))?$")

_HINTS = {
    "unknown": ResetHint.UNKNOWN,
    "reset": ResetHint.RESET,
    "not_reset": ResetHint.NOT_RESET,
    "gauge": ResetHint.GAUGE,
}


@dataclass(frozen=True)
class Point:
    """One value: nothing, a float or a histogram."""

    value: float | Histogram | None
    #: The script says what the counter-reset hint must be.
    hint_given: bool = False


def parse_series(line: str) -> tuple[LabelSet, list[Point]]:
    """A metric and its values.

    >>> labels, points = parse_series('m{a="b"} 1+2x2 _')
    >>> str(labels), [point.value for point in points]
    ('m{a="b"}', [1.0, 3.0, 5.0, None])
    """
    end = _metric_end(line)
    return parse_metric(line[:end]), [point for item in _items(line[end:]) for point in _points(item)]


def _metric_end(line: str) -> int:
    """Where the metric ends: at the closing brace, or at the first space if there are no braces."""
    name = re.match(r"[^\s{]*", line)
    assert name
    at = name.end()
    if line[at : at + 1] != "{":
        return at
    quote = ""
    while at < len(line):
        c = line[at]
        if quote and c == "\\" and quote != "`":
            at += 1
        elif quote:
            quote = "" if c == quote else quote
        elif c in "\"'`":
            quote = c
        elif c == "}":
            return at + 1
        at += 1
    return at


def parse_metric(text: str) -> LabelSet:
    text = text.strip()
    if text in ("", "{}"):
        return LabelSet(())
    selector = Parser.of(text).query()
    assert isinstance(selector, VectorSelector), text
    labels = {matcher.name: matcher.value for matcher in selector.matchers}
    if selector.name:
        labels[METRIC_NAME] = selector.name
    return LabelSet.of(labels)


def _items(text: str) -> list[str]:
    """Values apart by spaces, but not by those inside histograms."""
    items, at, depth, start = [], 0, 0, None
    while at <= len(text):
        c = text[at : at + 1]
        if (c in ("", " ", "\t")) and depth == 0:
            if start is not None:
                items.append(text[start:at])
            start = None
        else:
            start = at if start is None else start
            depth += text[at : at + 2] == "{{"
            if text[at : at + 2] == "}}":
                depth -= 1
                at += 1
        at += 1
    return items


def _points(item: str) -> list[Point]:
    if item.startswith("{{"):
        return _histogram_points(item)
    found = _ITEM.match(item)
    assert found, f"not a value: {item!r}"
    if found["gap"]:
        return [Point(None)] * int(found["gaps"] or 1)
    base = STALE if found["base"] == "stale" else _number(found["base"])
    if found["times"] is None:
        assert found["step"] is None, item
        return [Point(float(base))]
    step = _number(found["step"]) if found["step"] else 0.0
    points, value = [], base
    for _ in range(int(found["times"]) + 1):
        points.append(Point(value))
        if step:
            value += step
    return points


def _number(text: str) -> float:
    """A number as Go reads it.

    >>> _number("1_000"), _number("010"), _number("-inf")
    (1000.0, 8.0, -inf)
    """
    return float(int(text, 8)) if _OCTAL.fullmatch(text) else float(text)


def _histogram_points(item: str) -> list[Point]:
    found = _HISTOGRAM_ITEM.match(item)
    assert found, f"not a histogram: {item!r}"
    histogram, given = parse_histogram(found[1])
    if found[4] is None:
        return [Point(histogram, given)]
    points = [Point(histogram, given)]
    increment = parse_histogram(found[3])[0] if found[3] else None
    for _ in range(int(found[4])):
        if increment is not None:
            histogram = (add if found[2] == "+" else subtract)(histogram, increment).value
        points.append(Point(histogram, given))
    return points


def parse_histogram(text: str) -> tuple[Histogram, bool]:
    found = _FIELD.findall(text[2:-2])
    fields = dict(found)
    assert len(fields) == len(found) and not _FIELD.sub("", text[2:-2]).strip(), f"not a histogram: {text}"
    assert fields.keys() <= _FIELDS, f"a histogram has no {', '.join(sorted(fields.keys() - _FIELDS))}"
    assert fields.get(_HINT, "unknown") in _HINTS, f"not a hint: {fields.get(_HINT)}"
    numbers = {name: _number(value) for name, value in fields.items() if not value.startswith("[") and name != _HINT}
    lists = {name: [_number(v) for v in value[1:-1].split()] for name, value in fields.items() if value[0] == "["}
    pos, neg = lists.get("buckets", []), lists.get("n_buckets", [])
    schema = int(numbers.get("schema", 0))
    histogram = Histogram(
        schema=schema,
        count=numbers.get("count", 0.0),
        sum=numbers.get("sum", 0.0),
        zero_threshold=numbers.get("z_bucket_w", 0.0),
        zero_count=numbers.get("z_bucket", 0.0),
        pos_index=np.arange(len(pos), dtype=np.int64) + int(numbers.get("offset", 0)),
        pos_count=np.array(pos, dtype=np.float64),
        neg_index=np.arange(len(neg), dtype=np.int64) + int(numbers.get("n_offset", 0)),
        neg_count=np.array(neg, dtype=np.float64),
        bounds=tuple(lists.get("custom_values", [])) if schema == CUSTOM_SCHEMA else (),
        hint=_HINTS[fields.get(_HINT, "unknown")],
    )
    return histogram, _HINT in fields


def parse_starts(text: str) -> list[int | None]:
    """Start timestamps, each relative to its sample's time, in milliseconds."""
    out: list[int | None] = []
    for item in text.split():
        if item == "_" or item.startswith("_x"):
            out += [None] * int(item[2:] or 1)
            continue
        if item[0] == "*":
            last = next((value for value in reversed(out) if value is not None), 0)
            out += [last] * (int(item[2:] or 0) + 1)
            continue
        found = _START_ITEM.match(item)
        assert found, f"not a start timestamp: {item!r}"
        value = (-1 if found[1] == "-" else 1) * parse_duration_ms(found[2])
        step = parse_duration_ms(found[4] or "0s") * (-1 if found[3] == "-" else 1)
        out += [value + i * step for i in range(int(found[5] or 0) + 1)]
    return out


def almost_equal(expected: float, got: float, tolerance: float = 1e-6) -> bool:
    if math.isnan(expected) or math.isnan(got):
        return math.isnan(expected) and math.isnan(got)
    if expected == got:
        return True
    smallest = 2.2250738585072014e-308
    difference, total = abs(expected - got), abs(expected) + abs(got)
    if expected == 0 or got == 0 or total < smallest:
        return difference < tolerance * smallest
    return difference / min(total, 1.7976931348623157e308) < tolerance


def same_histogram(expected: Histogram, got: Histogram, with_hint: bool) -> bool:
    expected, got = expected.compact(), got.compact()

    def close(a: np.ndarray, b: np.ndarray) -> bool:
        return len(a) == len(b) and all(almost_equal(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True))

    return (
        expected.schema == got.schema
        and expected.bounds == got.bounds
        and expected.zero_threshold == got.zero_threshold
        and almost_equal(expected.count, got.count)
        and almost_equal(expected.sum, got.sum)
        and almost_equal(expected.zero_count, got.zero_count)
        and np.array_equal(expected.pos_index, got.pos_index)
        and np.array_equal(expected.neg_index, got.neg_index)
        and close(expected.pos_count, got.pos_count)
        and close(expected.neg_count, got.neg_count)
        and (not with_hint or expected.hint == got.hint)
    )
