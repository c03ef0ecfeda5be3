"""Which lane a request takes. What a query costs is not known beforehand, so nothing is estimated.

Every query begins in the fast lane. One that is not done after a moment begins again in the slow lane. An org that has
used up its share of the fast lane goes to the slow one at once with everything it asks. An org that is alone stays in
the fast lane: there is nobody to give way to.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from lakerunner.serve.admission.running import TooSlow
from lakerunner.serve.admission.turns import too_many
from lakerunner.serve.api import Api
from lakerunner.serve.caller import Caller
from lakerunner.serve.dialect import DialectRoute
from lakerunner.serve.lanes.slow import SlowLane, broken
from lakerunner.serve.metrics import API_LANES
from lakerunner.serve.waiting import HURRY

#: How long a request of a busy org holds its place before it is passed on.
_PAUSE_S = 0.1
#: What a second of a query in the slow lane counts: two that run all the time keep their org there.
_LANE_SHARE = 0.1


class Forwarded(Response):
    """An answer that comes from the slow lane, piece by piece."""

    def __init__(self, lane: SlowLane, api: Api, caller: Caller, route: DialectRoute) -> None:
        super().__init__()
        self._lane = lane
        self._api = api
        self._caller = caller
        self._route = route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller, admission = self._caller, self._api.admission
        began_s = time.monotonic()
        try:
            answered = await self._lane.forward(scope, receive, send, caller, admission.limits(caller).timeout_s)
        finally:
            if not self._route.streams:
                # An org that keeps the slow lane busy has no claim on the fast one.
                admission.usage.spent(caller.org_id, _LANE_SHARE * (time.monotonic() - began_s))
        if not answered:
            await self._route.dialect.failure(broken())(scope, receive, send)


class Pace:
    """How fast requests of a busy org are passed on: a few at once, and each holds its place for a moment.

    Even refusing a query costs the API a millisecond or two, and a refused client may ask again at once.
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


def switched(routes: Sequence[BaseRoute], api: Api, lane: SlowLane) -> list[BaseRoute]:
    """The routes, those that may be slow with a switch before them."""
    pace = Pace()
    return [
        _switched(route, api, lane, pace) if isinstance(route, DialectRoute) and not route.light else route
        for route in routes
    ]


def _switched(route: DialectRoute, api: Api, lane: SlowLane, pace: Pace) -> DialectRoute:
    async def handler(request: Request) -> Response:
        if not lane.open:
            return await _fast(route, request)
        caller, usage = await api.caller(request), api.admission.usage
        if not usage.asks(caller.org_id):
            return await _fast(route, request)
        if usage.is_busy(caller.org_id):
            await pace.keep(caller.org_id, api.admission.limits(caller).org_queries, api.settings.org_waiting)
        elif not route.streams:
            request.scope[HURRY] = True
            try:
                return await _fast(route, request)
            except TooSlow:
                pass
        API_LANES.labels("slow").inc()
        return Forwarded(lane, api, caller, route)

    return DialectRoute(route.path, handler, sorted(route.methods or ()), route.dialect, streams=route.streams)


async def _fast(route: DialectRoute, request: Request) -> Response:
    API_LANES.labels("fast").inc()
    return await route.answer(request)
