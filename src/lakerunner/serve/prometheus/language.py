"""`/api/v1/format_query` and `/api/v1/parse_query`: the language without data."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lakerunner.query.promql.ast import Expr
from lakerunner.query.promql.parser import parse
from lakerunner.query.promql.printer import pretty
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.params import Params
from lakerunner.serve.prometheus.answers import Handler, data_response, prometheus_route
from lakerunner.serve.prometheus.tree import tree_json
from lakerunner.serve.service import QueryService


def language_routes(service: QueryService) -> list[BaseRoute]:
    return [
        prometheus_route("/api/v1/format_query", _told(service, pretty)),
        prometheus_route("/api/v1/parse_query", _told(service, tree_json)),
    ]


def _told(service: QueryService, tell: Callable[[Expr], object]) -> Handler:
    async def handler(request: Request) -> Response:
        params = await Params.of(request)
        caller = await service.auth.caller(request)
        text = params.required("query")

        def answer(_: RunningQuery) -> Response:
            return data_response(request, tell(parse(text)))

        return await service.turn(request, caller, "language", text, answer)

    return handler
