"""`/loki/api/v1/tail`: entries as they arrive, over a WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import orjson
import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from lakerunner.model.errors import BadInput, LakeError
from lakerunner.query.series.times import QueryTimes
from lakerunner.serve.api import Api
from lakerunner.serve.loki.answers import LOKI, loki_route
from lakerunner.serve.loki.query import LOGQL, wants_categories
from lakerunner.serve.loki.times import QUERY_SINCE_NS, check_entries, read_limit, time_ns
from lakerunner.serve.params import Params
from lakerunner.serve.plain_errors import message_of
from lakerunner.serve.rendering.json import json_text
from lakerunner.serve.rendering.streams import METADATA, PARSED, STREAM, TIME, streams_json
from lakerunner.serve.service import Question, now_ns
from lakerunner.serve.tails.pending import Piece
from lakerunner.serve.tails.tails import Tail, TailRequest

_PATH = "/loki/api/v1/tail"
#: Entries of one message.
_MESSAGE_ENTRIES = 1_000
_MAX_DELAY_S = 5
#: Turns of the event loop that closing a connection takes.
_CLOSING_TURNS = 4
_LOOK_S = 5.0
#: Close codes of RFC 6455: the server ends the connection normally, or because of an error.
_NORMAL, _INTERNAL = 1000, 1011
#: A control frame holds no longer reason.
_REASON_BYTES = 120


def tail_routes(api: Api) -> list[BaseRoute]:
    async def tail(socket: WebSocket) -> None:
        try:
            caller = await api.caller(socket)
            most = api.admission.limits(caller).max_entries
            request = read_tail(Params.in_url(socket.url.query), most)
            async with api.tails.tail(request, caller) as running:
                await socket.accept()
                await _serve(socket, running, categorized=wants_categories(socket))
        except LakeError as error:
            await _refuse(socket, error)

    async def no_upgrade(request: Request) -> Response:
        await api.caller(request)
        raise BadInput("cannot tail over plain HTTP: this endpoint speaks WebSocket", hint="use /api/v1/logs/tail")

    return [WebSocketRoute(_PATH, tail), loki_route(_PATH, no_upgrade, ["GET"], light=True)]


def read_tail(params: Params, most: int) -> TailRequest:
    now = now_ns()
    start_ns = time_ns(params, "start", now - QUERY_SINCE_NS)
    delay_s = params.count("delay_for")
    if delay_s > _MAX_DELAY_S:
        raise BadInput(f"delay_for can't be greater than {_MAX_DELAY_S}")
    question = Question(LOGQL, params.text("query"), QueryTimes.of_ns(start_ns, max(now, start_ns), 0))
    limit = read_limit(params)
    check_entries(limit, most)
    return TailRequest(question, start_ns, limit, float(delay_s))


async def _serve(socket: WebSocket, tail: Tail, *, categorized: bool) -> None:
    """Send entries until the client leaves. A client that reads slowly holds up nothing but its own messages."""
    leaving = asyncio.ensure_future(_left(socket))
    try:
        while not leaving.done():
            taking = asyncio.ensure_future(tail.take(_MESSAGE_ENTRIES, _LOOK_S))
            await asyncio.wait({taking, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not taking.done():
                taking.cancel()
                return
            if (piece := taking.result()) is not None:
                await socket.send_text(tail_message(piece, categorized=categorized).decode())
    except WebSocketDisconnect:
        return
    finally:
        leaving.cancel()


async def _left(socket: WebSocket) -> None:
    with contextlib.suppress(WebSocketDisconnect):
        while True:
            await socket.receive_text()


async def _refuse(socket: WebSocket, error: LakeError) -> None:
    if socket.application_state.name == "CONNECTING":
        await socket.send_denial_response(LOKI.failure(error))
        # uvicorn logs an error if the handler returns before it has seen its own side close the connection.
        for _ in range(_CLOSING_TURNS):
            await asyncio.sleep(0)
        return
    reason = message_of(error).encode()[:_REASON_BYTES].decode(errors="ignore")
    with contextlib.suppress(RuntimeError, WebSocketDisconnect):
        await socket.close(_INTERNAL, reason)


def tail_message(piece: Piece, *, categorized: bool) -> bytes:
    """One message: the entries, and the entries that were dropped because the client reads slowly."""
    flags = b',"encodingFlags":["categorize-labels"]' if categorized else b""
    dropped = b""
    if piece.dropped_entries:
        # Loki names them all. We name the first, and clients of Loki ignore the count.
        named = json_text(_dropped(piece.dropped))
        dropped = b',"dropped_entries":%s,"dropped_entries_total":%d' % (named, piece.dropped_entries)
    return b'{"streams":[%s]%s%s}' % (streams_json(piece.batches, categorized=categorized), flags, dropped)


def _dropped(batches: Sequence[pa.RecordBatch]) -> list[dict[str, object]]:
    return [
        {
            "timestamp": str(row[TIME]),
            "labels": {**orjson.loads(row[STREAM]), **orjson.loads(row[METADATA]), **orjson.loads(row[PARSED])},
        }
        for batch in batches
        for row in _rows(batch)
    ]


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    times = batch.column(TIME).cast(pa.int64())
    at = batch.schema.get_field_index(TIME)
    rows: list[dict[str, Any]] = batch.set_column(at, TIME, times).to_pylist()
    return rows
