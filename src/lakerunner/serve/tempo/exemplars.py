"""Exemplars of metrics: traces of the newest spans that a metric counts, each beside the series that counts it."""

from __future__ import annotations

from typing import Any

import orjson

from lakerunner.query.traceql import ast
from lakerunner.query.traceql.language import compiled
from lakerunner.query.traceql.printer import field as field_text
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.api import Api
from lakerunner.serve.tempo.search import SearchRequest, run_search
from lakerunner.serve.tempo.times import Bounds

#: The most of one answer.
MAX_EXEMPLARS = 100


def add_exemplars(
    api: Api, query: RunningQuery, text: str, bounds: Bounds, series: list[dict[str, Any]], most: int
) -> None:
    """Add up to `most` exemplars to the series. A calculation of several metrics has none."""
    root = compiled(text).root
    if not isinstance(root, ast.Metric) or isinstance(root.aggregate, ast.Compare):
        return
    by = {field_text(field): _shown_name(field) for field in root.aggregate.by}
    batches, _ = run_search(api, SearchRequest(text, bounds, most, 1, with_sets=True), query)
    for batch in batches:
        for document in batch.column("document").to_pylist():
            _place(orjson.loads(document), series, by, bounds)


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
            exemplar = {"labels": [trace_id], "value": value, "timestampMs": str(start_ns // 1_000_000)}
            each.setdefault("exemplars", []).append(exemplar)
            return
