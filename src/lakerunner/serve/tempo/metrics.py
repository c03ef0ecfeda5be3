"""`/api/metrics/query_range` and `/api/metrics/query`: metrics of spans over time, or over one range."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lakerunner.model.errors import BadInput
from lakerunner.model.labels import LabelSet
from lakerunner.model.time import NS_PER_MS
from lakerunner.query.series.results import MatrixResult, QueryResult, VectorResult
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.traceql.labels import decoded_label
from lakerunner.query.traceql.language import compiled
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.api import Api
from lakerunner.serve.params import Params, wants_fresh
from lakerunner.serve.plain_errors import document
from lakerunner.serve.rendering.json import json_text
from lakerunner.serve.service import Question
from lakerunner.serve.tempo.answers import tempo_route
from lakerunner.serve.tempo.exemplars import MAX_EXEMPLARS, UNASKED, add_exemplars, newest_steps
from lakerunner.serve.tempo.search import TRACEQL
from lakerunner.serve.tempo.times import Bounds, parse_duration_ns, read_bounds

#: A range without a step is cut into about as many, each a multiple of five seconds.
_POINTS, _STEP_NS = 240, 5_000_000_000
_LEAST_STEP_NS = 1_000_000


def metric_routes(api: Api) -> list[BaseRoute]:
    async def query_range(request: Request) -> Response:
        params = await Params.of(request)
        bounds = _bounds(params)
        step_ns = _step_ns(params, bounds)
        start_ns = bounds.start_ns // step_ns * step_ns
        end_ns = -(-bounds.end_ns // step_ns) * step_ns
        times = QueryTimes.of_ns(start_ns, end_ns, step_ns // NS_PER_MS)
        return await _run(api, request, params, "tempo_query_range", times, 0, bounds)

    async def query(request: Request) -> Response:
        params = await Params.of(request)
        bounds = _bounds(params)
        width_ms = -(-(bounds.end_ns - bounds.start_ns) // NS_PER_MS)
        times = QueryTimes.of_ns(bounds.end_ns, bounds.end_ns, 0)
        return await _run(api, request, params, "tempo_query", times, width_ms, bounds)

    return [
        tempo_route("/api/metrics/query_range", query_range, ("GET", "POST")),
        tempo_route("/api/metrics/query", query, ("GET", "POST")),
    ]


def _bounds(params: Params) -> Bounds:
    if not params.text("q").strip():
        raise BadInput('invalid parameter "q": it is missing', hint="give a query such as { } | rate()")
    bounds = read_bounds(params)
    if bounds.end_ns <= bounds.start_ns:
        raise BadInput("end must be after start")
    return bounds


def _step_ns(params: Params, bounds: Bounds) -> int:
    range_ns = bounds.end_ns - bounds.start_ns
    if not params.text("step"):
        return max(range_ns // _POINTS // _STEP_NS * _STEP_NS, _STEP_NS)
    step_ns = parse_duration_ns("step", params.text("step"))
    if step_ns < _LEAST_STEP_NS:
        raise BadInput(f'invalid parameter "step": {params.text("step")[:50]} is less than 1ms')
    return step_ns // NS_PER_MS * NS_PER_MS


async def _run(
    api: Api, request: Request, params: Params, kind: str, times: QueryTimes, width_ms: int, bounds: Bounds
) -> Response:
    caller = await api.caller(request)
    text = params.required("q")
    fresh = wants_fresh(request) or params.flag("nocache")
    rewrite = params.flag("rewrite", default=True)
    question = Question(TRACEQL, text, times, lookback_ms=width_ms, fresh=fresh, rewrite=rewrite)

    wanted = _exemplars(params, text)

    def answer(query: RunningQuery) -> Response:
        plan = api.service.compile(question, caller)
        found = api.service.answer_of(plan, question, query)
        series = _series(found.result)
        if series and wanted:
            add_exemplars(api, query, text, bounds, series, wanted)
        elif series and wanted is None and times.step_ms:
            within = newest_steps(series, bounds, times.step_ms * NS_PER_MS)
            add_exemplars(api, query, text, within, series, UNASKED)
        missed = len(found.stats.segments_failed)
        metrics = {
            "inspectedBytes": str(found.stats.read_bytes),
            "inspectedSpans": str(found.stats.rows),
            "totalJobs": found.stats.segments_planned,
            "completedJobs": found.stats.segments_planned - missed,
        }
        body: dict[str, Any] = {"series": series, "metrics": metrics}
        if found.warnings:
            body["message"] = "; ".join(found.warnings)
            body["status"] = "PARTIAL" if missed else "COMPLETE"
        return document(request, json_text(body))

    return await api.in_turn(request, caller, kind, text, answer)


def _exemplars(params: Params, text: str) -> int | None:
    """How many are asked for, by the parameter or by a hint; None if neither says anything."""
    asked = params.text("exemplars")
    hint = compiled(text).hint("exemplars")
    if hint is not None and hint.value is False:
        return 0
    if asked.isascii() and asked.isdigit():
        return min(int(asked[:9]), MAX_EXEMPLARS)
    if hint is not None:
        return min(int(hint.value), MAX_EXEMPLARS) if isinstance(hint.value, int) and hint.value > 1 else MAX_EXEMPLARS
    return None


def _series(result: QueryResult) -> list[dict[str, Any]]:
    value = result.value
    found: list[dict[str, Any]] = []
    if isinstance(value, MatrixResult):
        for series in value.series:
            samples = _samples(series.timestamps_ms, series.values)
            found.append({**_labels(series.labels), "samples": samples, "exemplars": []})
    elif isinstance(value, VectorResult):
        for labels, number in zip(value.labels, value.values.tolist(), strict=True):
            found.append({**_labels(labels), "timestampMs": str(value.time_ms), "value": _number(number)})
    return found


def _labels(labels: LabelSet) -> dict[str, Any]:
    pairs = [{"key": name, "value": decoded_label(value)} for name, value in labels.pairs]
    texts = ", ".join(f'{name}="{value[1:]}"' for name, value in labels.pairs)
    return {"labels": pairs, "promLabels": f"{{{texts}}}"}


def _samples(times_ms: np.ndarray, values: np.ndarray) -> Sequence[dict[str, Any]]:
    pairs = zip(times_ms.tolist(), values.tolist(), strict=True)
    return [{"timestampMs": str(at_ms), "value": _number(value)} for at_ms, value in pairs]


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
