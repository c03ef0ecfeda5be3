"""`/api/v1/rules` and `/api/v1/alerts`: the org's recording and alerting rules, their state and their alerts."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lakerunner.serve.api import Api
from lakerunner.serve.params import Params
from lakerunner.serve.prometheus.answers import data_response, prometheus_route
from lakerunner.serve.prometheus.selectors import selectors_in
from lakerunner.serve.rule_groups import RuleFilter, RuleGroups


def rule_routes(api: Api) -> list[BaseRoute]:
    groups = RuleGroups(api)

    async def rules(request: Request) -> Response:
        params = await Params.of(request)
        caller = await api.caller(request)
        wanted = RuleFilter.of(params, selectors=selectors_in(params))
        return data_response(request, await run_in_threadpool(groups.rules, caller, wanted))

    async def alerts(request: Request) -> Response:
        caller = await api.caller(request)
        return data_response(request, await run_in_threadpool(groups.alerts, caller))

    return [
        prometheus_route("/api/v1/rules", rules, ["GET"], light=True),
        prometheus_route("/api/v1/alerts", alerts, ["GET"], light=True),
    ]
