"""Entries in memory as a source of metric queries, in pieces and out of order, as a lake yields them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakerunner.query.logql import ast
from lakerunner.query.logql.entries import Category, Entries, Ints
from lakerunner.query.logql.eval.series_times import SeriesTimes
from lakerunner.query.logql.needed import stored_names
from lakerunner.query.logql.stages.compile import compile_stages

Columns = dict[tuple[Category, str], list[str | None]]


@dataclass(frozen=True, slots=True)
class Entry:
    time_ns: int
    labels: Mapping[str, str]
    line: str = ""
    category: Category = Category.STREAM


def entries_of(found: Sequence[Entry]) -> Entries:
    columns: Columns = {}
    for at, entry in enumerate(found):
        for name, value in entry.labels.items():
            columns.setdefault((entry.category, name), [None] * len(found))[at] = value
    arrays = {key: pa.array(values, pa.string()).dictionary_encode() for key, values in columns.items()}
    times = np.array([entry.time_ns for entry in found], dtype=np.int64)
    return Entries(times, pa.array([entry.line for entry in found], pa.string()), arrays)


class MemoryEntries:
    """Every piece has dictionaries of its own."""

    def __init__(self, entries: Sequence[Entry], pieces: int = 3) -> None:
        self._entries, self._pieces = entries, pieces
        #: What was asked for: the labels, and whether lines.
        self.asked: list[tuple[frozenset[str] | None, bool]] = []

    def entries(
        self,
        selector: ast.LogSelector,
        start_ns: int,
        end_ns: int,
        names: frozenset[str] | None,
        need_lines: bool,
        by: frozenset[str] | None = None,
        edges: Ints | None = None,
        number: str | None = None,
    ) -> Iterator[Entries | SeriesTimes]:
        self.asked.append((names, need_lines))
        return self._selected(selector, start_ns, end_ns, names)

    def _selected(
        self, selector: ast.LogSelector, start_ns: int, end_ns: int, names: frozenset[str] | None
    ) -> Iterator[Entries]:
        run = compile_stages(selector.stages, stored_names(selector.stages, names))
        chosen = [entry for entry in self._entries if start_ns <= entry.time_ns < end_ns]
        chosen = [
            entry
            for entry in chosen
            if all(matcher.matches(entry.labels.get(matcher.name, "")) for matcher in selector.matchers)
        ]
        for piece in reversed(range(self._pieces)):
            part = entries_of(chosen[piece :: self._pieces])
            if len(part):
                yield run(part, lambda: None)
