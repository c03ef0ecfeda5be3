"""`/api/v1/format_query` and `/api/v1/parse_query`: format or parse an expression without reading data."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lakerunner.query.promql.ast import Expr
from lakerunner.query.promql.parser import parse
from lakerunner.query.promql.printer import pretty
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.api import Api
from lakerunner.serve.dialect import Handler
from lakerunner.serve.params import Params
from lakerunner.serve.prometheus.answers import data_response, prometheus_route
from lakerunner.serve.prometheus.tree import tree_json


def language_routes(api: Api) -> list[BaseRoute]:
    return [
        prometheus_route("/api/v1/format_query", _expression_handler(api, pretty)),
        prometheus_route("/api/v1/parse_query", _expression_handler(api, tree_json)),
    ]


def _expression_handler(api: Api, render: Callable[[Expr], object]) -> Handler:
    async def handler(request: Request) -> Response:
        params = await Params.of(request)
        caller = await api.caller(request)
        text = params.required("query")

        def answer(_: RunningQuery) -> Response:
            return data_response(request, render(parse(text)))

        return await api.in_turn(request, caller, "language", text, answer)

    return handler
