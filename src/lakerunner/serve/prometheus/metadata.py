"""`/api/v1/metadata`: type, help and unit of metrics."""

from __future__ import annotations

from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lakerunner.query.metadata import metadata as metric_metadata
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.api import Api
from lakerunner.serve.params import Params
from lakerunner.serve.prometheus.answers import data_response, prometheus_route


def metadata_routes(api: Api) -> list[BaseRoute]:
    async def metadata(request: Request) -> Response:
        params = await Params.of(request)
        caller = await api.caller(request)
        metric = params.text("metric")
        limit, per_metric = params.count("limit"), params.count("limit_per_metric")

        def answer(query: RunningQuery) -> Response:
            source = api.service.source(query)
            by_metric = metric_metadata(source, *api.service.recent(), metric)
            names = list(by_metric)[: limit or None]
            document = {name: [asdict(each) for each in by_metric[name][: per_metric or None]] for name in names}
            return data_response(request, document, source.stats.warnings())

        return await api.in_turn(request, caller, "metadata", metric, answer)

    return [prometheus_route("/api/v1/metadata", metadata, ["GET"])]
