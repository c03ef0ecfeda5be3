"""Finds the traces that may be in an answer, and loads their spans whole, from whichever segments they lie in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakerunner.model.errors import LimitHit
from lakerunner.model.signals.traces import TRACES
from lakerunner.query.language import Check, RowSource
from lakerunner.query.scan.rows.conditions.id_runs import Ids, concat_ids
from lakerunner.query.scan.rows.conditions.predicate import EVERYTHING, Predicate
from lakerunner.query.scan.rows.request import RowScan
from lakerunner.query.scan.rows.row_group.rows import ReadableRows
from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.query.traceql import ast
from lakerunner.query.traceql.gathering import ENOUGH_ROWS, Gathered
from lakerunner.query.traceql.reading import attributes_in
from lakerunner.query.traceql.spans import BASE, Part, Spans, stored_columns

#: The most traces of a piece: its steps must be short, so that a search whose reader has gone ends soon.
_MOST_OF_PIECE = 32_768
#: Spans that one query holds at a time, and traces that it remembers.
MAX_SPANS, MAX_TRACES = 5_000_000, 5_000_000


@dataclass(frozen=True, slots=True)
class Candidates:
    """Traces that may match, those with the newest matching span first, and the start of that span."""

    trace_ids: Ids
    newest_ns: Ints
    #: Whether they are all traces of the time.
    everything: bool

    def __len__(self) -> int:
        return len(self.newest_ns)


def find_candidates(source: RowSource, predicate: Predicate, start_ns: int, end_ns: int, check: Check) -> Candidates:
    scan = RowScan(TRACES, predicate, ("trace_id",), start_ns, end_ns, ordered=False)
    parts = list(source.mapped(scan, _traces_of))
    check()
    numbers, ids = concat_ids([of_group for of_group, _ in parts]).numbered()
    if len(ids) > MAX_TRACES:
        raise LimitHit(
            f"cannot search {len(ids):,} traces: more than {MAX_TRACES:,}",
            hint="narrow the filter or shorten the range",
        )
    newest = np.full(len(ids), -(1 << 63), np.int64)
    if parts:
        np.maximum.at(newest, numbers, np.concatenate([starts for _, starts in parts]))
    order = np.argsort(-newest, kind="stable")
    return Candidates(ids.take(order), newest[order], predicate == EVERYTHING)


def _traces_of(rows: ReadableRows) -> tuple[Ids, Ints]:
    """The traces of the matching rows of a row group, and their newest starts. Rows of a trace lie together."""
    starts = rows.batch(("start_timestamp",)).column(0).view(pa.int64()).to_numpy(zero_copy_only=False)
    ids = rows.ids("trace_id")
    changed = (ids.high[1:] != ids.high[:-1]) | (ids.low[1:] != ids.low[:-1])
    first = np.flatnonzero(np.concatenate(([True], changed)))
    return ids.take(first), np.maximum.reduceat(starts, first)


def load_traces(
    source: RowSource,
    trace_ids: Ids | None,
    fields: Sequence[ast.Field],
    start_ns: int,
    end_ns: int,
    check: Check,
    *,
    every_attribute: bool = False,
) -> Spans:
    """All spans of these traces between the times; of all traces, without ids."""
    columns = None if every_attribute else tuple(dict.fromkeys((*BASE, *stored_columns(fields))))
    ids = None if trace_ids is None else trace_ids.ordered()
    scan = RowScan(TRACES, EVERYTHING, columns, start_ns, end_ns, ordered=False, ids=ids)

    def part_of(batch: pa.RecordBatch, ids: Ids) -> Part:
        return Part.of(batch, fields, ids, others=attributes_in(batch) if every_attribute else ())

    def read(rows: ReadableRows) -> Part | tuple[pa.RecordBatch, Ids]:
        batch, ids = rows.batch(columns, apart=True), rows.ids("trace_id")
        return (batch, ids) if batch.num_rows < ENOUGH_ROWS else part_of(batch, ids)

    parts: list[Part] = []
    gathered = Gathered()
    held = 0
    for each in source.mapped(scan, read):
        check()
        held += len(each.start_ns) if isinstance(each, Part) else len(each[1])
        if held > MAX_SPANS:
            raise LimitHit(
                f"cannot hold more than {MAX_SPANS:,} spans of whole traces at a time",
                hint="narrow the filter or shorten the range",
            )
        if isinstance(each, Part):
            parts.append(each)
        else:
            parts += [part_of(*large) for large in gathered.add(*each)]
    parts += [part_of(*rest) for rest in gathered.rest()]
    check()
    return Spans(parts)


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
        start, size = end, min(size * 4, max(_MOST_OF_PIECE, first))
    return found
