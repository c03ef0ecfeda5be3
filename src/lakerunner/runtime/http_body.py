"""Reads the body of a request within limits of size and time."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect, Request

from lakerunner.model.errors import BadInput, LimitHit

#: How long a client may take to send a body.
MAX_BODY_S = 10.0
#: Key in a request's ASGI scope, set by the HTTP protocol: the whole body has been received.
BODY_RECEIVED = "lakerunner.body_received"


async def read_body(request: Request, max_bytes: int, hint: str) -> bytes:
    """Return the whole body. LimitHit: it is too large. BadInput: it did not arrive in time, or not at all."""
    try:
        if request.scope.get(BODY_RECEIVED):
            # As that of nearly every query. A timer would cost more than reading it.
            return await _read(request, max_bytes, hint)
        async with asyncio.timeout(MAX_BODY_S):
            return await _read(request, max_bytes, hint)
    except TimeoutError:
        raise BadInput(
            f"cannot read the body: it did not arrive within {MAX_BODY_S:g} s", hint="send the whole body at once"
        ) from None
    except ClientDisconnect:
        raise BadInput("cannot read the body: the client disconnected") from None


async def _read(request: Request, max_bytes: int, hint: str) -> bytes:
    parts, size_bytes = [], 0
    async for part in request.stream():
        size_bytes += len(part)
        if size_bytes > max_bytes:
            raise LimitHit(f"cannot read a body of more than {max_bytes:,} bytes", hint=hint)
        parts.append(part)
    return b"".join(parts)
