"""Requests that clients send beside queries: the version and limits."""

from __future__ import annotations

import platform

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lakerunner import __version__
from lakerunner.serve.api import Api
from lakerunner.serve.dialect import Handler
from lakerunner.serve.loki.answers import loki_route
from lakerunner.serve.rendering.json import json_response

#: The Loki version whose language and API are implemented. Grafana enables features by it.
LOKI_VERSION = "3.7.8"
_BUILD = {
    "version": LOKI_VERSION,
    "revision": f"lakerunner-{__version__}",
    "branch": "",
    "buildUser": "lakerunner",
    "buildDate": "",
    "goVersion": f"python{platform.python_version()}",
}


def status_routes(api: Api) -> list[BaseRoute]:
    async def drilldown_limits(request: Request) -> Response:
        caller = await api.caller(request)
        allowed = api.admission.limits(caller)
        limits = {
            "discover_log_levels": True,
            "discover_service_name": ["service_name"],
            "max_entries_limit_per_query": allowed.max_entries,
            "max_query_bytes_read": f"{round(allowed.max_bytes)}B",
            "max_query_length": f"{round(allowed.max_range_s)}s",
            "max_query_lookback": "0s",
            "max_query_range": "0s",
            "max_query_series": allowed.max_series,
            "metric_aggregation_enabled": False,
            # Patterns are answered for any time.
            "pattern_persistence_enabled": True,
            "query_timeout": f"{round(allowed.timeout_s * 1000)}ms",
            "retention_period": "0s",
            "volume_enabled": True,
            "volume_max_series": allowed.max_series,
        }
        return json_response({"limits": limits, "pattern_ingester_enabled": True, "version": LOKI_VERSION})

    return [
        loki_route("/loki/api/v1/status/buildinfo", _fixed(api, _BUILD), ["GET"], light=True),
        loki_route("/loki/api/v1/drilldown-limits", drilldown_limits, ["GET"], light=True),
    ]


def _fixed(api: Api, document: object) -> Handler:
    async def answer(request: Request) -> Response:
        await api.caller(request)
        return json_response(document)

    return answer
