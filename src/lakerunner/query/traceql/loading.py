"""Finds the traces that may be in an answer, and loads their spans whole, from whichever segments they lie in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.errors import LimitHit
from lakerunner.model.signals.traces import TRACES
from lakerunner.query.language import Check, RowSource
from lakerunner.query.scan.rows.predicate import EVERYTHING, Column, In, Predicate, Text
from lakerunner.query.scan.rows.request import RowScan
from lakerunner.query.scan.rows.segment import ReadableRows
from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.query.traceql import ast
from lakerunner.query.traceql.reading import attributes_in
from lakerunner.query.traceql.spans import BASE, Part, Spans, stored_columns

#: How far beyond the asked range the spans of a trace are looked for.
REACH_NS = 30 * 60 * 1_000_000_000
#: Spans that one query holds at a time, and traces that it remembers.
MAX_SPANS, MAX_TRACES = 5_000_000, 5_000_000
#: Of more traces, all spans of the time are read and chosen from.
_NAMED_TRACES = 20_000


@dataclass(frozen=True, slots=True)
class Candidates:
    """Traces that may match, those with the newest matching span first, and the start of that span."""

    trace_ids: pa.Array
    newest_ns: Ints
    #: Whether they are all traces of the time.
    everything: bool

    def __len__(self) -> int:
        return len(self.newest_ns)


def find_candidates(source: RowSource, predicate: Predicate, start_ns: int, end_ns: int, check: Check) -> Candidates:
    scan = RowScan(TRACES, predicate, ("trace_id",), start_ns, end_ns, ordered=False)
    parts = list(source.mapped(scan, _traces_of))
    check()
    table = pa.concat_tables(parts) if parts else _NO_TRACES
    if table.num_rows:
        table = table.group_by("trace_id").aggregate([("start", "max")]).rename_columns(["trace_id", "start"])
        table = table.sort_by([("start", "descending"), ("trace_id", "ascending")])
    if table.num_rows > MAX_TRACES:
        raise LimitHit(
            f"cannot search {table.num_rows:,} traces: more than {MAX_TRACES:,}",
            hint="narrow the filter or shorten the range",
        )
    newest = table.column("start").to_numpy()
    return Candidates(table.column("trace_id").combine_chunks(), newest, predicate == EVERYTHING)


_NO_TRACES = pa.table({"trace_id": pa.array([], pa.string()), "start": pa.array([], pa.int64())})


def _traces_of(rows: ReadableRows) -> pa.Table:
    """The traces of the matching rows of a row group. Its rows are sorted by trace."""
    batch = rows.batch(("trace_id", "start_timestamp"))
    ids = batch.column("trace_id")
    ids = ids.dictionary_decode() if pa.types.is_dictionary(ids.type) else ids
    table = pa.table({"trace_id": ids, "start": batch.column("start_timestamp").cast(pa.int64())})
    grouped = table.group_by("trace_id").aggregate([("start", "max")]).rename_columns(["trace_id", "start"])
    return grouped.select(["trace_id", "start"])


def load_traces(
    source: RowSource,
    trace_ids: pa.Array | None,
    fields: Sequence[ast.Field],
    start_ns: int,
    end_ns: int,
    check: Check,
    *,
    every_attribute: bool = False,
) -> Spans:
    """All spans of these traces between the times; of all traces, without ids."""
    columns = None if every_attribute else tuple(dict.fromkeys((*BASE, *stored_columns(fields))))
    predicate: Predicate = EVERYTHING
    chosen = trace_ids
    if trace_ids is not None and len(trace_ids) <= _NAMED_TRACES:
        predicate, chosen = In(Column("trace_id"), tuple(map(Text, trace_ids.to_pylist()))), None
    scan = RowScan(TRACES, predicate, columns, start_ns, end_ns, ordered=False)

    def part(rows: ReadableRows) -> Part | None:
        batch = rows.batch(columns, apart=True)
        if chosen is not None:
            ids = batch.column("trace_id")
            ids = ids.dictionary_decode() if pa.types.is_dictionary(ids.type) else ids
            batch = batch.filter(pc.is_in(ids, value_set=chosen))
        others = attributes_in(batch) if every_attribute else ()
        return Part.of(batch, fields, others=others) if batch.num_rows else None

    parts: list[Part] = []
    held = 0
    for each in source.mapped(scan, part):
        check()
        if each is None:
            continue
        held += len(each.start_ns)
        if held > MAX_SPANS:
            raise LimitHit(
                f"cannot hold more than {MAX_SPANS:,} spans of whole traces at a time",
                hint="narrow the filter or shorten the range",
            )
        parts.append(each)
    return Spans(parts)


def no_spans() -> Spans:
    return Spans([])


def chunks(candidates: Candidates, first: int) -> list[tuple[int, int]]:
    """Growing pieces of the candidates, so that few are loaded when few are wanted.

    >>> from numpy import zeros
    >>> chunks(Candidates(None, zeros(100), False), 20)
    [(0, 20), (20, 100)]
    """
    found, start, size = [], 0, max(first, 1)
    while start < len(candidates):
        end = min(start + size, len(candidates))
        found.append((start, end))
        start, size = end, size * 4
    return found
