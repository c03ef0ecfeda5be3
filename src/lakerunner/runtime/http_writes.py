"""Sends the head of an HTTP answer together with the body: one write is one packet, and wakes the client once."""

from __future__ import annotations

import asyncio

_HEAD = b"HTTP/1."


class HeadWithBody:
    """The transport of one answer. The head waits for what follows, at most until the event loop comes round again."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head: bytes | None = None

    def write(self, data: bytes) -> None:
        if self._head is not None:
            head, self._head = self._head, None
            self._transport.writelines((head, data))
        elif data.startswith(_HEAD):
            # Bodies that begin like this are rare, and lose nothing but time.
            self._head = data
            self._loop.call_soon(self._flush)
        else:
            self._transport.write(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def _flush(self) -> None:
        if self._head is not None:
            head, self._head = self._head, None
            self._transport.write(head)
