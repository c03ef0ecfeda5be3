"""`/api/traces/{id}` and `/api/v2/traces/{id}`: a whole trace as OTLP, in JSON or protobuf."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lakerunner.model.errors import Missing
from lakerunner.query.traces.otlp import resource_spans_json, to_otlp
from lakerunner.query.traces.trace_id import full_trace_id
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.api import Api
from lakerunner.serve.params import Params
from lakerunner.serve.plain_errors import document
from lakerunner.serve.rendering.json import json_text
from lakerunner.serve.tempo.answers import tempo_route
from lakerunner.serve.tempo.range import read_range
from lakerunner.serve.tempo.span_filter import SpanFilter
from lakerunner.serve.trace_reader import FoundTrace, read_trace

_PROTOBUF = "application/protobuf"
#: Says how far the lake had read when it answered, and whether more of the trace may come.
_WATERMARK, _ARRIVING = "X-Lakerunner-Watermark-Ms", "X-Lakerunner-Trace-Arriving"
_STATUS_FIELD, _STATUS_PARTIAL, _MESSAGE_FIELD = 3, 1, 4


def trace_routes(api: Api) -> list[BaseRoute]:
    async def first(request: Request) -> Response:
        def render(found: FoundTrace, query: RunningQuery) -> Response:
            if not len(found):
                raise Missing(f"cannot find trace {found.trace_id}")
            data = to_otlp(found.spans, flags=False)
            if _wants_protobuf(request):
                return Response(data.SerializeToString(), media_type=_PROTOBUF, headers=_headers(found))
            return document(request, json_text({"batches": resource_spans_json(data)}), _headers(found))

        return await _answer(api, request, render)

    async def second(request: Request) -> Response:
        chosen = SpanFilter.of(await Params.of(request))

        def render(found: FoundTrace, query: RunningQuery) -> Response:
            if chosen is not None:
                found = replace(found, spans=chosen.applied(api.service, query, found))
            return _second(request, found, filtered=chosen is not None)

        return await _answer(api, request, render)

    return [
        tempo_route("/api/traces/{id:text}", first),
        tempo_route("/api/v2/traces/{id:text}", second),
    ]


async def _answer(api: Api, request: Request, render: Callable[[FoundTrace, RunningQuery], Response]) -> Response:
    caller = await api.caller(request)
    params = await Params.of(request)
    trace_id = full_trace_id(request.path_params["id"])
    within = read_range(params)

    def run(query: RunningQuery) -> Response:
        return render(read_trace(api.service, query, trace_id, within), query)

    return await api.in_turn(request, caller, "tempo_trace", trace_id, run)


def _wants_protobuf(request: Request) -> bool:
    return _PROTOBUF in request.headers.get("accept", "")


def _headers(found: FoundTrace) -> dict[str, str]:
    headers = {_ARRIVING: "true"} if found.arriving else {}
    if found.watermark_ms is not None:
        headers[_WATERMARK] = str(found.watermark_ms)
    return headers


def _second(request: Request, found: FoundTrace, *, filtered: bool) -> Response:
    data = to_otlp(found.spans, flags=False)
    missed = list(found.stats.warnings())
    if filtered:
        missed.append("only the spans of the filter are shown")
    if _wants_protobuf(request):
        body = _field(1, data.SerializeToString())
        if missed:
            body += bytes([_STATUS_FIELD << 3, _STATUS_PARTIAL]) + _field(_MESSAGE_FIELD, "; ".join(missed).encode())
        return Response(body, media_type=_PROTOBUF, headers=_headers(found))
    answer: dict[str, object] = {"trace": {"resourceSpans": resource_spans_json(data)} if len(found) else {}}
    answer["metrics"] = {"inspectedBytes": str(found.stats.read_bytes)}
    if missed:
        answer |= {"status": "PARTIAL", "message": "; ".join(missed)}
    return document(request, json_text(answer), _headers(found))


def _field(number: int, payload: bytes) -> bytes:
    """A length-delimited protobuf field."""
    size = len(payload)
    digits = bytearray([number << 3 | 2])
    while size >= 0x80:
        digits.append(size & 0x7F | 0x80)
        size >>= 7
    digits.append(size)
    return bytes(digits) + payload
