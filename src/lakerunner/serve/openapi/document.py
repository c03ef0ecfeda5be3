"""`/api/v1/openapi.json`: the description of every route."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from lakerunner import __version__
from lakerunner.serve.openapi import lake, loki, prometheus, schemas, tempo
from lakerunner.serve.openapi.operation import TEXT, Operation, described
from lakerunner.serve.rendering.json import json_response

PATH = "/api/v1/openapi.json"


def _health(path: str, sentence: str) -> Operation:
    return Operation(path, "GET", sentence, schemas.STRING, media=TEXT, public=True)


_OPERATIONS = (
    *prometheus.OPERATIONS,
    *loki.OPERATIONS,
    *tempo.OPERATIONS,
    *lake.OPERATIONS,
    Operation(PATH, "GET", "This document.", {"type": "object"}, public=True),
    _health("/", "What this address is, for people."),
    _health("/-/healthy", "Whether the process is alive."),
    _health("/-/ready", "Whether the lake is reachable."),
    _health("/ready", "Whether the lake is reachable."),
)


def document() -> dict[str, object]:
    paths: dict[str, dict[str, object]] = {}
    for operation in _OPERATIONS:
        for method in operation.methods.split():
            paths.setdefault(operation.path, {})[method.lower()] = described(operation, method)
    schemes = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "basic": {"type": "http", "scheme": "basic", "description": "The key as the password."},
        "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Lakerunner query API",
            "version": __version__,
            "description": "With a key that covers several orgs, name the org in the header X-Scope-OrgID.",
        },
        "paths": paths,
        "components": {"securitySchemes": schemes},
        "security": [{name: []} for name in schemes],
    }


def openapi_routes() -> list[BaseRoute]:
    async def openapi(_: Request) -> Response:
        return json_response(document())

    return [Route(PATH, openapi)]
