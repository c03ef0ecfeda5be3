"""Exemplars of metrics: traces of the newest spans that a metric counts, each beside the series that counts it."""

from __future__ import annotations

from typing import Any

import orjson

from lakerunner.model.time import NS_PER_MS
from lakerunner.query.language import QueryOptions
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.traceql import ast
from lakerunner.query.traceql.language import compiled, exemplar_plan
from lakerunner.query.traceql.printer import field as field_text
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.api import Api
from lakerunner.serve.service import Question
from lakerunner.serve.tempo.search import TRACEQL
from lakerunner.serve.tempo.times import Bounds

#: The most of one answer.
MAX_EXEMPLARS = 100
#: Of an answer that nobody asked exemplars of, as Tempo gives some.
UNASKED = 10
#: The newest steps with a value in which those are looked for, so that they cost a small part of the query.
_UNASKED_STEPS = 2


def add_exemplars(
    api: Api, query: RunningQuery, text: str, bounds: Bounds, series: list[dict[str, Any]], most: int
) -> None:
    """Add up to `most` exemplars to the series. A calculation of several metrics has none."""
    compiled_query = compiled(text)
    root = compiled_query.root
    if not isinstance(root, ast.Metric) or isinstance(root.aggregate, ast.Compare):
        return
    by = {field_text(field): _shown_name(field) for field in root.aggregate.by}
    times = QueryTimes.of_ns(bounds.start_ns, bounds.end_ns, 0)
    plan = exemplar_plan(compiled_query, times, QueryOptions(limit=most))
    batches, _ = api.service.rows(plan, Question(TRACEQL, text, times, limit=most), query)
    for batch in batches:
        for document in batch.column("document").to_pylist():
            _place(orjson.loads(document), series, by, bounds)


def newest_steps(series: list[dict[str, Any]], bounds: Bounds, step_ns: int) -> Bounds:
    """The time of the newest steps that have a value."""
    times = {int(at["timestampMs"]) for each in series for at in each.get("samples", ()) if at["value"]}
    newest = sorted(times)[-_UNASKED_STEPS:]
    if not newest:
        return bounds
    start_ns, end_ns = newest[0] * NS_PER_MS - step_ns, newest[-1] * NS_PER_MS
    return Bounds(max(start_ns, bounds.start_ns), min(end_ns, bounds.end_ns))


def _shown_name(field: ast.Field) -> str:
    return field.name


def _place(trace: dict[str, Any], series: list[dict[str, Any]], by: dict[str, str], bounds: Bounds) -> None:
    span = trace["spanSet"]["spans"][0]
    start_ns = int(span["startTimeUnixNano"])
    if not bounds.start_ns < start_ns <= bounds.end_ns:
        return
    shown = {pair["key"]: pair["value"] for pair in span.get("attributes", [])}
    if "name" in span:
        shown["name"] = {"stringValue": span["name"]}
    for each in series:
        labels = {pair["key"]: pair["value"] for pair in each["labels"]}
        if all(labels.get(label) == shown.get(name) for label, name in by.items()):
            trace_id = {"key": "trace:id", "value": {"stringValue": trace["traceID"]}}
            value = int(span["durationNanos"]) / 1e9
            exemplar = {"labels": [trace_id], "value": value, "timestampMs": str(start_ns // NS_PER_MS)}
            each.setdefault("exemplars", []).append(exemplar)
            return
