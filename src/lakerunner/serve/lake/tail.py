"""`/api/v1/logs/tail`: log entries as they arrive, as server-sent events."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute

from lakerunner.model.errors import LakeError
from lakerunner.model.time import NS_PER_MS
from lakerunner.query.series.times import QueryTimes
from lakerunner.serve.api import Api
from lakerunner.serve.caller import Caller
from lakerunner.serve.dialect import DialectRoute
from lakerunner.serve.errors import OWN, error_document
from lakerunner.serve.lake.events import EVENTS, STREAM_HEADERS
from lakerunner.serve.lake.fields import count_field, names_field, read_fields, text_field, time_field_ms
from lakerunner.serve.lake.frames import frame
from lakerunner.serve.lake.logs import LOGQL
from lakerunner.serve.rendering.log_frames import log_frames, places_in_instants
from lakerunner.serve.rendering.streams import TIME
from lakerunner.serve.service import Question, now_ms
from lakerunner.serve.tails.tails import TailRequest

_KNOWN = frozenset({"q", "s", "limit", "fields"})
_PIECE_ENTRIES = 1_000


def tail_routes(api: Api) -> list[BaseRoute]:
    async def tail(request: Request) -> Response:
        caller = await api.caller(request)
        fields = await read_fields(request, _KNOWN, example='{"q": "{service_name=\\"cart\\"}"}')
        now = now_ms()
        start_ms = time_field_ms("s", fields.get("s", "now"), now, now)
        question = Question(LOGQL, text_field(fields, "q"), QueryTimes(start_ms, max(start_ms, now), 0))
        tail_request = TailRequest(question, start_ms * NS_PER_MS, count_field(fields) or _PIECE_ENTRIES)
        names = names_field(fields)
        frames = _frames(api, tail_request, caller, names)
        # The first frame is awaited here, so that a query that cannot be tailed is answered with an HTTP error status.
        first = await anext(frames)
        return StreamingResponse(_chained(first, frames), media_type=EVENTS, headers=STREAM_HEADERS)

    return [DialectRoute("/api/v1/logs/tail", tail, ["GET", "POST"], OWN, streams=True, light=True)]


async def _chained(first: bytes, rest: AsyncGenerator[bytes]) -> AsyncIterator[bytes]:
    async with contextlib.aclosing(rest):
        yield first
        async for piece in rest:
            yield piece


async def _frames(
    api: Api, request: TailRequest, caller: Caller, names: tuple[str, ...] | None
) -> AsyncGenerator[bytes]:
    """The frames of a tail. The first is a heartbeat, which says that the tail has begun."""
    began_s, status = time.monotonic(), "ok"

    def heartbeat() -> bytes:
        return frame("heartbeat", {"state": "tailing", "elapsedSeconds": round(time.monotonic() - began_s, 3)})

    async with api.tails.tail(request, caller) as tail:
        yield heartbeat()
        sent = 0
        try:
            while True:
                piece = await tail.take(_PIECE_ENTRIES, api.settings.heartbeat_s)
                if piece is None:
                    yield heartbeat()
                    continue
                if piece.dropped_entries:
                    yield frame("dropped", {"entries": piece.dropped_entries})
                for batch in piece.batches:
                    times = batch.column(TIME).cast(pa.int64()).to_numpy(zero_copy_only=False)
                    yield log_frames(batch, b"tail_", places_in_instants(times, None, 0), sent, names)
                    sent += batch.num_rows
        except LakeError as error:
            status = "error"
            yield frame("error", error_document(error))
    yield frame("done", {"status": status})
