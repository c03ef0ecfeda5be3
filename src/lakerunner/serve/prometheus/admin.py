"""`/api/v1/admin/tsdb/delete_series` and `clean_tombstones`, as Prometheus has them. Needs the scope admin."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lakerunner.model.errors import BadInput
from lakerunner.model.signals import METRICS
from lakerunner.model.time import MAX_TIME_NS, NS_PER_MS
from lakerunner.serve.api import Api
from lakerunner.serve.deletions import Deletions
from lakerunner.serve.params import Params
from lakerunner.serve.prometheus.answers import prometheus_route

_DONE = 204


def admin_routes(api: Api) -> list[BaseRoute]:
    deletions = Deletions(api)

    async def delete_series(request: Request) -> Response:
        """One deletion per selector. Both ends of the time range are included; without them, all time."""
        caller = await api.administrator(request)
        params = await Params.of(request)
        selectors = params.texts("match[]")
        if not selectors:
            raise BadInput('invalid parameter "match[]": no match[] parameter provided')
        start_ns = max(0, params.time_ms("start", 0)) * NS_PER_MS
        end_ns = min((params.time_ms("end", MAX_TIME_NS // NS_PER_MS) + 1) * NS_PER_MS, MAX_TIME_NS)
        for selector in selectors:
            await run_in_threadpool(deletions.request, caller, METRICS.name, selector, start_ns, end_ns)
        return Response(status_code=_DONE)

    async def clean_tombstones(request: Request) -> Response:
        """There are no tombstones: segments are rewritten by themselves."""
        await api.administrator(request)
        return Response(status_code=_DONE)

    return [
        prometheus_route("/api/v1/admin/tsdb/delete_series", delete_series, ["POST", "PUT"], light=True),
        prometheus_route("/api/v1/admin/tsdb/clean_tombstones", clean_tombstones, ["POST", "PUT"], light=True),
    ]
