"""The routes of Prometheus' HTTP API."""

from __future__ import annotations

from starlette.routing import BaseRoute

from lakerunner.serve import paths  # noqa: F401  (registers `{…:text}` for route paths)
from lakerunner.serve.api import Api
from lakerunner.serve.prometheus.admin import admin_routes
from lakerunner.serve.prometheus.exemplars import exemplar_routes
from lakerunner.serve.prometheus.labels import label_routes
from lakerunner.serve.prometheus.language import language_routes
from lakerunner.serve.prometheus.metadata import metadata_routes
from lakerunner.serve.prometheus.query import query_routes
from lakerunner.serve.prometheus.rules import rule_routes
from lakerunner.serve.prometheus.status import health_routes, status_routes


def prometheus_routes(api: Api) -> list[BaseRoute]:
    return [
        *query_routes(api),
        *label_routes(api),
        *metadata_routes(api),
        *exemplar_routes(api),
        *language_routes(api),
        *status_routes(api),
        *rule_routes(api),
        *admin_routes(api),
        *health_routes(api),
    ]
