"""`/loki/api/v1/format_query`: a query in its canonical form."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lakerunner.query.logql.parser import parse
from lakerunner.query.logql.pretty import pretty
from lakerunner.query.syntax.errors import ParseError
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.api import Api
from lakerunner.serve.loki.answers import loki_route, success
from lakerunner.serve.params import Params
from lakerunner.serve.plain_errors import message_of
from lakerunner.serve.rendering.json import json_response, json_text


def language_routes(api: Api) -> list[BaseRoute]:
    async def format_query(request: Request) -> Response:
        params = await Params.of(request)
        caller = await api.caller(request)
        text = params.text("query")

        def answer(_: RunningQuery) -> Response:
            try:
                return success(request, json_text(pretty(parse(text))))
            except ParseError as error:
                # This endpoint alone answers errors as JSON.
                return json_response({"status": "invalid-query", "error": message_of(error)}, 400)

        return await api.in_turn(request, caller, "language", text, answer)

    return [loki_route("/loki/api/v1/format_query", format_query)]
