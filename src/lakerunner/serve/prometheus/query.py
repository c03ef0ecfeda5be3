"""`/api/v1/query` and `/api/v1/query_range`: instant and range queries."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lakerunner.model.errors import BadInput
from lakerunner.query.promql.language import PromQl
from lakerunner.query.series.results import MatrixResult, QueryResult, VectorResult
from lakerunner.query.series.times import QueryTimes
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.api import Api
from lakerunner.serve.params import Params, parse_tier_s, wants_fresh
from lakerunner.serve.prometheus.answers import TRUNCATED, prometheus_route, success
from lakerunner.serve.rendering.values import data_json
from lakerunner.serve.service import Answer, Question, now_ms

CACHE_HEADER = "X-Lakerunner-Cache"
QUERY_HEADER = "X-Lakerunner-Query-Id"


def query_routes(api: Api) -> list[BaseRoute]:
    async def query(request: Request) -> Response:
        params = await Params.of(request)
        time_ms = params.time_ms("time", now_ms())
        return await _run(api, request, params, "query", QueryTimes(time_ms, time_ms, 0))

    async def query_range(request: Request) -> Response:
        params = await Params.of(request)
        start_ms, end_ms = params.time_ms("start"), params.time_ms("end")
        if end_ms < start_ms:
            raise BadInput('invalid parameter "end": end timestamp must not be before start time')
        step_ms = params.duration_ms("step")
        if step_ms <= 0:
            raise BadInput(
                'invalid parameter "step": zero or negative query resolution step widths are not accepted. '
                "Try a positive integer"
            )
        return await _run(api, request, params, "query_range", QueryTimes(start_ms, end_ms, step_ms))

    return [prometheus_route("/api/v1/query", query), prometheus_route("/api/v1/query_range", query_range)]


async def _run(api: Api, request: Request, params: Params, kind: str, times: QueryTimes) -> Response:
    caller = await api.caller(request)
    text = params.required("query")
    # As in Prometheus, a look-back of zero means the default.
    lookback_ms = params.duration_ms("lookback_delta", 0) or round(api.settings.lookback_s * 1000)
    timeout_ms = params.duration_ms("timeout", 0)
    limit = params.count("limit")
    partial = params.flag("partial", default=True)
    fresh = wants_fresh(request) or params.flag("nocache")
    asked = params.text("max_tier")
    max_tier_s = parse_tier_s("max_tier", asked) if asked else None
    approximate = params.flag("approximate") if params.text("approximate") else None
    rewrite = params.flag("rewrite", default=True)
    question = Question(PromQl.name, text, times, lookback_ms, fresh, partial, max_tier_s, approximate, rewrite=rewrite)
    explain, stats = params.flag("explain"), bool(params.text("stats"))

    def answer(query: RunningQuery) -> Response:
        return _render(request, api.service.answer(question, query), limit, explain=explain, stats=stats)

    return await api.in_turn(request, caller, kind, text, answer, timeout_ms / 1000 or None)


def _render(request: Request, answer: Answer, limit: int, *, explain: bool, stats: bool) -> Response:
    result, truncated = _limited(answer.result, limit)
    data = data_json(result.value)
    if stats:
        data = data[:-1] + b',"stats":%s}' % _stats(answer)
    extra: dict[str, object] = {}
    if explain:
        extra["explain"] = explanation(answer)
    warnings = [*answer.warnings, *([TRUNCATED] if truncated else [])]
    headers = {CACHE_HEADER: answer.cache, QUERY_HEADER: answer.query_id}
    return success(request, data, warnings, result.infos, extra, headers)


def explanation(answer: Answer) -> dict[str, object]:
    """The `explain` member, which `explain=1` adds to an answer."""
    return {
        **answer.stats.to_json(),
        "cache": answer.cache,
        "samples": answer.result.samples,
        "elapsedSeconds": round(answer.elapsed_s, 6),
        **answer.explanation(),
    }


def _stats(answer: Answer) -> bytes:
    """The `stats` member, which `stats=all` adds. It has only the figures of Prometheus that apply here."""
    return (
        b'{"timings":{"evalTotalTime":%f,"execTotalTime":%f},"samples":{"totalQueryableSamples":%d,"peakSamples":%d}}'
        % (answer.elapsed_s, answer.elapsed_s, answer.result.samples, answer.result.samples)
    )


def _limited(result: QueryResult, limit: int) -> tuple[QueryResult, bool]:
    """The first `limit` series, and whether some were cut. A limit of 0 means all."""
    value = result.value
    if limit and isinstance(value, VectorResult) and len(value.labels) > limit:
        cut = VectorResult(value.time_ms, value.labels[:limit], value.values[:limit], value.histograms[:limit])
        return QueryResult(cut, result.warnings, result.infos, result.samples), True
    if limit and isinstance(value, MatrixResult) and len(value.series) > limit:
        return QueryResult(MatrixResult(value.series[:limit]), result.warnings, result.infos, result.samples), True
    return result, False
