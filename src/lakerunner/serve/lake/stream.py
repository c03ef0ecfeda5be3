"""`/api/v1/metrics/query`: a range query as server-sent events. Each group of steps is sent once it is complete."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lakerunner.model.errors import Bug
from lakerunner.query.language import StepPlan
from lakerunner.serve.api import Api
from lakerunner.serve.dialect import DialectRoute
from lakerunner.serve.errors import OWN
from lakerunner.serve.lake.events import event_response
from lakerunner.serve.lake.request import read_stream_request
from lakerunner.serve.lake.stream_work import StreamWork
from lakerunner.serve.service import now_ms

#: The language of `/api/v1/metrics/query`.
PROMQL = "promql"


def stream_routes(api: Api) -> list[BaseRoute]:
    async def metrics_query(request: Request) -> Response:
        caller = await api.caller(request)
        stream_request = await read_stream_request(request, PROMQL, round(api.settings.lookback_s * 1000), now_ms())
        # Compile before the stream starts, so that an invalid query is answered with an HTTP error status.
        question = stream_request.question
        plan = await api.in_turn(
            request, caller, "parse", question.text, lambda _: api.service.compile(question, caller)
        )
        if not isinstance(plan, StepPlan):
            raise Bug(f"cannot stream the answer: the plan is a {type(plan).__name__}, not a StepPlan")
        return event_response(api, request, caller, StreamWork(api.service, stream_request, plan))

    return [DialectRoute("/api/v1/metrics/query", metrics_query, ["GET", "POST"], OWN, streams=True)]
