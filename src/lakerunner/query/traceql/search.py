"""Searches traces: finds candidates, joins their spans, runs the pipeline, describes what is found, newest first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from lakerunner.model.signals.traces import TRACES
from lakerunner.query.language import Check, RowSource
from lakerunner.query.traceql import ast
from lakerunner.query.traceql.conditions import satisfying
from lakerunner.query.traceql.fields import INTRINSICS, SERVICE_NAME, level_of
from lakerunner.query.traceql.literals import duration_text
from lakerunner.query.traceql.loading import chunks, find_candidates, load_traces
from lakerunner.query.traceql.pushdown import candidates
from lakerunner.query.traceql.shown import Shown, all_fields, shown_fields
from lakerunner.query.traceql.spans import Spans
from lakerunner.query.traceql.spansets import PipelineRun, SpanSets
from lakerunner.query.traceql.values import ARRAY, BOOL, DURATION, FLOAT, INT, NIL, Values, from_python

TIME = TRACES.time_column
SCHEMA = pa.schema([pa.field(TIME, pa.timestamp("ns", "UTC")), pa.field("document", pa.string())])
NO_ROOT = "<root span not yet received>"
#: Ids of the link of a span that has none, where they are selected, as Tempo shows them.
_NO_LINK: dict[ast.Field, ast.Literal] = {
    ast.Intrinsic("link:traceID"): ast.Literal(ast.STRING, ""),
    ast.Intrinsic("link:spanID"): ast.Literal(ast.STRING, "0" * 16),
}
#: Candidates of the first piece: enough for a page, and few enough that a long answer begins soon.
_LEAST_FIRST, _MOST_FIRST = 256, 8_192


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
    describe = _Descriptions(query, spans, run, sets)
    starts = spans.trace_start_ns
    return [(int(starts[trace]), orjson.dumps(describe.trace(trace)).decode()) for trace in newest.tolist()]


class _Descriptions:
    """Describes traces as Tempo's API does."""

    def __init__(self, query: Search, spans: Spans, run: PipelineRun, sets: SpanSets) -> None:
        self._query, self._spans, self._sets = query, spans, sets
        self._first_row = np.searchsorted(sets.set_of, np.arange(len(sets) + 1))
        order = np.argsort(sets.trace, kind="stable")
        self._sets_by_trace = order
        self._first_set = np.searchsorted(sets.trace[order], np.arange(len(spans.trace_ids) + 1))
        self._service, self._name = spans.values(SERVICE_NAME), spans.values(ast.Intrinsic("name"))
        self._is_error = spans.status_is_error()
        self._ids = spans.span_ids
        self._shown = [(shown, _visible(shown, run, spans)) for shown in shown_fields(query.pipeline)]

    def trace(self, trace: int) -> dict[str, Any]:
        spans = self._spans
        root = int(spans.root[trace])
        start_ns, end_ns = int(spans.trace_start_ns[trace]), int(spans.trace_end_ns[trace])
        service = str(self._service.plain(root)[1]) if root >= 0 else ""
        document: dict[str, Any] = {
            "traceID": spans.trace_ids.text(trace).lstrip("0"),
            "rootServiceName": service or NO_ROOT,
            "rootTraceName": str(self._name.plain(root)[1]) if root >= 0 else "",
            "startTimeUnixNano": str(start_ns),
            "durationMs": max(end_ns - start_ns, 0) // 1_000_000,
        }
        if self._query.with_sets:
            chosen = self._sets_by_trace[self._first_set[trace] : self._first_set[trace + 1]]
            sets = [self._set(number) for number in chosen.tolist()]
            document["spanSet"], document["spanSets"] = sets[0], sets
            document["serviceStats"] = self._services(trace)
        return document

    def _services(self, trace: int) -> dict[str, dict[str, int]]:
        first, end = self._spans.first[trace : trace + 2].tolist()
        codes, errors = self._service.code[first:end], self._is_error[first:end]
        found: dict[str, dict[str, int]] = {}
        for code in np.unique(codes).tolist():
            of_service = codes == code
            stats = found.setdefault(str(self._service.texts[code]), {"spanCount": 0})
            stats["spanCount"] += int(of_service.sum())
            if failed := int((of_service & errors).sum()):
                stats["errorCount"] = stats.get("errorCount", 0) + failed
        return found

    def _set(self, number: int) -> dict[str, Any]:
        first, end = self._first_row[number : number + 2].tolist()
        rows = self._sets.rows[first:end]
        spans = [self._span(row) for row in rows[: self._query.spans_per_set].tolist()]
        document: dict[str, Any] = {"spans": spans, "matched": len(rows)}
        attributes = [_pair(name, values, number) for name, values in self._sets.attributes]
        if attributes:
            document["attributes"] = attributes
        return document

    def _span(self, row: int) -> dict[str, Any]:
        spans = self._spans
        document: dict[str, Any] = {
            "spanID": self._ids[row].as_py() or "",
            "startTimeUnixNano": str(int(spans.start_ns[row])),
            "durationNanos": str(int(spans.duration_ns[row])),
        }
        attributes: list[dict[str, Any]] = []
        for shown, (visible, values) in self._shown:
            if not visible[row]:
                continue
            if shown.field == ast.Intrinsic("name"):
                document["name"] = values.plain(row)[1]
            elif not isinstance(shown.field, ast.Intrinsic) or INTRINSICS[shown.field.name].shown:
                attributes += _shown_pair(shown, values, row)
        if attributes:
            document["attributes"] = attributes
        return document


