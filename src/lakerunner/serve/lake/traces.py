"""`/api/v1/traces/{id}` and `/api/v1/traces/{id}/logs`: an assembled trace, and the log records that carry its id."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lakerunner.model.errors import Missing
from lakerunner.model.time import MAX_TIME_NS, NS_PER_MS, NS_PER_S
from lakerunner.query.language import QueryOptions, RowPlan
from lakerunner.query.languages import language
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.traces.assembly import Assembly, assemble
from lakerunner.query.traces.trace_id import full_trace_id
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.api import Api
from lakerunner.serve.dialect import DialectRoute
from lakerunner.serve.errors import OWN
from lakerunner.serve.params import Params
from lakerunner.serve.rendering.json import json_text
from lakerunner.serve.service import Question
from lakerunner.serve.trace_reader import FoundTrace, read_trace

#: Log records of a trace are looked for this long before and after its spans.
_AROUND_NS = 3_600 * NS_PER_S
_MAX_LOGS = 5_000
_LOG_FIELDS = ("timestamp", "service_name", "severity", "message", "span_id")


def trace_routes(api: Api) -> list[BaseRoute]:
    async def trace(request: Request) -> Response:
        caller = await api.caller(request)
        trace_id = full_trace_id(request.path_params["id"])
        adjust = (await Params.of(request)).flag("adjust")

        def run(query: RunningQuery) -> Response:
            found = _found(api, query, trace_id)
            assembled = assemble(found.spans, adjust=adjust)
            return Response(json_text(_document(found, assembled, adjusted=adjust)), media_type="application/json")

        return await api.in_turn(request, caller, "trace", trace_id, run)

    async def logs(request: Request) -> Response:
        caller = await api.caller(request)
        trace_id = full_trace_id(request.path_params["id"])

        def run(query: RunningQuery) -> Response:
            found = _found(api, query, trace_id)
            return Response(json_text(_logs(api, query, found)), media_type="application/json")

        return await api.in_turn(request, caller, "trace_logs", trace_id, run)

    return [
        DialectRoute("/api/v1/traces/{id}", trace, ["GET"], OWN),
        DialectRoute("/api/v1/traces/{id}/logs", logs, ["GET"], OWN),
    ]


def _found(api: Api, query: RunningQuery, trace_id: str) -> FoundTrace:
    found = read_trace(api.service, query, trace_id)
    if not len(found):
        raise Missing(f"cannot find trace {trace_id}", hint="its spans may not have arrived yet, or have expired")
    return found


def _document(found: FoundTrace, assembled: Assembly, *, adjusted: bool) -> dict[str, Any]:
    columns = ("span_id", "parent_span_id", "name", "kind", "status_code", "status_message", "service_name")
    values = {name: found.spans.column(name).to_pylist() for name in columns}
    spans = []
    for row in assembled.order.tolist():
        span = {name: values[name][row] for name in columns if values[name][row] is not None}
        marks = {
            "root": assembled.is_root,
            "orphan": assembled.is_orphan,
            "cycle": assembled.is_cut,
            "shared": assembled.is_shared,
            "critical": assembled.is_critical,
        }
        spans.append(
            {
                **span,
                "depth": int(assembled.depth[row]),
                "startNs": str(int(assembled.start_ns[row])),
                "durationNs": int(assembled.duration_ns[row]),
                "selfNs": int(assembled.self_ns[row]),
                "skewNs": int(assembled.skew_ns[row]),
                **{name: True for name, mask in marks.items() if mask[row]},
            }
        )
    return {
        "traceId": found.trace_id,
        "spans": spans,
        "arriving": found.arriving,
        "watermarkMs": found.watermark_ms,
        "skewed": bool(assembled.skew_ns.any()),
        "adjusted": adjusted,
        "warnings": list(found.stats.warnings()),
    }


def _logs(api: Api, query: RunningQuery, found: FoundTrace) -> dict[str, Any]:
    starts = found.spans.column("start_timestamp").cast("int64").to_numpy()
    ends = starts + found.spans.column("duration_ns").to_numpy()
    first = max(0, int(starts.min()) - _AROUND_NS)
    last = min(MAX_TIME_NS, int(ends.max()) + _AROUND_NS)
    times = QueryTimes(first // NS_PER_MS, last // NS_PER_MS + 1, 0)
    options = QueryOptions(signal="logs", limit=_MAX_LOGS + 1, newest_first=False, columns=_LOG_FIELDS)
    plan = language("rows").compile(f'trace_id = "{found.trace_id}"', times, options)
    assert isinstance(plan, RowPlan)
    batches, source = api.service.rows(plan, Question("rows", "", times, signal="logs"), query)
    rows: list[dict[str, Any]] = []
    for batch in batches:
        at = batch.column("timestamp").cast("int64").to_pylist()
        for number, row in enumerate(batch.select(_LOG_FIELDS[1:]).to_pylist()):
            rows.append({"timeNs": str(at[number]), **{key: value for key, value in row.items() if value is not None}})
    warnings = list(source.stats.warnings())
    if len(rows) > _MAX_LOGS:
        warnings.append(f"only the first {_MAX_LOGS:,} log records are shown")
    return {"traceId": found.trace_id, "logs": rows[:_MAX_LOGS], "warnings": warnings}
