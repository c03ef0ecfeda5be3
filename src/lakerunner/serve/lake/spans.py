"""`/api/v1/spans/query`: a TraceQL search as server-sent events, one per trace, newest first, each when it is found."""

from __future__ import annotations

from dataclasses import dataclass

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lakerunner.model.errors import BadInput, Bug
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.traceql.language import SearchPlan
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.api import Api
from lakerunner.serve.caller import Caller
from lakerunner.serve.cut_traces import CutTraces
from lakerunner.serve.dialect import DialectRoute
from lakerunner.serve.errors import OWN
from lakerunner.serve.lake.events import event_response
from lakerunner.serve.lake.fields import count_field, flag_field, read_fields, span_field_ms, text_field, time_field_ms
from lakerunner.serve.lake.frames import frame
from lakerunner.serve.lake.pipe import Pipe
from lakerunner.serve.service import Question, now_ms

TRACEQL = "traceql"
_KNOWN = frozenset({"q", "s", "e", "limit", "timeout", "partial", "summary"})
_LIMIT = 20


@dataclass(frozen=True, slots=True)
class SpanEvents:
    """Sends the traces of a search, then a summary that says whether the search was complete."""

    api: Api
    question: Question
    caller: Caller
    timeout_s: float | None
    summary: bool

    @property
    def text(self) -> str:
        return self.question.text

    def run(self, query: RunningQuery, pipe: Pipe) -> None:
        plan = _plan(self.api, self.question, self.caller)
        batches, source = self.api.service.rows(plan, self.question, query)
        sent = 0
        cut = CutTraces(self.api.service.settings.trace_reach_s)
        for batch in batches:
            cut.add(batch)
            for document in batch.column("document").to_pylist():
                pipe.put(frame("result", orjson.loads(document)), query)
                sent += 1
        if self.summary:
            stats = source.stats
            missed = cut.warnings()
            complete = stats.complete and not missed
            about = {"traces": sent, "complete": complete, "warnings": [*stats.warnings(), *missed]}
            pipe.put(frame("summary", about), query)


def span_routes(api: Api) -> list[BaseRoute]:
    async def spans_query(request: Request) -> Response:
        caller = await api.caller(request)
        fields = await read_fields(request, _KNOWN, example='{"q": "{ status = error }", "s": "e-1h"}')
        now = now_ms()
        end_ms = time_field_ms("e", fields.get("e", "now"), now, now)
        start_ms = time_field_ms("s", fields.get("s", "e-1h"), end_ms, now)
        if end_ms <= start_ms:
            raise BadInput("cannot search: `e` is not after `s`", where="e")
        question = Question(
            TRACEQL,
            text_field(fields, "q"),
            QueryTimes(start_ms, end_ms, 0),
            partial=flag_field(fields, "partial", default=True),
            limit=count_field(fields) or _LIMIT,
        )
        # Compile before the stream starts, so that an invalid query is answered with an HTTP error status.
        await api.in_turn(request, caller, "parse", question.text, lambda _: _plan(api, question, caller))
        timeout_s = span_field_ms("timeout", fields["timeout"]) / 1000 if fields.get("timeout") else None
        summary = flag_field(fields, "summary", default=True)
        return event_response(api, request, caller, SpanEvents(api, question, caller, timeout_s, summary))

    return [DialectRoute("/api/v1/spans/query", spans_query, ["GET", "POST"], OWN, streams=True)]


def _plan(api: Api, question: Question, caller: Caller) -> SearchPlan:
    plan = api.service.compile(question, caller)
    if not isinstance(plan, SearchPlan):
        raise Bug(f"cannot search: the plan is a {type(plan).__name__}")
    return plan
