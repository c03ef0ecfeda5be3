"""All routes of the query API."""

from __future__ import annotations

from starlette.routing import BaseRoute

from lakerunner.serve import paths  # noqa: F401  (routes below need its `{…:text}`)
from lakerunner.serve.lake.limits import limit_routes
from lakerunner.serve.lake.queries import running_routes
from lakerunner.serve.lake.stream import stream_routes
from lakerunner.serve.lanes.slow import SlowLane
from lakerunner.serve.openapi import openapi_routes
from lakerunner.serve.prometheus.exemplars import exemplar_routes
from lakerunner.serve.prometheus.labels import label_routes
from lakerunner.serve.prometheus.language import language_routes
from lakerunner.serve.prometheus.metadata import metadata_routes
from lakerunner.serve.prometheus.query import query_routes
from lakerunner.serve.prometheus.status import health_routes, status_routes
from lakerunner.serve.service import QueryService


def api_routes(service: QueryService, lane: SlowLane | None = None) -> list[BaseRoute]:
    return [
        *query_routes(service),
        *label_routes(service),
        *metadata_routes(service),
        *exemplar_routes(service),
        *language_routes(service),
        *status_routes(service),
        *health_routes(service),
        *stream_routes(service),
        *running_routes(service, lane),
        *limit_routes(service),
        *openapi_routes(),
    ]
