"""Requests reach the route that Starlette would have chosen."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp

from lakerunner.runtime.http_routes import routed


def _route(path: str, name: str, methods: list[str] | None = None) -> Route:
    async def handler(request: Request) -> Response:
        return PlainTextResponse(f"{name} {request.method} {request.path_params} {request.query_params}")

    return Route(path, handler, methods=methods)


ROUTES: list[BaseRoute] = [
    _route("/a", "get a"),
    _route("/a", "post a", ["POST"]),
    _route("/b/{name}", "any b"),
    _route("/b/c", "hidden by the one above"),
    _route("/d/e", "before the mount"),
    Mount("/d", routes=[_route("/e", "hidden"), _route("/f", "mounted")]),
    _route("/d/f", "hidden by the mount"),
    _route("/ä", "not ascii"),
]


async def _asked(app: ASGIApp, method: str, path: str) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client:
        return await client.request(method, path)


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "OPTIONS"])
@pytest.mark.parametrize(
    "path", ["/a", "/a/", "/a?x=1", "/A", "//a", "/b/c", "/b/x", "/d/e", "/d/f", "/%61", "/%C3%A4", "/", "/none"]
)
def test_the_same_as_starlette(method: str, path: str) -> None:
    plain = Starlette(routes=ROUTES)
    plain.router.redirect_slashes = False
    expected, got = (asyncio.run(_asked(app, method, path)) for app in (plain, routed(ROUTES)))
    assert (got.status_code, got.text) == (expected.status_code, expected.text)
    assert got.headers == expected.headers
