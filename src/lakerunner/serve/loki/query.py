"""`/loki/api/v1/query` and `/loki/api/v1/query_range`: instant and range queries."""

from __future__ import annotations

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lakerunner.model.errors import BadInput
from lakerunner.query.language import Plan, RowPlan
from lakerunner.query.series.times import QueryTimes, check_steps
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.api import Api
from lakerunner.serve.loki.answers import loki_route, success
from lakerunner.serve.loki.entries import Thinning, within_bytes
from lakerunner.serve.loki.stats import stats_json
from lakerunner.serve.loki.times import (
    check_entries,
    read_bounds,
    read_interval_ns,
    read_limit,
    read_newest_first,
    read_step_ms,
    time_ns,
)
from lakerunner.serve.params import Params, wants_fresh
from lakerunner.serve.rendering.streams import streams_json
from lakerunner.serve.rendering.values import data_json
from lakerunner.serve.service import Answer, Question, now_ns

#: The language of Loki's API.
LOGQL = "logql"
#: With this flag in its header, labels are shown apart by where they come from.
FLAGS_HEADER, CATEGORIZE = "x-loki-response-encoding-flags", "categorize-labels"
_FLAGGED = b',"encodingFlags":["categorize-labels"]'


def query_routes(api: Api) -> list[BaseRoute]:
    async def query(request: Request) -> Response:
        params = await Params.of(request)
        at_ns = time_ns(params, "time", now_ns())
        return await _run(api, request, params, "loki_query", QueryTimes.of_ns(at_ns, at_ns, 0))

    async def query_range(request: Request) -> Response:
        params = await Params.of(request)
        bounds = read_bounds(params)
        # A range without a length means the entries of that instant.
        end_ns = max(bounds.end_ns, bounds.start_ns + 1)
        times = QueryTimes.of_ns(bounds.start_ns, end_ns, read_step_ms(params, bounds))
        return await _run(api, request, params, "loki_query_range", times)

    return [
        loki_route("/loki/api/v1/query", query),
        loki_route("/loki/api/v1/query_range", query_range),
    ]


async def _run(api: Api, request: Request, params: Params, kind: str, times: QueryTimes) -> Response:
    caller = await api.caller(request)
    text = params.text("query")
    limits = api.admission.limits(caller)
    # As in Loki, also for log queries, which have no use for steps.
    check_steps(times, limits.max_steps)
    limit = read_limit(params)
    interval_ns = read_interval_ns(params) if times.step_ms else 0
    thinning = Thinning(interval_ns, limit, newest_first=read_newest_first(params))
    question = Question(
        LOGQL,
        text,
        times,
        fresh=wants_fresh(request) or params.flag("nocache"),
        limit=thinning.scan_limit,
        newest_first=thinning.newest_first,
        rewrite=params.flag("rewrite", default=True),
    )
    categorized = wants_categories(request)

    def answer(query: RunningQuery) -> Response:
        plan = api.service.compile(question, caller)
        if isinstance(plan, RowPlan):
            # The limit is about entries: a metric query may have any, as Grafana gives it the limit of its panel.
            check_entries(limit, limits.max_entries)
            return _streams(api, request, query, plan, question, thinning, categorized=categorized)
        return _values(request, api.service.answer_of(plan, question, query), query, plan)

    timeout_ms = params.duration_ms("timeout", 0)
    if timeout_ms < 0:
        raise BadInput('invalid parameter "timeout": it is negative')
    return await api.in_turn(request, caller, kind, text, answer, timeout_ms / 1000 or None)


def wants_categories(request: HTTPConnection) -> bool:
    return CATEGORIZE in request.headers.get(FLAGS_HEADER, "").split(",")


def _streams(
    api: Api,
    request: Request,
    query: RunningQuery,
    plan: RowPlan,
    question: Question,
    thinning: Thinning,
    *,
    categorized: bool,
) -> Response:
    if not question.times.step_ms:
        raise BadInput(
            "log queries are not supported as an instant query type, please change your query to a range query type"
        )
    batches, source = api.service.rows(plan, question, query)
    most_bytes = api.admission.limits(query.caller).max_answer_bytes
    entries = within_bytes(thinning.thinned(batches), most_bytes)
    result = streams_json(entries, categorized=categorized)
    stats = stats_json(source.stats, query, sum(batch.num_rows for batch in entries))
    head = b'{"resultType":"streams"%s,"result":[' % (_FLAGGED if categorized else b"")
    return success(request, (head, result, b'],"stats":', stats, b"}"), list(source.stats.warnings()))


def _values(request: Request, answer: Answer, query: RunningQuery, plan: Plan) -> Response:
    data = data_json(answer.result.value)
    stats = stats_json(answer.stats, query, 0)
    return success(request, (data[:-1], b',"stats":', stats, b"}"), answer.warnings)
