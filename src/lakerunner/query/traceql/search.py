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
SCHEMA = pa.schema([pa.field(TIME, pa.timestamp("ns", "UTC")), pa.field("document", pa.string())])
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
    waiting: list[tuple[int, str]] = []
    left = query.limit
    pieces = chunks(found, min(max(_LEAST_FIRST, query.limit), _MOST_FIRST))
    for number, (start, end) in enumerate(pieces):
        check()
        ids = None if found.everything and len(pieces) == 1 else found.trace_ids.take(slice(start, end))
        spans = load_traces(source, ids, fields, low, high, check)
        waiting += _traces(query, spans)
        waiting.sort(key=lambda pair: -pair[0])
        # A trace begins before its newest matching span does.
        bound = found.newest_ns[end] if number + 1 < len(pieces) else -(1 << 63)
        certain = [pair for pair in waiting if pair[0] >= bound][:left]
        if certain:
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([start for start, _ in certain], pa.timestamp("ns", "UTC")),
                    pa.array([document for _, document in certain], pa.string()),
                ],
                schema=SCHEMA,
            )
        left -= len(certain)
        waiting = waiting[len(certain) :]
        if left <= 0:
            return


def _traces(query: Search, spans: Spans) -> list[tuple[int, str]]:
    """The start and the description of each trace that matches."""
    if not len(spans):
        return []
    run = PipelineRun(spans)
    sets = run.run(query.pipeline.stages)
    in_time = (spans.trace_start_ns <= query.end_ns) & (spans.trace_end_ns >= query.start_ns)
    sets = sets.kept(in_time[sets.trace][sets.set_of])
    newest = np.unique(sets.trace)
    newest = newest[np.argsort(-spans.trace_start_ns[newest], kind="stable")][: query.limit]
    describe = Descriptions(query.pipeline, spans, run, sets, query.spans_per_set, with_sets=query.with_sets)
    return list(zip(spans.trace_start_ns[newest].tolist(), describe.texts(newest), strict=True))
