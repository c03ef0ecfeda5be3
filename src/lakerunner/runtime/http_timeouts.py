"""Connections that waste our time are closed: heads that never end, and answers that nobody takes.

A connection costs a descriptor, and an answer that waits for its reader costs its memory. Bodies are the app's to wait
for: it knows how large one may be.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

#: From the first byte of a request, or from the beginning of a connection, to the end of the headers.
HEAD_S = 10.0
#: An answer of which nothing was taken for so long is not wanted any more.
STALL_S = 20.0


class HttpTimeoutProtocol(H11Protocol):
    """uvicorn's protocol with an end to its patience. Heads beyond 64 KiB it refuses by itself."""

    _late: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._late = self.loop.call_later(HEAD_S, self._give_up)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._answering():
            self._late = stopped(self._late)
        elif self._late is None and not self.transport.is_closing():
            self._late = self.loop.call_later(HEAD_S, self._give_up)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = stopped(self._stalled)
        self._watch_writing(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stalled = stopped(self._stalled)

    def connection_lost(self, exc: Exception | None) -> None:
        self._late, self._stalled = stopped(self._late), stopped(self._stalled)
        super().connection_lost(exc)

    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _give_up(self) -> None:
        if not self._answering():
            self.transport.close()

    def _watch_writing(self, waiting_bytes: int) -> None:
        def look() -> None:
            still = self.transport.get_write_buffer_size()
            if still >= waiting_bytes:
                self.transport.abort()
            else:
                self._watch_writing(still)

        self._stalled = self.loop.call_later(STALL_S, look)


def stopped(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """No timer, in place of one."""
    if timer is not None:
        timer.cancel()
    return None
