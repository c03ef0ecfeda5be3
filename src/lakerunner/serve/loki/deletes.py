"""`/loki/api/v1/delete`: request, list and cancel deletions of log lines, as Loki's compactor does. Scope admin."""

from __future__ import annotations

import time

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lakerunner.index.deletions import Deletion
from lakerunner.model.deletion import DeletionState
from lakerunner.model.errors import BadInput
from lakerunner.model.signals import LOGS
from lakerunner.model.time import MAX_TIME_NS, NS_PER_S
from lakerunner.serve.api import Api
from lakerunner.serve.deletions import Deletions
from lakerunner.serve.loki.answers import loki_route
from lakerunner.serve.loki.times import parse_time_ns
from lakerunner.serve.params import Params
from lakerunner.serve.rendering.json import json_response

_DONE = 204


def delete_routes(api: Api) -> list[BaseRoute]:
    deletions = Deletions(api)

    async def delete(request: Request) -> Response:
        caller = await api.administrator(request)
        params = await Params.of(request)
        if request.method == "GET":
            found = await run_in_threadpool(deletions.all_of, caller, LOGS.name)
            return json_response([_shown(each) for each in found if each.state is not DeletionState.CANCELLED])
        if request.method == "DELETE":
            await run_in_threadpool(deletions.cancel, caller, params.required("request_id"))
            return Response(status_code=_DONE)
        start_ns, end_ns = _bounds(params)
        await run_in_threadpool(
            lambda: deletions.request(caller, LOGS.name, params.required("query"), start_ns, end_ns)
        )
        return Response(status_code=_DONE)

    return [loki_route("/loki/api/v1/delete", delete, ["GET", "POST", "PUT", "DELETE"], light=True)]


def _bounds(params: Params) -> tuple[int, int]:
    """Both ends are included; the end is now unless it is given."""
    start_ns = parse_time_ns("start", params.required("start"))
    end_ns = parse_time_ns("end", params.text("end")) if params.text("end") else time.time_ns()
    if end_ns > time.time_ns() + NS_PER_S:
        raise BadInput("deletes in the future are not allowed")
    return max(0, start_ns), min(end_ns + 1, MAX_TIME_NS)


def _shown(deletion: Deletion) -> dict[str, object]:
    return {
        "request_id": str(deletion.deletion_id),
        "start_time": deletion.start_ns / NS_PER_S,
        "end_time": deletion.end_ns / NS_PER_S,
        "query": deletion.selector,
        "status": "processed" if deletion.state is DeletionState.DONE else "received",
        "created_at": deletion.created_at.timestamp(),
    }
