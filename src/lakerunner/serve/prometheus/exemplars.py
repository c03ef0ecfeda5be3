"""`/api/v1/query_exemplars`: exemplars, which link samples of a query's selectors to traces."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lakerunner.model.errors import BadInput
from lakerunner.model.labels import LabelSet
from lakerunner.query import metadata
from lakerunner.query.metadata import Exemplar
from lakerunner.query.promql.parser import parse
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.api import Api
from lakerunner.serve.params import Params
from lakerunner.serve.prometheus.answers import prometheus_route, success
from lakerunner.serve.prometheus.selectors import selectors_of
from lakerunner.serve.rendering.json import labels_json
from lakerunner.serve.rendering.numbers import time_text, value_text


def exemplar_routes(api: Api) -> list[BaseRoute]:
    async def exemplars(request: Request) -> Response:
        params = await Params.of(request)
        caller = await api.caller(request)
        text = params.required("query")
        start_ms, end_ms = params.time_ms("start"), params.time_ms("end")
        if end_ms < start_ms:
            raise BadInput('invalid parameter "end": end timestamp must not be before start timestamp')

        def answer(query: RunningQuery) -> Response:
            selectors = selectors_of(parse(text))
            source = api.service.source(query)
            matching = metadata.exemplars(source, selectors, start_ms, end_ms)
            return success(request, _data(matching), source.stats.warnings())

        return await api.in_turn(request, caller, "query_exemplars", text, answer)

    return [prometheus_route("/api/v1/query_exemplars", exemplars)]


def _data(exemplars: Sequence[Exemplar]) -> bytes:
    by_series: dict[LabelSet, list[Exemplar]] = {}
    for exemplar in exemplars:
        by_series.setdefault(exemplar.series, []).append(exemplar)
    entries = [
        b'{"seriesLabels":%s,"exemplars":[%s]}' % (labels_json(series), b",".join(map(_exemplar, group)))
        for series, group in by_series.items()
    ]
    return b"[%s]" % b",".join(entries)


def _exemplar(exemplar: Exemplar) -> bytes:
    value, time = value_text(exemplar.value).encode(), time_text(exemplar.timestamp_ms)
    return b'{"labels":%s,"value":"%s","timestamp":%s}' % (labels_json(exemplar.labels), value, time)
