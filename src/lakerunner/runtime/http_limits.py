"""Limits of HTTP connections: for headers that never end, and for answers that the client does not read.

A connection costs a file descriptor, and an unread answer costs its memory. The app itself limits request bodies,
because it knows how large one may be.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from lakerunner.runtime.http_body import BODY_RECEIVED
from lakerunner.runtime.http_writes import HeadWithBody

#: The most bytes that a request may have before the end of its headers.
HEAD_BYTES = 64 << 10
#: The longest time from the first byte of a request, or the start of a connection, to the end of the headers.
HEAD_S = 10.0
#: The connection is closed when the client reads nothing of an answer for this long.
STALL_S = 20.0


class LimitedHttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits."""

    _head_bytes = 0
    _in_head = False
    _upgraded = False
    _late: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._late = self.loop.call_later(HEAD_S, self._give_up)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._upgraded:
            return
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response(f"cannot read a request with more than {HEAD_BYTES:,} bytes of headers")
        if self._answering():
            self._late = _cancelled(self._late)
        elif self._late is None and not self.transport.is_closing():
            self._late = self.loop.call_later(HEAD_S, self._give_up)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0

    def on_headers_complete(self) -> None:
        self._in_head = False
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before:
            self.cycle.transport = HeadWithBody(self.transport, self.loop)  # type: ignore[assignment]

    def on_message_complete(self) -> None:
        self.scope[BODY_RECEIVED] = True  # type: ignore[literal-required]
        super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        # From here on, another protocol has the connection.
        self._upgraded = True
        self._late, self._stalled = _cancelled(self._late), _cancelled(self._stalled)
        super().handle_websocket_upgrade()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = _cancelled(self._stalled)
        self._watch_writing(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stalled = _cancelled(self._stalled)

    def connection_lost(self, exc: Exception | None) -> None:
        self._late, self._stalled = _cancelled(self._late), _cancelled(self._stalled)
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


def _cancelled(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """Cancel the timer and return None to replace it."""
    if timer is not None:
        timer.cancel()
    return None
