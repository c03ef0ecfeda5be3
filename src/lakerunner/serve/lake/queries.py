"""`/api/v1/queries`: what runs now, and stopping it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lakerunner.serve.desk import Desk
from lakerunner.serve.json import json_response
from lakerunner.serve.lake.errors import lake_route


def running_routes(desk: Desk) -> list[BaseRoute]:
    async def listing(request: Request) -> Response:
        caller = await desk.door.caller(request)
        queries = sorted(desk.running.visible_to(caller), key=lambda query: query.started_at)
        return json_response({"queries": [query.to_json() for query in queries]})

    async def cancel(request: Request) -> Response:
        caller = await desk.door.caller(request)
        query = desk.running.cancel(caller, request.path_params["query_id"])
        return json_response(query.to_json())

    return [
        lake_route("/api/v1/queries", listing, ["GET"]),
        lake_route("/api/v1/queries/{query_id:text}", cancel, ["DELETE"]),
    ]
