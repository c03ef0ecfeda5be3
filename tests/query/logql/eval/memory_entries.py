"""Entries in memory as a source of metric queries, in pieces and out of order, as a lake yields them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakerunner.query.logql.entries import Category, Entries
from lakerunner.query.logql.eval.source import EntryRequest, Piece
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

    def entries(self, request: EntryRequest) -> Iterator[Piece]:
        self.asked.append((request.names, request.need_lines))
        return self.selected(request)

    def selected(self, request: EntryRequest) -> Iterator[Entries]:
        selector = request.selector
        run = compile_stages(selector.stages, stored_names(selector.stages, request.names))
        chosen = [entry for entry in self._entries if request.start_ns <= entry.time_ns < request.end_ns]
        chosen = [
            entry
            for entry in chosen
            if all(matcher.matches(entry.labels.get(matcher.name, "")) for matcher in selector.matchers)
        ]
        for piece in reversed(range(self._pieces)):
            part = entries_of(chosen[piece :: self._pieces])
            if len(part):
                yield run(part, lambda: None)
