"""Rows of a query as an Arrow IPC stream.

The stream ends with an empty batch whose metadata holds a summary or, if the query failed midway, the error.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from typing import Any, Protocol

import orjson
import pyarrow as pa
import pyarrow.ipc
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from lakerunner.model.errors import Bug, LakeError
from lakerunner.runtime.telemetry import log
from lakerunner.serve.api import Api
from lakerunner.serve.caller import Caller
from lakerunner.serve.errors import error_document
from lakerunner.serve.lake.events import STREAM_HEADERS, Work
from lakerunner.serve.lake.pipe import Pipe
from lakerunner.serve.waiting import disconnected, retrieve_exception

ARROW = "application/vnd.apache.arrow.stream"
#: Keys in the metadata of batches: the summary, in the last one; and the position from which to resume after a batch.
SUMMARY, CURSOR = b"lakerunner.summary", b"lakerunner.cursor"


class ArrowWork(Work, Protocol):
    """What a thread does for a stream of rows."""

    writer: ArrowWriter


def arrow_response(api: Api, request: Request, caller: Caller, work: ArrowWork) -> Response:
    return StreamingResponse(_pieces(api, request, caller, work), media_type=ARROW, headers=STREAM_HEADERS)


async def _pieces(api: Api, request: Request, caller: Caller, work: ArrowWork) -> AsyncIterator[bytes]:
    with api.admission.listed(caller, "rows", work.text, work.timeout_s) as query:
        disconnect = asyncio.ensure_future(disconnected(request))
        disconnect.add_done_callback(lambda task: None if task.cancelled() else query.cancel("its client disconnected"))
        pipe = Pipe(asyncio.get_running_loop())
        done = asyncio.wrap_future(api.admission.submit(query, lambda query: work.run(query, pipe)))
        done.add_done_callback(lambda _: pipe.end())
        done.add_done_callback(retrieve_exception)
        try:
            async for piece in pipe.until_ended(query):
                yield piece
            if (error := done.exception()) is not None:
                raise error
        except LakeError as error:
            yield work.writer.last({"error": error_document(error)})
        except Exception:  # noqa: BLE001  (the status was sent long ago: only the last batch can carry the error)
            log().exception("rows failed", query=query.query_id)
            bug = Bug("cannot answer: internal error; see the server's log")
            yield work.writer.last({"error": error_document(bug)})
        finally:
            query.cancel("its client disconnected")
            disconnect.cancel()


class ArrowWriter:
    """Writes an Arrow IPC stream and returns the bytes of each batch."""

    def __init__(self) -> None:
        self._sink = _Sink()
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None
        self._schema = pa.schema([])

    def batch(self, batch: pa.RecordBatch, metadata: dict[bytes, bytes] | None = None) -> bytes:
        if self._writer is None:
            self._schema = batch.schema
            self._writer = pa.ipc.new_stream(pa.PythonFile(self._sink, "w"), self._schema)
        self._writer.write_batch(batch, custom_metadata=metadata)
        return self._sink.take()

    def last(self, summary: dict[str, object]) -> bytes:
        """Write the last batch, which carries the summary, and end the stream."""
        empty = pa.RecordBatch.from_arrays([pa.array([], each.type) for each in self._schema], schema=self._schema)
        end = self.batch(empty, {SUMMARY: orjson.dumps(summary)})
        assert self._writer is not None
        self._writer.close()
        return end + self._sink.take()


class _Sink(io.RawIOBase):
    """An append-only file whose unread content can be taken at any time."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._written = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        part = bytes(data)
        self._parts.append(part)
        self._written += len(part)
        return len(part)

    def tell(self) -> int:
        return self._written

    def take(self) -> bytes:
        taken, self._parts = b"".join(self._parts), []
        return taken
