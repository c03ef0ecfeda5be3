"""Searches traces: finds candidates, joins their spans, runs the pipeline, describes what is found, newest first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakerunner.model.signals.traces import TRACES
from lakerunner.query.language import Check, RowSource
from lakerunner.query.traceql import ast
from lakerunner.query.traceql.describing import Descriptions
from lakerunner.query.traceql.loading import chunks, find_candidates, load_traces
from lakerunner.query.traceql.pushdown import candidates
from lakerunner.query.traceql.shown import all_fields
from lakerunner.query.traceql.spans import Spans
from lakerunner.query.traceql.spansets import PipelineRun

TIME = TRACES.time_column
SCHEMA = pa.schema(
    [
        pa.field(TIME, pa.timestamp("ns", "UTC")),
        pa.field("document", pa.string()),
        #: Whether the trace may have spans beyond the time in which they were looked for.
        pa.field("cut", pa.bool_()),
    ]
)
#: Candidates of the first piece: enough for a page, and few enough that a long answer begins soon.
_LEAST_FIRST, _MOST_FIRST = 256, 16_384


@dataclass(frozen=True, slots=True)
class Search:
    pipeline: ast.Pipeline
    #: Traces that begin at or before the end and end at or after the start.
    start_ns: int
    end_ns: int
    limit: int
    #: Spans of each set that are described.
    spans_per_set: int
    #: How far beyond the range the spans of a trace are looked for.
    reach_ns: int
    #: Whether span sets and services are described at all.
    with_sets: bool = True


def search(query: Search, source: RowSource, check: Check) -> Iterator[pa.RecordBatch]:
    """The traces of the answer, newest first, each as soon as no newer one can be found."""
    low, high = query.start_ns - query.reach_ns, query.end_ns + query.reach_ns
    found = find_candidates(source, candidates(query.pipeline.stages), low, high, check)
    fields = all_fields(query.pipeline)
    waiting: list[tuple[int, str, bool]] = []
    left = query.limit
    pieces = chunks(found, min(max(_LEAST_FIRST, query.limit), _MOST_FIRST))
    for number, (start, end) in enumerate(pieces):
        check()
        ids = None if found.everything and len(pieces) == 1 else found.trace_ids.take(slice(start, end))
        spans = load_traces(source, ids, fields, low, high, check)
        waiting += _traces(query, spans, check)
        waiting.sort(key=lambda trace: -trace[0])
        # A trace begins before its newest matching span does.
        bound = found.newest_ns[end] if number + 1 < len(pieces) else -(1 << 63)
        certain = [trace for trace in waiting if trace[0] >= bound][:left]
        if certain:
            columns = zip(*certain, strict=True)
            yield pa.RecordBatch.from_arrays(
                [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
            )
        left -= len(certain)
        waiting = waiting[len(certain) :]
        if left <= 0:
            return


def _traces(query: Search, spans: Spans, check: Check) -> list[tuple[int, str, bool]]:
    """The start and the description of each trace that matches, and whether it may have been cut."""
    if not len(spans):
        return []
    check()
    run = PipelineRun(spans)
    sets = run.run(query.pipeline.stages)
    check()
    in_time = (spans.trace_start_ns <= query.end_ns) & (spans.trace_end_ns >= query.start_ns)
    sets = sets.kept(in_time[sets.trace][sets.set_of])
    newest = np.unique(sets.trace)
    newest = newest[np.argsort(-spans.trace_start_ns[newest], kind="stable")][: query.limit]
    describe = Descriptions(query.pipeline, spans, run, sets, query.spans_per_set, with_sets=query.with_sets)
    start_ns = spans.trace_start_ns[newest]
    # A span lasts beyond what was read; or the trace began before the range, and its root is not there.
    cut = (spans.trace_end_ns[newest] > query.end_ns + query.reach_ns) & (query.reach_ns > 0)
    cut |= (spans.root[newest] < 0) & (start_ns < query.start_ns)
    return list(zip(start_ns.tolist(), describe.texts(newest, check), cut.tolist(), strict=True))
