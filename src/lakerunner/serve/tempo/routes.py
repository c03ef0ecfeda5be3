"""The routes of Tempo's HTTP API."""

from __future__ import annotations

from starlette.routing import BaseRoute

from lakerunner.serve import paths  # noqa: F401  (registers `{…:text}` for route paths)
from lakerunner.serve.api import Api
from lakerunner.serve.tempo.metrics import metric_routes
from lakerunner.serve.tempo.search import search_routes
from lakerunner.serve.tempo.status import status_routes
from lakerunner.serve.tempo.tags import tag_routes
from lakerunner.serve.tempo.traces import trace_routes


def tempo_routes(api: Api) -> list[BaseRoute]:
    return [
        *search_routes(api),
        *metric_routes(api),
        *status_routes(api),
        *tag_routes(api),
        *trace_routes(api),
    ]
