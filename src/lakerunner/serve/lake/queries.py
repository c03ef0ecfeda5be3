"""`/api/v1/queries`: list and cancel running queries."""

from __future__ import annotations

import re

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lakerunner.serve.api import Api
from lakerunner.serve.dialect import DialectRoute
from lakerunner.serve.errors import OWN
from lakerunner.serve.lanes.slow import SlowLane
from lakerunner.serve.rendering.json import json_response

_QUERY_ID = re.compile(r"[0-9a-f]{32}")


def running_routes(api: Api, lane: SlowLane | None = None) -> list[BaseRoute]:
    """Routes that cover the queries of this process and of the slow lane, if there is one."""

    async def listing(request: Request) -> Response:
        caller = await api.operator(request)
        queries = [query.to_json() for query in api.admission.running.visible_to(caller)]
        if lane is not None:
            status, body = await lane.ask("GET", "/api/v1/queries", caller)
            queries += orjson.loads(body)["queries"] if status == 200 else []
        return json_response({"queries": sorted(queries, key=lambda query: str(query["startedAt"]))})

    async def cancel(request: Request) -> Response:
        caller = await api.operator(request)
        query_id = request.path_params["query_id"]
        if lane is not None and _QUERY_ID.fullmatch(query_id):
            status, body = await lane.ask("DELETE", f"/api/v1/queries/{query_id}", caller)
            if status == 200:
                return json_response(orjson.loads(body))
        return json_response(api.admission.running.cancel(caller, query_id).to_json())

    return [
        DialectRoute("/api/v1/queries", listing, ["GET"], OWN, light=True),
        DialectRoute("/api/v1/queries/{query_id:text}", cancel, ["DELETE"], OWN, light=True),
    ]
