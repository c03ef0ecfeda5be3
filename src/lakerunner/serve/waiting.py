"""Waits for a query on the event loop until it ends, is cancelled or times out, or its client disconnects."""

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
#: How long to wait for a query past its timeout. Most queries stop by themselves, with a better error.
_GRACE_S = 0.5
#: Most queries end within this time. Until then, nobody looks whether their clients are there.
_SOON_S = 0.05
#: Key in a request's ASGI scope, set by the lane switch: a long query should restart in the slow lane.
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
    """Run a call in a thread when the org's turn comes. It stops when the client disconnects or on timeout."""
    with admission.listed(caller, kind, text, timeout_s) as query:
        if request.scope.get(HURRY):
            query.hurry()
        future = admission.submit(query, call)
        done = asyncio.wrap_future(future)
        stop_reason = await _wait(request, query, done)
        if stop_reason is None:
            return done.result()
        future.cancel()
        done.add_done_callback(retrieve_exception)
        raise stop_reason


async def _wait(request: Request, query: RunningQuery, done: asyncio.Future[T]) -> LakeError | None:
    """Wait for the future. Returns None when it is done, otherwise why the query stopped.

    A query stops when its client disconnects, it is cancelled, or it times out. The client gets its answer then even
    if the call never checks its deadline; the call's thread ends by itself.
    """
    loop = asyncio.get_running_loop()
    cancelled: asyncio.Future[None] = loop.create_future()
    query.on_cancel(lambda: loop.call_soon_threadsafe(cancelled.cancel))
    gone: asyncio.Task[None] | None = None
    try:
        watched: set[asyncio.Future[Any]] = {done, cancelled}
        await asyncio.wait(watched, timeout=_SOON_S, return_when=asyncio.FIRST_COMPLETED)
        if not done.done() and not cancelled.done():
            gone = asyncio.ensure_future(disconnected(request))
            await asyncio.wait(
                {*watched, gone}, timeout=query.remaining_s + _GRACE_S, return_when=asyncio.FIRST_COMPLETED
            )
    finally:
        if gone is not None and gone.done():
            query.cancel("its client disconnected")
        reason = None if done.done() else query.cancelled or query.timed_out()
        if reason is not None:
            query.cancel("its request has ended")
        if gone is not None:
            gone.cancel()
    return reason


async def disconnected(request: Request) -> None:
    """Return when the client has disconnected. The request's body must have been read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def retrieve_exception(done: asyncio.Future[T]) -> None:
    """Retrieve the exception of an abandoned future, so that asyncio does not log it as never retrieved."""
    if not done.cancelled():
        done.exception()
