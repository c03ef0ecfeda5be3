"""`/api/v1/rows/{signal}`: rows of logs or traces that satisfy a filter, as an Arrow IPC stream.

The stream ends with an empty batch whose metadata holds a summary or, if the query failed midway, the error.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.ipc
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute

from lakerunner.model.errors import BadInput, Bug, LakeError
from lakerunner.query.language import RowPlan
from lakerunner.query.series.times import QueryTimes
from lakerunner.runtime.telemetry import log
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.api import Api
from lakerunner.serve.caller import Caller
from lakerunner.serve.dialect import DialectRoute
from lakerunner.serve.errors import OWN, error_document
from lakerunner.serve.lake.fields import count_field, flag_field, read_fields, span_field_ms, time_field_ms
from lakerunner.serve.lake.pipe import Pipe
from lakerunner.serve.service import QueryService, Question, now_ms
from lakerunner.serve.waiting import disconnected, retrieve_exception

#: Name of the row filter language.
ROWS = "rows"
MEDIA_TYPE = "application/vnd.apache.arrow.stream"
#: The key of the summary in the metadata of the last batch.
SUMMARY = b"lakerunner.summary"
_HEADERS = {"X-Accel-Buffering": "no", "Cache-Control": "no-store, no-transform"}
_FIELDS = frozenset({"where", "s", "e", "limit", "oldest_first", "fields", "timeout", "partial", "explain"})


@dataclass(frozen=True, slots=True)
class RowRequest:
    question: Question
    timeout_s: float | None
    explain: bool


def row_routes(api: Api) -> list[BaseRoute]:
    async def rows(request: Request) -> Response:
        caller = await api.caller(request)
        fields = await read_fields(request, _FIELDS, example='{"where": "severity_number >= 17", "s": "e-1h"}')
        row_request = _read_request(str(request.path_params["signal"]), fields)
        question = row_request.question
        # Compile before the stream starts, so that an invalid filter is answered with an HTTP error status.
        plan = await api.in_turn(
            request, caller, "parse", question.text, lambda _: api.service.compile(question, caller)
        )
        if not isinstance(plan, RowPlan):
            raise Bug(f"cannot read rows: the plan is a {type(plan).__name__}, not a RowPlan")
        pieces = _pieces(api, request, caller, row_request, plan)
        return StreamingResponse(pieces, media_type=MEDIA_TYPE, headers=_HEADERS)

    return [DialectRoute("/api/v1/rows/{signal}", rows, ["GET", "POST"], OWN, streams=True)]


def _read_request(signal: str, fields: Mapping[str, object]) -> RowRequest:
    now = now_ms()
    end_ms = time_field_ms("e", fields.get("e", "now"), now, now)
    start_ms = time_field_ms("s", fields.get("s", "e-1h"), end_ms, now)
    where, columns = fields.get("where") or "", fields.get("fields") or None
    if not isinstance(where, str):
        raise BadInput("cannot read this request: `where` is not a string", where="where")
    if isinstance(columns, str):
        columns = columns.split(",")
    if columns is not None and not (isinstance(columns, list) and all(isinstance(name, str) for name in columns)):
        raise BadInput("cannot read this request: `fields` is no list of names", where="fields")
    question = Question(
        ROWS,
        where,
        QueryTimes(start_ms, end_ms, 0),
        partial=flag_field(fields, "partial", default=True),
        signal=signal,
        limit=count_field(fields) or None,
        newest_first=not flag_field(fields, "oldest_first"),
        columns=None if columns is None else tuple(columns),
    )
    timeout_s = span_field_ms("timeout", fields["timeout"]) / 1000 if fields.get("timeout") else None
    return RowRequest(question, timeout_s, flag_field(fields, "explain"))


async def _pieces(
    api: Api, request: Request, caller: Caller, row_request: RowRequest, plan: RowPlan
) -> AsyncIterator[bytes]:
    with api.admission.listed(caller, "rows", row_request.question.text, row_request.timeout_s) as query:
        disconnect = asyncio.ensure_future(disconnected(request))
        disconnect.add_done_callback(lambda task: None if task.cancelled() else query.cancel("its client disconnected"))
        pipe = Pipe(asyncio.get_running_loop())
        writer = _Writer()
        work = _work(api.service, row_request, plan, writer, pipe)
        done = asyncio.wrap_future(api.admission.submit(query, work))
        done.add_done_callback(lambda _: pipe.end())
        done.add_done_callback(retrieve_exception)
        try:
            async for piece in pipe.until_ended(query):
                yield piece
            if (error := done.exception()) is not None:
                raise error
        except LakeError as error:
            yield writer.last({"error": error_document(error)})
        except Exception:  # noqa: BLE001  (the status was sent long ago: only the last batch can carry the error)
            log().exception("rows failed", query=query.query_id)
            yield writer.last({"error": error_document(Bug("cannot answer: internal error; see the server's log"))})
        finally:
            query.cancel("its client disconnected")
            disconnect.cancel()


class _Writer:
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


def _work(
    service: QueryService, row_request: RowRequest, plan: RowPlan, writer: _Writer, pipe: Pipe
) -> Callable[[RunningQuery], None]:
    def run(query: RunningQuery) -> None:
        source = service.source(query, partial=row_request.question.partial)
        source.prepare(plan.leaves)
        rows = 0
        try:
            for batch in source.rows(plan):
                pipe.put(writer.batch(batch), query)
                rows += batch.num_rows
        finally:
            service.admission.charge(query, source.stats.worker_cpu_s)
        summary: dict[str, object] = {
            "queryId": query.query_id,
            "results": rows,
            "elapsedSeconds": round(query.elapsed_s, 6),
            "warnings": list(source.stats.warnings()),
            **source.stats.to_json(),
        }
        if row_request.explain:
            summary |= source.stats.explanation()
        pipe.put(writer.last(summary), query)

    return run
