"""`/api/v1/status/…` and health: requests that clients send before they query data."""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Sequence
from datetime import UTC, datetime

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from lakerunner import __version__
from lakerunner.model.errors import LakeError
from lakerunner.query.metadata import cardinality
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.api import Api
from lakerunner.serve.dialect import Handler
from lakerunner.serve.params import Params
from lakerunner.serve.prometheus.answers import data_response, prometheus_route

#: The Prometheus version whose language and API are implemented. Grafana enables features by this version.
PROMETHEUS_VERSION = "3.14.0"
_DEFAULT_TOP = 10

#: There is no `features` member: with it, Grafana would take Lakerunner for a Mimir with a ruler.
BUILD = {
    "version": PROMETHEUS_VERSION,
    "revision": f"lakerunner-{__version__}",
    "branch": "",
    "buildUser": "lakerunner",
    "buildDate": "",
    "goVersion": f"python{platform.python_version()}",
}
#: Constant documents: nothing is scraped, and there are no Prometheus flags.
_FIXED: dict[str, object] = {
    "/api/v1/status/config": {"yaml": ""},
    "/api/v1/status/flags": {},
    "/api/v1/targets": {"activeTargets": [], "droppedTargets": [], "droppedTargetCounts": {}},
    "/api/v1/targets/metadata": [],
    "/api/v1/scrape_pools": {"scrapePools": []},
    "/api/v1/status/walreplay": {"min": 0, "max": 0, "current": 0},
    "/api/v1/alertmanagers": {"activeAlertmanagers": [], "droppedAlertmanagers": []},
}


def _utc_now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


_STARTED = _utc_now()


def _runtime() -> dict[str, object]:
    """The members of Prometheus' document. Those about its runtime and machine are empty: tenants may ask for it."""
    return {
        "startTime": _STARTED,
        "CWD": "",
        "hostname": "",
        "serverTime": _utc_now(),
        "reloadConfigSuccess": True,
        "lastConfigTime": _STARTED,
        "corruptionCount": 0,
        "goroutineCount": threading.active_count(),
        "GOMAXPROCS": os.cpu_count() or 1,
        "GOMEMLIMIT": 0,
        "GOGC": "",
        "GODEBUG": "",
        "storageRetention": "",
    }


#: What somebody sees who opens the address of the API in a browser.
_ROOT = """This is the query API of Lakerunner. It has no pages of its own.

In Grafana, add data sources of type Prometheus, Loki and Tempo with this address.
On the command line: lakerunner query --help
All routes: /api/v1/openapi.json
Whether it can answer: /readyz
"""


def status_routes(api: Api) -> list[BaseRoute]:
    async def buildinfo(request: Request) -> Response:
        await api.caller(request)
        return data_response(request, BUILD)

    async def runtimeinfo(request: Request) -> Response:
        await api.caller(request)
        return data_response(request, _runtime())

    async def tsdb(request: Request) -> Response:
        params = await Params.of(request)
        caller = await api.caller(request)
        limit = min(params.count("limit", _DEFAULT_TOP) or _DEFAULT_TOP, 10_000)

        def answer(query: RunningQuery) -> Response:
            since_ms, now_ms = api.service.recent()
            source = api.service.source(query)
            count = cardinality(source, since_ms, now_ms, limit)
            head = {"numSeries": count.series, "numLabelPairs": count.label_pairs, "chunkCount": 0}
            document = {
                "headStats": {**head, "minTime": since_ms, "maxTime": now_ms},
                "seriesCountByMetricName": _pairs(count.by_metric_name),
                "labelValueCountByLabelName": _pairs(count.values_by_label),
                "memoryInBytesByLabelName": _pairs(count.bytes_by_label),
                "seriesCountByLabelValuePair": _pairs(count.by_label_pair),
            }
            return data_response(request, document, source.stats.warnings())

        return await api.in_turn(request, caller, "tsdb", "", answer)

    return [
        prometheus_route("/api/v1/status/buildinfo", buildinfo, ["GET"], light=True),
        prometheus_route("/api/v1/status/runtimeinfo", runtimeinfo, ["GET"], light=True),
        prometheus_route("/api/v1/status/tsdb", tsdb, ["GET"]),
        *(prometheus_route(path, _fixed(api, document), ["GET"]) for path, document in _FIXED.items()),
    ]


def _fixed(api: Api, document: object) -> Handler:
    async def answer(request: Request) -> Response:
        await api.caller(request)
        return data_response(request, document)

    return answer


def _pairs(pairs: Sequence[tuple[str, int]]) -> list[dict[str, object]]:
    return [{"name": name, "value": value} for name, value in pairs]


def health_routes(api: Api) -> list[BaseRoute]:
    """Health checks at the paths of Prometheus and Loki. Ready means that the lake is reachable."""

    def healthy(_: Request) -> Response:
        return PlainTextResponse("Lakerunner is healthy.\n")

    # A plain function, so that it runs in a thread: the ping blocks.
    def ready(request: Request) -> Response:
        try:
            api.service.lake.ping()
        except LakeError as error:
            return PlainTextResponse(f"Lakerunner is not ready: {error}\n", 503)
        # Loki and Tempo say it in one word.
        return PlainTextResponse("ready\n" if request.url.path == "/ready" else "Lakerunner is ready.\n")

    def root(_: Request) -> Response:
        return PlainTextResponse(_ROOT)

    return [Route("/", root), Route("/-/healthy", healthy), Route("/-/ready", ready), Route("/ready", ready)]
