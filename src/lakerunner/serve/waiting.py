"""Waiting for a query on the event loop: until it ends, its client leaves, it is cancelled, or its time is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from starlette.requests import Request

from lakerunner.model.errors import LakeError
from lakerunner.serve.admission.admission import Admission
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.caller import Caller

T = TypeVar("T")
#: How long past its time a query is waited for: mostly it stops by itself, with a better error.
_GRACE_S = 0.5
#: Set in a request's scope by the lane switch: a query that takes long should begin again in the slow lane.
HURRY = "lakerunner.hurry"


async def in_turn(
    admission: Admission,
    request: Request,
    caller: Caller,
    kind: str,
    text: str,
    call: Callable[[RunningQuery], T],
    timeout_s: float | None = None,
) -> T:
    """Run a call in a thread when the org's turn comes. It ends when the client leaves or its time is over."""
    with admission.listed(caller, kind, text, timeout_s) as query:
        if request.scope.get(HURRY):
            query.hurry()
        future = admission.submit(query, call)
        done = asyncio.wrap_future(future)
        stopped = await _stopped(request, query, done)
        if stopped is None:
            return done.result()
        future.cancel()
        done.add_done_callback(observed)
        raise stopped


async def _stopped(request: Request, query: RunningQuery, done: asyncio.Future[T]) -> LakeError | None:
    """Wait for the future. Returns what stopped the query instead: its client left, it was cancelled, or it timed out.

    A call that does not check the clock is answered for all the same; its thread ends by itself.
    """
    loop = asyncio.get_running_loop()
    cancelled = asyncio.Event()
    query.on_cancel(lambda: loop.call_soon_threadsafe(cancelled.set))
    gone = asyncio.ensure_future(disconnected(request))
    cancel = asyncio.ensure_future(cancelled.wait())
    watched: set[asyncio.Future[Any]] = {done, gone, cancel}
    try:
        await asyncio.wait(watched, timeout=query.remaining_s + _GRACE_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if gone.done():
            query.cancel("its client went away")
        reason = None if done.done() else query.cancelled or query.timed_out()
        if reason is not None:
            query.cancel("nobody waits for it any more")
        gone.cancel()
        cancel.cancel()
    return reason


async def disconnected(request: Request) -> None:
    """Return when the client has gone. The request's body must have been read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def observed(done: asyncio.Future[T]) -> None:
    """Retrieve the error of a future that nobody waits for, so that asyncio does not report it."""
    if not done.cancelled():
        done.exception()
