"""Entries for metric queries, read from stored rows in any order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from lakerunner.query.language import RowSource
from lakerunner.query.logql import ast
from lakerunner.query.logql.entries import Check, Entries
from lakerunner.query.logql.pipeline import Pipeline
from lakerunner.query.scan.rows.group_rows import ReadableRows

#: Lines are parsed so many at a time: a query that is cancelled ends between two pieces.
_PIECE_ROWS = 32_768


class ScannedEntries:
    """The `EntrySource` of an evaluation. It counts the entries that it gave."""

    def __init__(self, source: RowSource, check: Check) -> None:
        self._source = source
        self._check = check
        self.count = 0

    def entries(
        self, selector: ast.LogSelector, start_ns: int, end_ns: int, names: frozenset[str] | None, need_lines: bool
    ) -> Iterator[Entries]:
        pipeline = Pipeline.of(selector, names, need_lines=need_lines)
        most = _PIECE_ROWS if pipeline.reads_lines else None

        def piped(rows: ReadableRows) -> list[Entries]:
            batch = rows.batch(pipeline.columns)
            return [pipeline.run(pipeline.entries(piece), self._check) for piece in _pieces(batch, most)]

        for pieces in self._source.mapped(pipeline.scan(start_ns, end_ns), piped):
            for entries in pieces:
                if len(entries):
                    self.count += len(entries)
                    yield entries


def _pieces(batch: pa.RecordBatch, most: int | None) -> Iterator[pa.RecordBatch]:
    """The rows in pieces of at most so many."""
    if most is None or batch.num_rows <= most:
        yield batch
        return
    for start in range(0, batch.num_rows, most):
        yield batch.take(pa.array(np.arange(start, min(start + most, batch.num_rows))))
