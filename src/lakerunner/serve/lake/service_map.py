"""`/api/v1/servicemap`: services and the requests between them, from the metrics that ingest derives of spans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lakerunner.model.errors import BadInput
from lakerunner.model.labels import LabelSet
from lakerunner.query.series.results import VectorResult
from lakerunner.query.series.times import QueryTimes
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.api import Api
from lakerunner.serve.dialect import DialectRoute
from lakerunner.serve.errors import OWN
from lakerunner.serve.params import Params
from lakerunner.serve.rendering.json import json_text
from lakerunner.serve.service import Question, now_ms

_BY = "client, server, connection_type"
_GRAPH = "traces_service_graph_request"
_QUANTILES = (0.5, 0.9, 0.99)
_DEFAULT_MS = 3_600_000
#: What a node is that is only ever called this way. Any other one is a service.
_TYPES = {"database": "database", "virtual_node": "external"}


def service_map_routes(api: Api) -> list[BaseRoute]:
    async def service_map(request: Request) -> Response:
        caller = await api.caller(request)
        params = await Params.of(request)
        end_ms = params.time_ms("end", now_ms())
        start_ms = params.time_ms("start", end_ms - _DEFAULT_MS)
        if start_ms >= end_ms:
            raise BadInput("cannot draw a service map: start must be before end")

        def run(query: RunningQuery) -> Response:
            return Response(json_text(_document(api, query, start_ms, end_ms)), media_type="application/json")

        return await api.in_turn(request, caller, "servicemap", f"{start_ms}-{end_ms}", run)

    return [DialectRoute("/api/v1/servicemap", service_map, ["GET"], OWN)]


def _document(api: Api, query: RunningQuery, start_ms: int, end_ms: int) -> dict[str, Any]:
    span_ms = end_ms - start_ms
    warnings: list[str] = []

    def asked(text: str) -> Mapping[LabelSet, float]:
        """Samples are deltas, so their sum over the range is the exact number of requests."""
        times = QueryTimes(end_ms, end_ms, 0)
        answer = api.service.answer(Question("promql", text, times), query)
        warnings.extend(each for each in answer.warnings if each not in warnings)
        value = answer.result.value
        assert isinstance(value, VectorResult)
        return dict(zip(value.labels, value.values.tolist(), strict=True))

    window = f"[{span_ms}ms]"
    calls = asked(f"sum by ({_BY}) (sum_over_time({_GRAPH}_total{window}))")
    failed = asked(f"sum by ({_BY}) (sum_over_time({_GRAPH}_failed_total{window}))")
    quantiles = {
        q: asked(f"histogram_quantile({q}, sum by ({_BY}) (sum_over_time({_GRAPH}_server_seconds{window})))")
        for q in _QUANTILES
    }
    edges = []
    nodes: dict[str, dict[str, Any]] = {}
    for labels, count in sorted(calls.items(), key=lambda each: each[0].pairs):
        client, server, kind = labels.get("client"), labels.get("server"), labels.get("connection_type")
        errors = failed.get(labels, 0.0)
        edges.append(
            {
                "client": client,
                "server": server,
                "connectionType": kind,
                "calls": count,
                "failed": errors,
                "rate": count / (span_ms / 1000),
                "errorRatio": errors / count if count else 0.0,
                **{f"p{round(q * 100)}Seconds": found.get(labels) for q, found in quantiles.items()},
            }
        )
        for name, side in ((client, "out"), (server, "in")):
            role = _TYPES.get(kind, "service") if side == "in" else "service"
            node = nodes.setdefault(name, {"name": name, "type": role, "in": 0.0, "out": 0.0, "failed": 0.0})
            node[side] += count
            if side == "in":
                node["failed"] += errors
            if role == "service" and node["type"] == "external":
                node["type"] = "service"
            elif role == "database":
                node["type"] = "database"
    listed = [nodes[name] for name in sorted(nodes)]
    return {"startMs": start_ms, "endMs": end_ms, "nodes": listed, "edges": edges, "warnings": warnings}
