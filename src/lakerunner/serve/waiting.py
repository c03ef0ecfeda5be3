"""Waits for a query on the event loop until it ends, is cancelled or times out, or its client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

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
        # The thread is woken when this one is about to sleep: both need the interpreter lock.
        future = admission.submit(query, call, wake=asyncio.get_running_loop().call_soon)
        stop_reason = await _wait(request, query, future)
        if stop_reason is None:
            return future.result()
        future.cancel()
        raise stop_reason


async def _wait(request: Request, query: RunningQuery, future: Future[T]) -> LakeError | None:
    """Wait for the future. Returns None when it is done, otherwise why the query stopped.

    A query stops when its client disconnects, it is cancelled, or it times out. The client gets its answer then even
    if the call never checks its deadline; the call's thread ends by itself.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    gone: asyncio.Task[None] | None = None
    timer = loop.call_later(_SOON_S, lambda: watch())

    def end(_: object = None) -> None:
        if not ended.done():
            ended.set_result(None)

    def end_soon(_: object = None) -> None:
        # In any thread. Without `suppress`, which takes as long as the call.
        try:
            loop.call_soon_threadsafe(end)
        except RuntimeError:
            return  # A loop that is closed has nobody who waits.

    def watch() -> None:
        nonlocal gone, timer
        gone = asyncio.ensure_future(disconnected(request))
        gone.add_done_callback(end)
        timer = loop.call_later(query.remaining_s + _GRACE_S, end)

    query.on_cancel(end_soon)
    future.add_done_callback(end_soon)
    try:
        await ended
    finally:
        timer.cancel()
        if gone is not None and gone.done():
            query.cancel("its client disconnected")
        reason = None if future.done() else query.cancelled or query.timed_out()
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
