"""`/api/v1/limits`: what the caller's org may ask for, and which of it is its own."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lakerunner.index.org_limits import LIMIT_NAMES
from lakerunner.serve.json import json_response
from lakerunner.serve.lake.errors import lake_route
from lakerunner.serve.service import QueryService


def limit_routes(service: QueryService) -> list[BaseRoute]:
    async def limits(request: Request) -> Response:
        caller = await service.auth.caller(request)
        allowed = service.limits(caller)
        values = {name: getattr(allowed, name) for name in LIMIT_NAMES}
        return json_response({"org": str(caller.org_id), "limits": values, "own": sorted(caller.limits)})

    return [lake_route("/api/v1/limits", limits, ["GET"])]
