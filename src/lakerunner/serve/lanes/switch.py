"""Which lane a request takes. Nobody can tell beforehand what a query costs, so none is guessed at.

Every query begins in the fast lane, beside the others. One that is not done after a moment begins again in the slow
lane, and its org, when it has used up its share of the fast one, goes there at once with all that it asks. An org that
is alone stays in the fast lane: there is nobody to give way to.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from lakerunner.model.errors import LakeError
from lakerunner.serve.admission.turns import TooMany, too_many
from lakerunner.serve.caller import Caller
from lakerunner.serve.lanes.slow import SlowLane
from lakerunner.serve.metrics import API_LANES
from lakerunner.serve.prometheus.answers import failure
from lakerunner.serve.service import QueryService, TooSlow

_STREAMS = "/api/v1/metrics/query"
#: How long a request of a busy org holds its place before it is passed on.
_PAUSE_S = 0.1
#: What a second of a query in the slow lane counts: two that run all the time keep their org there.
_LANE_SHARE = 0.1
#: These cost nothing worth a switch, or tell of this very process.
_OWN = ("/api/v1/queries", "/api/v1/limits", "/api/v1/openapi.json", "/-/", "/ready", "/api/v1/status/buildinfo")


class Forwarded(Response):
    """An answer that comes from the slow lane, piece by piece."""

    def __init__(self, lane: SlowLane, service: QueryService, caller: Caller) -> None:
        super().__init__()
        self._lane = lane
        self._service = service
        self._caller = caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller, usage = self._caller, self._service.usage
        began_s = time.monotonic()
        try:
            await self._lane.forward(scope, receive, send, caller, self._service.limits(caller).timeout_s)
        finally:
            if scope["path"] != _STREAMS:
                # An org that keeps the slow lane busy has no claim on the fast one.
                usage.spent(caller.org_id, _LANE_SHARE * (time.monotonic() - began_s))


class Pace:
    """How fast requests of a busy org are passed on: a few at once, and each holds its place for a moment.

    Even to refuse a query costs the API a millisecond or two, and a client that is refused may ask again at once.
    """

    def __init__(self) -> None:
        self._turns: dict[uuid.UUID, asyncio.Semaphore] = {}
        self._waiting: Counter[uuid.UUID] = Counter()

    async def keep(self, org_id: uuid.UUID, at_once: int, may_wait: int) -> None:
        if self._waiting[org_id] >= may_wait:
            raise too_many(self._waiting[org_id])
        turns = self._turns.setdefault(org_id, asyncio.Semaphore(at_once))
        self._waiting[org_id] += 1
        try:
            async with turns:
                await asyncio.sleep(_PAUSE_S)
        finally:
            self._waiting[org_id] -= 1
            if not self._waiting[org_id]:
                del self._waiting[org_id], self._turns[org_id]


def switched(routes: Sequence[BaseRoute], service: QueryService, lane: SlowLane) -> list[BaseRoute]:
    """The routes, those that may be slow with a switch before them."""
    pace = Pace()
    return [
        _switched(route, service, lane, pace) if isinstance(route, Route) and not route.path.startswith(_OWN) else route
        for route in routes
    ]


def _switched(route: Route, service: QueryService, lane: SlowLane, pace: Pace) -> Route:
    async def endpoint(request: Request) -> Response:
        if not lane.open:
            return await _fast(route, request)
        try:
            caller = await service.auth.caller(request)
        except LakeError:
            # Asked again within, where errors get their shape.
            return await _fast(route, request)
        if not service.usage.asks(caller.org_id):
            return await _fast(route, request)
        if service.usage.is_busy(caller.org_id):
            try:
                await pace.keep(caller.org_id, service.limits(caller).org_queries, service.settings.org_waiting)
            except TooMany as error:
                return failure(error)
        elif route.path != _STREAMS:
            request.scope["lakerunner.hurry"] = True
            try:
                return await _fast(route, request)
            except TooSlow:
                pass
        API_LANES.labels("slow").inc()
        return Forwarded(lane, service, caller)

    return Route(route.path, endpoint, methods=sorted(route.methods or ()))


async def _fast(route: Route, request: Request) -> Response:
    API_LANES.labels("fast").inc()
    response: Response = await route.endpoint(request)
    return response
