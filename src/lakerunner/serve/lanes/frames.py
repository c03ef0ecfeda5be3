"""ASGI messages over a stream of bytes: a length, the message as JSON, a length, its body."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import orjson

_LENGTHS = struct.Struct(">II")
#: Bodies are cut into pieces of this size, so that neither side holds a large one twice.
PIECE_BYTES = 1 << 20


def frame(message: dict[str, Any], body: bytes = b"") -> bytes:
    head = orjson.dumps(message)
    return _LENGTHS.pack(len(head), len(body)) + head + body


async def read_frame(reader: asyncio.StreamReader) -> tuple[dict[str, Any], bytes] | None:
    """The next message; None when the other side has gone."""
    try:
        head, body = _LENGTHS.unpack(await reader.readexactly(_LENGTHS.size))
        message: dict[str, Any] = orjson.loads(await reader.readexactly(head))
        return message, await reader.readexactly(body)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
