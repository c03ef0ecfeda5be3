"""Requests that clients send beside queries: a sign of life and the version."""

from __future__ import annotations

import platform

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute

from lakerunner import __version__
from lakerunner.serve.api import Api
from lakerunner.serve.rendering.json import json_response
from lakerunner.serve.tempo.answers import tempo_route

#: The Tempo version whose language and API are implemented. Grafana enables features by it.
TEMPO_VERSION = "3.1.0"
_BUILD = {
    "version": TEMPO_VERSION,
    "revision": f"lakerunner-{__version__}",
    "branch": "",
    "buildUser": "lakerunner",
    "buildDate": "",
    "goVersion": f"python{platform.python_version()}",
}
#: Clients ask with any of them.
_ANY_METHOD = ("GET", "POST", "PUT", "DELETE", "OPTIONS")


def status_routes(api: Api) -> list[BaseRoute]:
    async def echo(request: Request) -> Response:
        await api.caller(request)
        return PlainTextResponse("echo")

    async def buildinfo(request: Request) -> Response:
        await api.caller(request)
        return json_response(_BUILD)

    async def version(request: Request) -> Response:
        await api.caller(request)
        return PlainTextResponse(f"tempo, version {TEMPO_VERSION} (lakerunner {__version__})\n")

    async def services(request: Request) -> Response:
        await api.caller(request)
        return PlainTextResponse("query-api: Running\n")

    async def endpoints(request: Request) -> Response:
        await api.caller(request)
        return PlainTextResponse("/api/v1/openapi.json describes every path\n")

    async def runtime_config(request: Request) -> Response:
        await api.caller(request)
        return PlainTextResponse("{}\n")

    return [
        tempo_route("/api/echo", echo, _ANY_METHOD, light=True),
        tempo_route("/api/status/buildinfo", buildinfo, light=True),
        tempo_route("/status/version", version, light=True),
        tempo_route("/status/services", services, light=True),
        tempo_route("/status/endpoints", endpoints, light=True),
        tempo_route("/status/runtime_config", runtime_config, light=True),
    ]
