"""Server-sent events of a query: the frames that its thread makes, heartbeats, and the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from lakerunner.model.errors import Bug, LakeError
from lakerunner.runtime.telemetry import log
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.api import Api
from lakerunner.serve.caller import Caller
from lakerunner.serve.errors import error_document
from lakerunner.serve.lake.frames import frame
from lakerunner.serve.lake.pipe import Pipe
from lakerunner.serve.waiting import disconnected, retrieve_exception

#: How long past its timeout a query may be silent before the stream ends without it.
_GRACE_S = 1.0
#: Turn off buffering by proxies: nginx obeys the first header, other proxies and caches the second.
STREAM_HEADERS = {"X-Accel-Buffering": "no", "Cache-Control": "no-store, no-transform"}
EVENTS = "text/event-stream"


class Work(Protocol):
    """What a thread does for a stream."""

    @property
    def text(self) -> str: ...

    @property
    def timeout_s(self) -> float | None: ...

    def run(self, query: RunningQuery, pipe: Pipe) -> None:
        """Put frames into the pipe."""
        ...


def event_response(api: Api, request: Request, caller: Caller, work: Work) -> Response:
    return StreamingResponse(_events(api, request, caller, work), media_type=EVENTS, headers=STREAM_HEADERS)


async def _events(api: Api, request: Request, caller: Caller, work: Work) -> AsyncIterator[bytes]:
    with api.admission.listed(caller, "stream", work.text, work.timeout_s) as query:
        disconnect = asyncio.ensure_future(disconnected(request))
        disconnect.add_done_callback(lambda task: None if task.cancelled() else query.cancel("its client disconnected"))
        status = "ok"
        try:
            async for piece in _pieces(api, query, work):
                yield piece
        except LakeError as error:
            status = "error"
            yield frame("error", error_document(error))
        except Exception:  # noqa: BLE001  (the status was sent long ago: only a frame can carry the error)
            log().exception("stream failed", query=query.query_id)
            status = "error"
            yield frame("error", error_document(Bug("cannot answer: internal error; see the server's log")))
        finally:
            # Also runs when the client disconnects while a piece is being sent: the query's thread must then stop.
            query.cancel("its client disconnected")
            disconnect.cancel()
        yield frame("done", {"status": status})


async def _pieces(api: Api, query: RunningQuery, work: Work) -> AsyncIterator[bytes]:
    """Yield the thread's pieces, and heartbeats while there are none. Raises the thread's error at the end."""
    pipe = Pipe(asyncio.get_running_loop())
    done = asyncio.wrap_future(api.admission.submit(query, lambda query: work.run(query, pipe)))
    done.add_done_callback(lambda _: pipe.end())
    done.add_done_callback(retrieve_exception)
    next_heartbeat_s = query.elapsed_s + api.settings.heartbeat_s
    while True:
        piece = await pipe.get(min(0.5, api.settings.heartbeat_s))
        if piece is not None:
            next_heartbeat_s = query.elapsed_s + api.settings.heartbeat_s
            yield piece
        elif pipe.ended:
            break
        elif query.cancelled is not None or query.elapsed_s > query.timeout_s + _GRACE_S:
            done.cancel()
            raise query.cancelled or query.timed_out()
        elif query.elapsed_s > next_heartbeat_s:
            next_heartbeat_s = query.elapsed_s + api.settings.heartbeat_s
            yield frame("heartbeat", {"state": query.state, "elapsedSeconds": round(query.elapsed_s, 3)})
    if not done.cancelled() and (error := done.exception()) is not None:
        raise error
