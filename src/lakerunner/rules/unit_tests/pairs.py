"""Reads tests of materialization rules: pairs of rows and the series that rules make of them, as plain text.

    rules shop.yaml

    test errors by region
    logs
      1s   {"service": "shop", "region": "eu", "message": "error ms=3"}
      12s  {"service": "shop", "region": "us", "message": "error ms=8"}
    series
      errors_total{service_name="shop", region="eu"}  1
      errors_total{service_name="shop", region="us"}  _ 1

docs/materialization.md describes the format.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakerunner.model.errors import BadInput, LakeError
from lakerunner.model.labels import LabelSet
from lakerunner.query.series.histograms.histogram import Histogram
from lakerunner.query.syntax.durations import is_duration, parse_duration_ms
from lakerunner.rules.unit_tests.notation import parse_series

BUCKET_MS = 10_000
_SIGNALS = ("logs", "traces")
_MAX_LENGTH = 4 << 20
#: A value of a series and bucket: a number, or count and sum of a histogram.
Value = float | tuple[float, float]


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a signal: its time after the start of the test, and its fields."""

    time_ms: int
    fields: Mapping[str, Any]


@dataclass(slots=True)
class Pair:
    """One test."""

    name: str
    line: int
    rows: dict[str, list[Row]] = field(default_factory=dict)
    expected: list[str] = field(default_factory=list)
    #: Only these metrics are compared; empty: all that rules make.
    only: tuple[str, ...] = ()
    has_series: bool = False


@dataclass(frozen=True, slots=True)
class PairFile:
    rule_files: tuple[str, ...]
    pairs: tuple[Pair, ...]


def is_pairs(text: str) -> bool:
    """Whether a test file is one of these: its first word is `rules`."""
    return bool(re.match(r"(?:\s*(?:#[^\n]*)?\n)*rules[ \t]+\S", text))


def parse_pairs(text: str) -> PairFile:
    """The tests of a file. What cannot be read is refused with its line."""
    if len(text) > _MAX_LENGTH:
        raise BadInput(f"cannot read the tests: they have more than {_MAX_LENGTH:,} characters", hint="split the file")
    files: list[str] = []
    pairs: list[Pair] = []
    section = ""
    for number, whole in enumerate(text.splitlines(), 1):
        line = whole.strip()
        if not line or line.startswith("#"):
            continue
        try:
            if not whole[0].isspace():
                section = _heading(line, number, files, pairs)
            elif not pairs or not section:
                raise BadInput("a row or series outside of a section")
            elif section == "series":
                pairs[-1].expected.append(_expected(line))
            else:
                pairs[-1].rows.setdefault(section, []).append(_row(line))
        except LakeError as error:
            raise BadInput(f"cannot read the tests: line {number}: {error.message}", hint=error.hint) from None
    if not files:
        raise BadInput("cannot read the tests: they name no rule file", hint="begin with `rules FILE`")
    for pair in pairs:
        if not pair.has_series:
            raise BadInput(f"cannot read the tests: line {pair.line}: the test {pair.name!r} has no `series`")
    return PairFile(tuple(files), tuple(pairs))


def _heading(line: str, number: int, files: list[str], pairs: list[Pair]) -> str:
    word, _, rest = line.partition(" ")
    rest = rest.strip()
    if word == "rules" and rest and not pairs:
        files.append(rest)
        return ""
    if word == "test" and rest:
        pairs.append(Pair(rest, number))
        return ""
    if pairs and line in _SIGNALS:
        return line
    if pairs and word == "series" and (not rest or rest.startswith("of ")):
        pairs[-1].has_series = True
        pairs[-1].only += tuple(name.strip() for name in rest.removeprefix("of").split(",") if name.strip())
        return "series"
    raise BadInput(
        f"{line[:50]!r} is no heading",
        hint="headings are `rules FILE`, then for each test `test NAME`, `logs`, `traces`, and `series` or "
        "`series of NAME, …`; rows and series are indented",
    )


def _row(line: str) -> Row:
    at, _, body = line.partition(" ")
    if at != "0" and not is_duration(at):
        raise BadInput(f"{at[:50]!r} is no time", hint="begin a row with the time since the start, such as 1m5s")
    try:
        fields = json.loads(body)
    except ValueError as error:
        raise BadInput(f"the row is no JSON object: {error}") from None
    if not isinstance(fields, dict):
        raise BadInput("the row is no JSON object")
    return Row(0 if at == "0" else parse_duration_ms(at), fields)


def _expected(line: str) -> str:
    if line.startswith("hole "):
        return re.sub(r"\s+", " ", line)
    labels, points = parse_series(line)
    values: dict[int, Value] = {}
    for number, point in enumerate(points):
        value = point.value
        if value is not None:
            values[number] = (value.count, value.sum) if isinstance(value, Histogram) else value
    return series_line(labels, values)


def series_line(labels: LabelSet, values: Mapping[int, Value]) -> str:
    """A series as a line: a value per bucket of ten seconds, `_` where it has none.

    >>> series_line(LabelSet.of({"__name__": "m", "a": "b"}), {0: 1.0, 2: (3.0, 0.5)})
    'm{a="b"} 1 _ {{count:3 sum:0.5}}'
    """
    shown = [_value(values.get(number)) for number in range(max(values, default=-1) + 1)]
    return " ".join([str(labels), *shown])


def _value(value: Value | None) -> str:
    if value is None:
        return "_"
    if isinstance(value, tuple):
        return f"{{{{count:{_number(value[0])} sum:{_number(value[1])}}}}}"
    return _number(value)


def _number(value: float) -> str:
    # Twelve digits: sums of decimal fractions depend on their order beyond that.
    return f"{value:.12g}" if math.isfinite(value) else str(value)


def difference(pair: Pair, found: Sequence[tuple[str, str]]) -> str:
    """What is expected and not found, or the other way round, as a diff; empty if nothing. `found`: metric and line."""
    lines = sorted(line for metric, line in found if not pair.only or metric in pair.only)
    expected = sorted(pair.expected)
    if lines == expected:
        return ""
    return "\n".join(_diff(expected, lines))


def _diff(expected: Sequence[str], found: Sequence[str]) -> Iterator[str]:
    yield "    --- expected"
    yield "    +++ found"
    for line in difflib.ndiff(expected, found):
        if not line.startswith("?"):
            yield f"    {line}"
