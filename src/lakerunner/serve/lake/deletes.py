"""`/api/v1/deletes`: request, list, show and cancel deletions of the caller's org. Needs a key with the scope admin."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lakerunner.model.time import MAX_TIME_NS, NS_PER_MS
from lakerunner.serve.api import Api
from lakerunner.serve.deletions import Deletions, shown
from lakerunner.serve.dialect import DialectRoute
from lakerunner.serve.errors import OWN
from lakerunner.serve.params import Params
from lakerunner.serve.rendering.json import json_response


def delete_routes(api: Api) -> list[BaseRoute]:
    deletions = Deletions(api)

    async def request_or_list(request: Request) -> Response:
        caller = await api.administrator(request)
        params = await Params.of(request)
        if request.method == "GET":
            found = await run_in_threadpool(deletions.all_of, caller, params.text("signal") or None)
            return json_response({"deletes": [shown(each) for each in found]})
        start_ns = params.time_ms("start") * NS_PER_MS
        end_ns = min(params.time_ms("end") * NS_PER_MS, MAX_TIME_NS)
        made = await run_in_threadpool(
            lambda: deletions.request(
                caller, params.required("signal"), params.required("match"), start_ns, end_ns, now=params.flag("now")
            )
        )
        return json_response(shown(made))

    async def one(request: Request) -> Response:
        caller = await api.administrator(request)
        text = request.path_params["deletion_id"]
        if request.method == "DELETE":
            return json_response(shown(await run_in_threadpool(deletions.cancel, caller, text)))
        return json_response(await run_in_threadpool(deletions.one, caller, text))

    return [
        DialectRoute("/api/v1/deletes", request_or_list, ["GET", "POST"], OWN, light=True),
        DialectRoute("/api/v1/deletes/{deletion_id:text}", one, ["GET", "DELETE"], OWN, light=True),
    ]
