"""All routes of the query API, one line per dialect."""

from __future__ import annotations

from starlette.routing import BaseRoute

from lakerunner.serve.api import Api
from lakerunner.serve.lake.routes import lake_routes
from lakerunner.serve.lanes.slow import SlowLane
from lakerunner.serve.lanes.switch import switched
from lakerunner.serve.loki.routes import loki_routes
from lakerunner.serve.openapi.document import openapi_routes
from lakerunner.serve.prometheus.routes import prometheus_routes
from lakerunner.serve.tempo.routes import tempo_routes


def api_routes(api: Api, lane: SlowLane | None = None) -> list[BaseRoute]:
    """All routes. With a slow lane, routes that may be slow are wrapped in the lane switch."""
    routes = [
        *prometheus_routes(api),
        *loki_routes(api),
        *tempo_routes(api),
        *lake_routes(api, lane),
        *openapi_routes(),
    ]
    return routes if lane is None else switched(routes, api, lane)
