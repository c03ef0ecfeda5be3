"""Chooses the lane of each request. A query's cost is not known in advance, so nothing is estimated.

Every query starts in the fast lane. A query that is not done after a moment restarts in the slow lane. Once an org has
used up its share of the fast lane, all of its queries go straight to the slow lane. While only one org is active, all
of its queries stay in the fast lane: there is no other org to protect.
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

#: How long a request of a busy org occupies its slot before it is forwarded.
_PAUSE_S = 0.1
#: Usage charged per second of a query in the slow lane. Two queries that run all the time keep their org there.
_LANE_SHARE = 0.1
_FAST = API_LANES.labels("fast")


class Forwarded(Response):
    """A response that is forwarded from the slow lane, piece by piece."""

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
                # An org that keeps the slow lane busy must not get a share of the fast lane as well.
                admission.usage.spent(caller.org_id, _LANE_SHARE * (time.monotonic() - began_s))
        if not answered:
            await self._route.dialect.failure(broken())(scope, receive, send)


class Pace:
    """Limits how fast requests of a busy org are forwarded: a few at once, each occupying a slot for a moment.

    Even refusing a query costs the API a millisecond or two, and a refused client may retry at once.
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
    """The routes, with those that may be slow wrapped in a lane switch."""
    pace = Pace()
    return [
        _switched(route, api, lane, pace) if isinstance(route, DialectRoute) and not route.light else route
        for route in routes
    ]


def _switched(route: DialectRoute, api: Api, lane: SlowLane, pace: Pace) -> DialectRoute:
    async def handler(request: Request) -> Response:
        caller, usage = await api.caller(request), api.admission.usage
        if not usage.asks(caller.org_id):
            return await _fast(route, request)
        if not lane.open:
            # The first query of a second org: until the lane is open, all share the fast lane.
            lane.start()
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
    _FAST.inc()
    return await route.answer(request)
