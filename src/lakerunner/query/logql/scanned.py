"""Entries for metric queries, read from stored rows in any order."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import partial

import pyarrow as pa

from lakerunner.query.language import RowSource
from lakerunner.query.logql.entries import Check, Entries, Ints
from lakerunner.query.logql.eval.counted import CountedEntries
from lakerunner.query.logql.eval.series_times import SeriesTimes
from lakerunner.query.logql.eval.source import EntryRequest, Piece
from lakerunner.query.logql.pipeline import Pipeline, pipeline_of
from lakerunner.query.logql.records import TIME
from lakerunner.query.scan.rows.row_group.row_counts import RowCounts
from lakerunner.query.scan.rows.row_group.rows import KeptForm, ReadableRows

#: Lines are parsed so many at a time: a query that is cancelled ends between two pieces.
_PIECE_ROWS = 32_768


class ScannedEntries:
    """The `EntrySource` of an evaluation."""

    def __init__(self, source: RowSource, check: Check) -> None:
        self._source = source
        self._check = check

    def entries(self, request: EntryRequest) -> Iterator[Piece]:
        by, edges = request.by, request.edges
        pipeline = pipeline_of(request.selector, request.names, need_lines=request.need_lines)
        most = _PIECE_ROWS if pipeline.reads_lines else None

        is_counted = by is not None and edges is not None and not request.need_lines and pipeline.is_plain
        counted = _Counted(pipeline)

        def piped(rows: ReadableRows) -> list[Piece]:
            if is_counted and (of_rows := counted.of(rows, edges)) is not None:
                return [of_rows]
            # Templates may show the time of an entry; other stages do not look at it.
            coarse = edges if pipeline.number is not None and pipeline.columns is not None else None
            time_ns = None if coarse is None else rows.one_time(TIME, coarse)
            if time_ns is None:
                batch = rows.batch(pipeline.columns, edges=coarse)
            else:
                batch = _without_times(rows, pipeline.columns or ())
            pieces = (pipeline.entries(piece, time_ns, request.number) for piece in _pieces(batch, most))
            return [pipeline.run(piece, self._check) for piece in pieces]

        form = None
        if by is not None and pipeline.number is not None:
            form = KeptForm(("series", pipeline.number, by), partial(_by_series, by), _size_bytes)
        for pieces in self._source.mapped(pipeline.scan(request.start_ns, request.end_ns), piped, form):
            for piece in pieces:
                if len(piece):
                    yield piece


class _Counted:
    """Counts rows of a pipeline without stages."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._columns = [name for name in pipeline.columns or () if name != TIME]
        #: Column, values and keys -> an entry for each value: most row groups have the same.
        self._entries: dict[Hashable, Entries] = {}

    def of(self, rows: ReadableRows, edges: Ints | None) -> CountedEntries | None:
        found = None if edges is None else rows.counts(TIME, self._columns, edges)
        if found is None:
            return None
        name = found.column, found.values, tuple(found.keys.values())
        entries = self._entries.get(name)
        if entries is None:
            entries = self._entries[name] = self._pipeline.entries(_of_values(found), time_ns=0)
        # Entries that repeat others are left out: then each has to be looked at.
        return None if len(entries) < len(found.values) else CountedEntries(entries, found.counts, found.first)


def _of_values(found: RowCounts) -> pa.RecordBatch:
    """A row for each of the values."""
    columns = {TIME: pa.nulls(len(found.values))}
    if found.column is not None:
        columns[found.column] = pa.array(found.values, pa.string())
    fields = [pa.field(name, array.type) for name, array in columns.items()]
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=pa.schema(fields, metadata=dict(found.keys)))


def _without_times(rows: ReadableRows, columns: Sequence[str]) -> pa.RecordBatch:
    """The rows with nulls for their times."""
    others = rows.batch([name for name in columns if name != TIME])
    # A batch without columns, as of a file that has none of these, would not know its number of rows.
    schema = pa.schema([pa.field(TIME, pa.null()), *others.schema], metadata=others.schema.metadata)
    return pa.RecordBatch.from_arrays([pa.nulls(len(rows)), *others.columns], schema=schema)


def _by_series(by: frozenset[str], pieces: list[Piece]) -> list[Piece] | None:
    """The pieces as times of series; None if one of them cannot be that."""
    made: list[Piece] = []
    for piece in pieces:
        found = SeriesTimes.of(piece, by) if isinstance(piece, Entries) else piece
        if found is None or isinstance(found, CountedEntries):
            return None
        made.append(found)
    return made


def _size_bytes(pieces: list[Piece]) -> int:
    return sum(piece.nbytes for piece in pieces if isinstance(piece, SeriesTimes))


def _pieces(batch: pa.RecordBatch, most: int | None) -> Iterator[pa.RecordBatch]:
    """The rows in pieces of at most so many."""
    if most is None or batch.num_rows <= most:
        yield batch
        return
    for start in range(0, batch.num_rows, most):
        yield batch.slice(start, most)
