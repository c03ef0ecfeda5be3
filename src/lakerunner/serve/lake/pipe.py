"""A bounded pipe from the thread that computes an answer to the event loop that sends it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

from lakerunner.serve.admission.running import RunningQuery

#: Maximum number of unsent pieces. A slow client makes the evaluation wait, until the query times out.
_PIECES = 16
#: How often a thread that waits for its client checks whether the query was cancelled or timed out.
_LOOK_S = 0.25
#: How long past its timeout a query may be silent before the stream ends without it.
_GRACE_S = 1.0


class Pipe:
    """Passes pieces of bytes from a thread to the event loop, a bounded number at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._free = threading.Semaphore(_PIECES)
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.ended = False

    def put(self, piece: bytes, query: RunningQuery) -> None:
        """Add a piece; called by the thread. Waits while too many are unsent; raises if the query must stop."""
        while not self._free.acquire(timeout=_LOOK_S):
            query.check()
        self._loop.call_soon_threadsafe(self._pieces.put_nowait, piece)

    def end(self) -> None:
        """Mark the end of the pieces; called on the event loop."""
        self._pieces.put_nowait(None)

    async def get(self, timeout_s: float) -> bytes | None:
        """The next piece; None on timeout or at the end."""
        try:
            piece = await asyncio.wait_for(self._pieces.get(), timeout_s)
        except TimeoutError:
            return None
        if piece is None:
            self.ended = True
        else:
            self._free.release()
        return piece

    async def until_ended(self, query: RunningQuery) -> AsyncIterator[bytes]:
        """Yield all pieces. Raises if the query is cancelled or times out while no piece arrives."""
        while True:
            piece = await self.get(_LOOK_S)
            if piece is not None:
                yield piece
            elif self.ended:
                return
            elif query.cancelled is not None or query.elapsed_s > query.timeout_s + _GRACE_S:
                raise query.cancelled or query.timed_out()