def _shown_pair(shown: Shown, values: Values, row: int) -> list[dict[str, Any]]:
    """The value of a span. Of an array, the elements that were compared for."""
    if values.kind[row] != ARRAY:
        return [_pair(shown.name, values, row)]
    value = values.texts[values.code[row]]
    elements = from_python(orjson.loads(value))
    keep = np.ones(len(elements), np.bool_) if shown.where is None else satisfying(shown.where, elements)
    chosen = [each for each, is_kept in zip(orjson.loads(value), keep.tolist(), strict=True) if is_kept]
    if not chosen:
        return []
    kept = from_python([chosen])
    return [_pair(shown.name, kept, 0)]


def _visible(shown: Shown, run: PipelineRun, spans: Spans) -> tuple[Any, Values]:
    """Which spans show a field, and its value for each of them."""
    level = level_of(shown.field)
    where = None if shown.where is None else run.conditions.mask(shown.where)
    if level in ("event", "link"):
        values = run.conditions.last_found(shown.field, shown.where)
        if shown.where is None and shown.field in _NO_LINK:
            values = values.or_else(Values.of_literal(_NO_LINK[shown.field]).spread(len(spans)))
    else:
        values = run.conditions.values(shown.field)
    if where is None:
        return values.kind != NIL, values
    return where, values


def _pair(name: str, values: Values, row: int) -> dict[str, Any]:
    return {"key": name, "value": any_value(*values.plain(row))}


def any_value(kind: int, value: Any) -> dict[str, Any]:
    """A value as OTLP writes it in JSON. Nil is a text, as in Tempo's answers."""
    if kind == INT:
        return {"intValue": str(value)}
    if kind == FLOAT:
        if np.isfinite(value):
            return {"doubleValue": value}
        return {"doubleValue": "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"}
    if kind == BOOL:
        return {"boolValue": value}
    if kind == DURATION:
        return {"stringValue": duration_text(value)}
    if kind == ARRAY:
        kinds = {bool: BOOL, int: INT, float: FLOAT}
        items = [any_value(kinds.get(type(item), -1), item) for item in orjson.loads(value)]
        return {"arrayValue": {"values": items}}
    return {"stringValue": "nil" if kind == NIL else value}
