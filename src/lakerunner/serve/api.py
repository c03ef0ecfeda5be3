"""All routes of the query API."""

from __future__ import annotations

from starlette.routing import BaseRoute

from lakerunner.serve import paths  # noqa: F401  (routes below need its `{…:text}`)
from lakerunner.serve.desk import Desk
from lakerunner.serve.lake.limits import limit_routes
from lakerunner.serve.lake.queries import running_routes
from lakerunner.serve.lake.stream import stream_routes
from lakerunner.serve.lane.slow import SlowLane
from lakerunner.serve.openapi import openapi_routes
from lakerunner.serve.prometheus.exemplars import exemplar_routes
from lakerunner.serve.prometheus.labels import label_routes
from lakerunner.serve.prometheus.language import language_routes
from lakerunner.serve.prometheus.metadata import metadata_routes
from lakerunner.serve.prometheus.query import query_routes
from lakerunner.serve.prometheus.status import health_routes, status_routes


def api_routes(desk: Desk, lane: SlowLane | None = None) -> list[BaseRoute]:
    return [
        *query_routes(desk),
        *label_routes(desk),
        *metadata_routes(desk),
        *exemplar_routes(desk),
        *language_routes(desk),
        *status_routes(desk),
        *health_routes(desk),
        *stream_routes(desk),
        *running_routes(desk, lane),
        *limit_routes(desk),
        *openapi_routes(),
    ]
