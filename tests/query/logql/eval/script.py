"""Reads cases of metric queries from text files.

    load
      10s {app="a"} a line
      0s to 50s every 10s {app="b"} took=3

    eval instant at 1m: sum by (app) (count_over_time({app=~".+"}[1m]))
      {app="a"} 1
      {app="b"} 5

    eval range 0s to 2m every 1m: rate({app="a"}[1m])
      {app="a"} 0.1 _ 3

`_` is an empty cell. `fail TEXT` instead of series: the query is refused with a message that contains the text.
`ordered` before the series: their order counts. `load` begins a new set of entries. Lines with # are comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from lakerunner.query.logql.ast import LogSelector
from lakerunner.query.logql.parser import parse
from tests.query.logql.eval.memory_entries import Entry

_UNITS = {"ns": 1, "ms": 1_000_000, "s": 1_000_000_000, "m": 60_000_000_000, "h": 3_600_000_000_000}
_TIME = r"-?\d+(?:ns|ms|s|m|h)"
_ENTRY = re.compile(rf"({_TIME})(?: to ({_TIME}) every ({_TIME}))? (\{{.*?\}})(?: (.*))?")
_INSTANT = re.compile(rf"eval instant at ({_TIME}): (.+)")
_RANGE = re.compile(rf"eval range ({_TIME}) to ({_TIME}) every ({_TIME}): (.+)")
_SERIES = re.compile(r"(\{.*\}) (.+)")

Labels = tuple[tuple[str, str], ...]
Cells = tuple[float | None, ...]


@dataclass(slots=True)
class Case:
    name: str
    entries: list[Entry]
    query: str
    steps_ns: list[int]
    ranged: bool
    expected: list[tuple[Labels, Cells]] = field(default_factory=list)
    ordered: bool = False
    fails: str = ""


def cases_of(path: Path) -> Iterator[Case]:
    entries: list[Entry] = []
    case: Case | None = None
    loading = False
    for number, raw in enumerate(path.read_text().splitlines(), start=1):
        text = raw.strip()
        if not text or text.startswith("#"):
            continue
        if not raw.startswith(" "):
            if case is not None:
                yield case
            loading, case = text == "load", None
            if loading:
                entries = []
            else:
                query, steps, ranged = _evaluation(text)
                case = Case(f"{path.stem}:{number}", entries, query, steps, ranged)
        elif loading:
            entries += _loaded(text)
        else:
            assert case is not None, f"{path}:{number}: neither load nor eval"
            _expect(case, text)
    if case is not None:
        yield case


def time_ns(text: str) -> int:
    number, unit = re.fullmatch(r"(-?\d+)(\w+)", text).groups()  # type: ignore[union-attr]
    return int(number) * _UNITS[unit]


def _loaded(text: str) -> Iterator[Entry]:
    found = _ENTRY.fullmatch(text)
    assert found, f"no entry: {text}"
    first, last, every, labels, line = found.groups()
    begin, end, step = time_ns(first), time_ns(last or first), time_ns(every or "1s")
    for at in range(begin, end + 1, step):
        yield Entry(at, dict(_labels(labels)), line or "")


def _evaluation(text: str) -> tuple[str, list[int], bool]:
    if found := _INSTANT.fullmatch(text):
        return found[2], [time_ns(found[1])], False
    found = _RANGE.fullmatch(text)
    assert found, f"no evaluation: {text}"
    first, last, every = map(time_ns, found.groups()[:3])
    return found[4], list(range(first, last + 1, every)), True


def _expect(case: Case, text: str) -> None:
    if text == "ordered":
        case.ordered = True
    elif text.startswith("fail "):
        case.fails = text.removeprefix("fail ")
    else:
        found = _SERIES.fullmatch(text)
        assert found, f"no series: {text}"
        cells = tuple(None if cell == "_" else float(cell) for cell in found[2].split())
        case.expected.append((_labels(found[1]), cells))


def _labels(text: str) -> Labels:
    if text == "{}":
        return ()
    # A selector needs a value; series may have empty labels alone.
    selector = parse(f'{{_="_", {text[1:]}')
    assert isinstance(selector, LogSelector)
    return tuple(sorted((matcher.name, matcher.value) for matcher in selector.matchers[1:]))
