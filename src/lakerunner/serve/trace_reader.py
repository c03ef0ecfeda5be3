"""Reads a whole trace by its id: finds the segments that may hold it, then its spans, whatever their time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakerunner.model.errors import Bug, LimitHit
from lakerunner.model.segment import Segment
from lakerunner.model.signals.traces import TRACES
from lakerunner.model.time import MAX_TIME_NS, NS_PER_S, TimeRange
from lakerunner.query.language import QueryOptions, RowPlan
from lakerunner.query.languages import language
from lakerunner.query.scan.rows.scan import LATE_ROWS
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.stats import QueryStats
from lakerunner.query.traces.spans import SCHEMA
from lakerunner.query.traces.trace_id import full_trace_id
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.service import QueryService, Question, now_ns

#: Spans of one trace in one answer. A larger one is refused by name: nobody can draw it.
MAX_SPANS = 100_000
#: A trace whose last span began this recently may still get spans from services that send late.
_SETTLED_NS = 60 * NS_PER_S
#: The whole time that the lake can hold.
ALWAYS = TimeRange(0, MAX_TIME_NS)


@dataclass(frozen=True, slots=True)
class FoundTrace:
    """The spans of a trace in the columns of `query/traces/spans.py`, oldest first, each once."""

    trace_id: str
    spans: pa.Table
    stats: QueryStats
    #: Raw objects that arrived before this time are in the answer.
    watermark_ms: int | None
    #: More spans may come: raw objects wait that arrived after the trace began, or its last span is recent.
    arriving: bool
    considered: int
    #: Where it lies.
    segments: Sequence[Segment]

    def __len__(self) -> int:
        return int(self.spans.num_rows)


def read_trace(
    service: QueryService, query: RunningQuery, text: str, within: TimeRange = ALWAYS, max_spans: int = MAX_SPANS
) -> FoundTrace:
    """Read a trace. `within` chooses segments, not spans: what is found is whole as far as their hours reach."""
    trace_id = full_trace_id(text)
    located = service.lake.holding(query.caller.org_id, TRACES.name, within, trace_id)
    # A trace needs no time range, so it has no longest one either: its filters keep it cheap.
    times = QueryTimes.of_ns(ALWAYS.start_ns, ALWAYS.end_ns, 0)
    limit = min(LATE_ROWS, max_spans)
    batches: list[pa.RecordBatch] = []
    while True:
        plan = language("traces").compile(trace_id, times, QueryOptions(limit=limit))
        if not isinstance(plan, RowPlan):
            raise Bug(f"cannot read a trace: the plan is a {type(plan).__name__}, not a RowPlan")
        question = Question("traces", trace_id, times, limit=limit)
        rows, source = service.rows(plan, question, query, only=located.segments)
        batches = list(rows)
        found = sum(batch.num_rows for batch in batches)
        if found < limit or limit > max_spans:
            break
        limit = max_spans + 1
    if found > max_spans:
        raise LimitHit(
            f"cannot return trace {trace_id}: it has more than {max_spans:,} spans",
            hint="read a part of it: lakerunner query rows traces 'trace_id = \"…\" and …'",
        )
    spans = _once(pa.Table.from_batches(batches, SCHEMA) if batches else SCHEMA.empty_table())
    arriving = _is_arriving(spans, located.watermark_ms, now_ns)
    return FoundTrace(
        trace_id, spans, source.stats, located.watermark_ms, arriving, located.considered, located.segments
    )


def _once(spans: pa.Table) -> pa.Table:
    """Drop spans that were delivered twice. A client and a server that share an id are two spans."""
    if spans.num_rows < 2:
        return spans
    spans = spans.combine_chunks()
    codes = [
        spans.column(name).combine_chunks().dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False)
        for name in ("span_id", "kind")
    ]
    start = spans.column("start_timestamp").cast(pa.int64()).to_numpy()
    order = np.lexsort((np.arange(len(start)), codes[1], codes[0], start))
    keys = np.stack([start[order], codes[0][order], codes[1][order]])
    first = np.ones(len(order), np.bool_)
    # A span without an id cannot be told from another one.
    first[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0) | (keys[1, 1:] < 0)
    return spans if first.all() else spans.take(pa.array(np.sort(order[first])))


def _is_arriving(spans: pa.Table, watermark_ms: int | None, now: Callable[[], int]) -> bool:
    if not spans.num_rows:
        return False
    starts = spans.column("start_timestamp").cast(pa.int64()).to_numpy()
    last_ns = int((starts + spans.column("duration_ns").to_numpy()).max())
    waits = watermark_ms is not None and watermark_ms * 1_000_000 < int(starts.min())
    return waits or now() - last_ns < _SETTLED_NS
