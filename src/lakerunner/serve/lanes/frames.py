"""ASGI messages over a byte stream. A frame is two lengths, then the message as JSON, then its body."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import orjson

_LENGTHS = struct.Struct(">II")
#: Bodies are sent in pieces of this size, so that neither side holds a second copy of a large body.
PIECE_BYTES = 1 << 20


def frame(message: dict[str, Any], body: bytes = b"") -> bytes:
    head = orjson.dumps(message)
    return _LENGTHS.pack(len(head), len(body)) + head + body


async def read_frame(reader: asyncio.StreamReader) -> tuple[dict[str, Any], bytes] | None:
    """Read the next message and its body; None when the other side has closed the connection."""
    try:
        head_bytes, body_bytes = _LENGTHS.unpack(await reader.readexactly(_LENGTHS.size))
        message: dict[str, Any] = orjson.loads(await reader.readexactly(head_bytes))
        return message, await reader.readexactly(body_bytes)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
