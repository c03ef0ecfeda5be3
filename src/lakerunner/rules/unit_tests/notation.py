"""Series as Prometheus' test files write them: a metric, and a sequence of values in a short notation."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from lakerunner.model.errors import BadInput
from lakerunner.model.labels import METRIC_NAME, LabelSet
from lakerunner.query.promql.ast import VectorSelector
from lakerunner.query.promql.parser import Parser
from lakerunner.query.series.batch import STALE
from lakerunner.query.series.histograms.histogram import CUSTOM_SCHEMA, Histogram, ResetHint
from lakerunner.query.series.histograms.math import add, subtract

_NUMBER = r"[+-]?(?:(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?|(?i:inf|nan))"
#: Like Go, a zero in front makes a number octal.
_OCTAL = re.compile(r"[+-]?0[0-7]+")
_ITEM = re.compile(
    rf"(?P<gap>_)(?:x(?P<gaps>\d+))?$|(?P<base>stale|{_NUMBER})(?:(?P<step>[+-]{_NUMBER}))?(?:x(?P<times>\d+))?$"
)
#: Values that one item may stand for.
_MAX_TIMES = 1_000_000
_HISTOGRAM_ITEM = re.compile(r"(\{\{.*?\}\})(?:([+-])(\{\{.*?\}\}))?(?:x(\d+))?$")
_FIELD = re.compile(r"(\w+):(\[[^\]]*\]|\S+)")
_HINT = "counter_reset_hint"
_FIELDS = frozenset(
    [
        *("schema", "count", "sum", "z_bucket", "z_bucket_w", "buckets", "n_buckets", "offset", "n_offset"),
        *("custom_values", _HINT),
    ]
)

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
    assert name is not None
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
    if not isinstance(selector, VectorSelector):
        raise BadInput(f"cannot read a series: {text!r} is no metric")
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
    if found is None:
        raise BadInput(f"cannot read a series: not a value: {item!r}")
    if found["gap"]:
        return [Point(None)] * _times(found["gaps"] or "1")
    base = STALE if found["base"] == "stale" else _number(found["base"])
    if found["times"] is None:
        if found["step"] is not None:
            raise BadInput(f"cannot read a series: a step without a number of times: {item!r}")
        return [Point(float(base))]
    step = _number(found["step"]) if found["step"] else 0.0
    points, value = [], base
    for _ in range(_times(found["times"]) + 1):
        points.append(Point(value))
        if step:
            value += step
    return points


def _times(text: str) -> int:
    times = int(text) if len(text) < 10 else _MAX_TIMES + 1
    if times > _MAX_TIMES:
        raise BadInput(f"cannot read a series: {text} times is more than {_MAX_TIMES:,}")
    return times


def _number(text: str) -> float:
    """A number as Go reads it.

    >>> _number("1_000"), _number("010"), _number("-inf")
    (1000.0, 8.0, -inf)
    """
    try:
        return float(int(text, 8)) if _OCTAL.fullmatch(text) else float(text)
    except ValueError:
        raise BadInput(f"cannot read a series: not a number: {text!r}") from None


def _histogram_points(item: str) -> list[Point]:
    found = _HISTOGRAM_ITEM.match(item)
    if found is None:
        raise BadInput(f"cannot read a series: not a histogram: {item!r}")
    histogram, given = parse_histogram(found[1])
    if found[4] is None:
        return [Point(histogram, given)]
    points = [Point(histogram, given)]
    increment = parse_histogram(found[3])[0] if found[3] else None
    for _ in range(_times(found[4])):
        if increment is not None:
            histogram = (add if found[2] == "+" else subtract)(histogram, increment).value
        points.append(Point(histogram, given))
    return points


def parse_histogram(text: str) -> tuple[Histogram, bool]:
    found = _FIELD.findall(text[2:-2])
    fields = dict(found)
    if len(fields) != len(found) or _FIELD.sub("", text[2:-2]).strip():
        raise BadInput(f"cannot read a series: not a histogram: {text}")
    if not fields.keys() <= _FIELDS:
        raise BadInput(f"cannot read a series: a histogram has no {', '.join(sorted(fields.keys() - _FIELDS))}")
    if fields.get(_HINT, "unknown") not in _HINTS:
        raise BadInput(f"cannot read a series: not a hint: {fields.get(_HINT)}")
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
