"""`/api/v1/rows/{signal}`: rows of logs or traces that satisfy a filter, as an Arrow IPC stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lakerunner.model.errors import BadInput, Bug
from lakerunner.query.language import RowPlan
from lakerunner.query.series.times import QueryTimes
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.api import Api
from lakerunner.serve.dialect import DialectRoute
from lakerunner.serve.errors import OWN
from lakerunner.serve.lake.arrow_stream import ArrowWriter, arrow_response
from lakerunner.serve.lake.fields import count_field, flag_field, names_field, read_fields, span_field_ms, time_field_ms
from lakerunner.serve.lake.pipe import Pipe
from lakerunner.serve.service import QueryService, Question, now_ms

#: Name of the row filter language.
ROWS = "rows"
_FIELDS = frozenset({"where", "s", "e", "limit", "oldest_first", "fields", "timeout", "partial", "explain"})


def row_routes(api: Api) -> list[BaseRoute]:
    async def rows(request: Request) -> Response:
        caller = await api.caller(request)
        fields = await read_fields(request, _FIELDS, example='{"where": "severity_number >= 17", "s": "e-1h"}')
        question = _question(str(request.path_params["signal"]), fields)
        # Compile before the stream starts, so that an invalid filter is answered with an HTTP error status.
        plan = await api.in_turn(
            request, caller, "parse", question.text, lambda _: api.service.compile(question, caller)
        )
        if not isinstance(plan, RowPlan):
            raise Bug(f"cannot read rows: the plan is a {type(plan).__name__}, not a RowPlan")
        timeout_s = span_field_ms("timeout", fields["timeout"]) / 1000 if fields.get("timeout") else None
        work = RowWork(api.service, question, plan, timeout_s, explain=flag_field(fields, "explain"))
        return arrow_response(api, request, caller, work)

    return [DialectRoute("/api/v1/rows/{signal}", rows, ["GET", "POST"], OWN, streams=True)]


def _question(signal: str, fields: Mapping[str, object]) -> Question:
    now = now_ms()
    end_ms = time_field_ms("e", fields.get("e", "now"), now, now)
    start_ms = time_field_ms("s", fields.get("s", "e-1h"), end_ms, now)
    where, columns = fields.get("where") or "", names_field(fields)
    if not isinstance(where, str):
        raise BadInput("cannot read this request: `where` is not a string", where="where")
    return Question(
        ROWS,
        where,
        QueryTimes(start_ms, end_ms, 0),
        partial=flag_field(fields, "partial", default=True),
        signal=signal,
        limit=count_field(fields) or None,
        newest_first=not flag_field(fields, "oldest_first"),
        columns=columns,
    )


@dataclass
class RowWork:
    """One stream of rows: puts the batches of a plan into the pipe."""

    service: QueryService
    question: Question
    plan: RowPlan
    timeout_s: float | None
    explain: bool
    writer: ArrowWriter = field(default_factory=ArrowWriter)

    @property
    def text(self) -> str:
        return self.question.text

    def run(self, query: RunningQuery, pipe: Pipe) -> None:
        batches, source = self.service.rows(self.plan, self.question, query)
        rows = 0
        for batch in batches:
            pipe.put(self.writer.batch(batch), query)
            rows += batch.num_rows
        summary: dict[str, object] = {
            "queryId": query.query_id,
            "results": rows,
            "elapsedSeconds": round(query.elapsed_s, 6),
            "warnings": list(source.stats.warnings()),
            **source.stats.to_json(),
        }
        if self.explain:
            summary |= source.stats.explanation()
        pipe.put(self.writer.last(summary), query)
