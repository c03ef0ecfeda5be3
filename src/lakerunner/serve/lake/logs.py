"""`/api/v1/logs/query`: a LogQL query as server-sent events, or its log entries as an Arrow IPC stream."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lakerunner.model.errors import BadInput
from lakerunner.model.time import NS_PER_MS
from lakerunner.query.language import RowPlan, StepPlan
from lakerunner.query.series.times import QueryTimes
from lakerunner.serve.api import Api
from lakerunner.serve.caller import Caller
from lakerunner.serve.dialect import DialectRoute
from lakerunner.serve.errors import OWN
from lakerunner.serve.lake.arrow_stream import ARROW, arrow_response
from lakerunner.serve.lake.cursor import Cursor
from lakerunner.serve.lake.events import event_response
from lakerunner.serve.lake.fields import (
    count_field,
    flag_field,
    names_field,
    read_fields,
    span_field_ms,
    text_field,
    time_field_ms,
)
from lakerunner.serve.lake.log_cursor import LogCursor
from lakerunner.serve.lake.log_work import LogBatches, LogEvents, LogRequest
from lakerunner.serve.lake.request import StreamRequest, default_step_ms
from lakerunner.serve.lake.stream_work import StreamWork
from lakerunner.serve.params import wants_fresh
from lakerunner.serve.service import Question, now_ms

#: The language of logs.
LOGQL = "logql"
_KNOWN = frozenset(
    {
        "q",
        "s",
        "e",
        "step",
        "limit",
        "timeout",
        "fields",
        "nocache",
        "partial",
        "explain",
        "summary",
        "reverse",
        "rewrite",
    }
)


@dataclass(frozen=True, slots=True)
class _Asked:
    question: Question
    limit: int
    timeout_s: float | None
    explain: bool
    summary: bool
    fields: tuple[str, ...] | None
    last_id: str


def log_routes(api: Api) -> list[BaseRoute]:
    async def logs_query(request: Request) -> Response:
        caller = await api.caller(request)
        asked = await _read(request)
        # Compile before the stream starts, so that an invalid query is answered with an HTTP error status.
        plan = await api.in_turn(
            request, caller, "parse", asked.question.text, lambda _: api.service.compile(asked.question, caller)
        )
        if isinstance(plan, RowPlan):
            return _entries(api, request, caller, asked)
        if isinstance(plan, StepPlan):
            return _values(api, request, caller, asked, plan)
        raise BadInput("cannot stream the value of an expression that reads nothing", hint="ask /loki/api/v1/query")

    return [DialectRoute("/api/v1/logs/query", logs_query, ["GET", "POST"], OWN, streams=True)]


async def _read(request: Request) -> _Asked:
    fields = await read_fields(request, _KNOWN, example='{"q": "{service_name=\\"cart\\"}", "s": "e-1h"}')
    now = now_ms()
    end_ms = time_field_ms("e", fields.get("e", "now"), now, now)
    start_ms = time_field_ms("s", fields.get("s", "e-1h"), end_ms, now)
    if end_ms < start_ms:
        raise BadInput("cannot run the query: `e` is before `s`", where="e")
    step = fields.get("step")
    step_ms = default_step_ms(end_ms - start_ms) if step in (None, "") else span_field_ms("step", step)
    limit = count_field(fields)
    question = Question(
        LOGQL,
        text_field(fields, "q"),
        _resumed(request, QueryTimes(start_ms, end_ms, step_ms)),
        fresh=flag_field(fields, "nocache") or wants_fresh(request),
        partial=flag_field(fields, "partial", default=True),
        limit=limit or None,
        newest_first=flag_field(fields, "reverse", default=True),
        rewrite=flag_field(fields, "rewrite", default=True),
    )
    return _Asked(
        question,
        limit,
        span_field_ms("timeout", fields["timeout"]) / 1000 if fields.get("timeout") else None,
        flag_field(fields, "explain"),
        flag_field(fields, "summary", default=True),
        names_field(fields),
        _last_id(request),
    )


def _last_id(request: Request) -> str:
    return request.headers.get("last-event-id", "").strip()


def _resumed(request: Request, times: QueryTimes) -> QueryTimes:
    """The times of the stream that is resumed: `now` has moved on since it began."""
    last_id = _last_id(request)
    if not last_id:
        return times
    if last_id.startswith("log_"):
        log = LogCursor.parse(last_id)
        return QueryTimes(log.start_ns // NS_PER_MS, log.end_ns // NS_PER_MS, times.step_ms)
    cursor = Cursor.parse(last_id)
    return QueryTimes(cursor.start_ms, cursor.end_ms, cursor.step_ms)


def _entries(api: Api, request: Request, caller: Caller, asked: _Asked) -> Response:
    cursor = LogCursor.parse(asked.last_id) if asked.last_id else None
    log_request = LogRequest(
        asked.question, asked.limit, asked.timeout_s, asked.explain, asked.summary, asked.fields, cursor
    )
    if ARROW in request.headers.get("accept", ""):
        return arrow_response(api, request, caller, LogBatches(api.service, log_request, caller))
    return event_response(api, request, caller, LogEvents(api.service, log_request, caller))


def _values(api: Api, request: Request, caller: Caller, asked: _Asked, plan: StepPlan) -> Response:
    cursor = Cursor.parse(asked.last_id) if asked.last_id else None
    # The limit is about entries. Values are as many as the query has.
    stream_request = StreamRequest(asked.question, 0, asked.timeout_s, asked.explain, asked.summary, cursor)
    return event_response(api, request, caller, StreamWork(api.service, stream_request, plan))
