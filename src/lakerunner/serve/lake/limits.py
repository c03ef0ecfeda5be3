"""`/api/v1/limits`: the limits of the caller's org, and which of them override the settings."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lakerunner.index.org_limits import LIMIT_NAMES
from lakerunner.model.errors import BadInput
from lakerunner.serve.api import Api
from lakerunner.serve.caller import NO_ORG
from lakerunner.serve.dialect import DialectRoute
from lakerunner.serve.errors import OWN
from lakerunner.serve.rendering.json import json_response


def limit_routes(api: Api) -> list[BaseRoute]:
    async def limits(request: Request) -> Response:
        caller = await api.operator(request)
        if caller.org_id == NO_ORG:
            raise BadInput(
                "cannot tell which org's limits to show: the key covers several orgs",
                hint="name one of them in the header X-Scope-OrgID",
            )
        allowed = api.admission.limits(caller)
        values = {name: getattr(allowed, name) for name in LIMIT_NAMES}
        return json_response({"org": str(caller.org_id), "limits": values, "own": sorted(caller.limits)})

    return [DialectRoute("/api/v1/limits", limits, ["GET"], OWN, light=True)]
