"""The routes of Loki's HTTP API."""

from __future__ import annotations

from starlette.routing import BaseRoute

from lakerunner.serve import paths  # noqa: F401  (registers `{…:text}` for route paths)
from lakerunner.serve.api import Api
from lakerunner.serve.loki.deletes import delete_routes
from lakerunner.serve.loki.detected import detected_routes
from lakerunner.serve.loki.labels import label_routes
from lakerunner.serve.loki.language import language_routes
from lakerunner.serve.loki.patterns import pattern_routes
from lakerunner.serve.loki.query import query_routes
from lakerunner.serve.loki.rules import rule_routes
from lakerunner.serve.loki.status import status_routes
from lakerunner.serve.loki.tail import tail_routes
from lakerunner.serve.loki.volume import volume_routes


def loki_routes(api: Api) -> list[BaseRoute]:
    return [
        *query_routes(api),
        *label_routes(api),
        *volume_routes(api),
        *detected_routes(api),
        *pattern_routes(api),
        *tail_routes(api),
        *language_routes(api),
        *status_routes(api),
        *delete_routes(api),
        *rule_routes(api),
    ]
