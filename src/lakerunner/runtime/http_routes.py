"""Finds routes without parameters by their path at once. Starlette tries all routes one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import iscoroutinefunction

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send


def routed(routes: Sequence[BaseRoute]) -> ASGIApp:
    """An app of the routes."""
    app = Starlette(routes=list(routes))
    # A path with a slash too many does not exist, as with the servers whose APIs are spoken here.
    app.router.redirect_slashes = False
    return _ExactPaths(app, routes)


class _ExactPaths:
    """Requests whose path is that of a route go to it; all others are Starlette's, with its errors."""

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        #: With each route whether its endpoint is awaited, as nearly all are.
        self._routes: dict[tuple[str, str], tuple[Route, bool]] = {}
        before: list[BaseRoute] = []
        for route in routes:
            if isinstance(route, Route) and not route.param_convertors and not _takes(before, route.path):
                for method in route.methods or ():
                    found = route, iscoroutinefunction(route.endpoint)
                    self._routes.setdefault((method, route.path), found)
            else:
                before.append(route)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not scope.get("root_path"):
            found = self._routes.get((scope["method"], scope["path"]))
            if found is not None:
                route, is_awaited = found
                scope["endpoint"], scope["path_params"] = route.endpoint, {}
                if is_awaited:
                    # What Starlette puts around it handles exceptions that none of ours raises.
                    response = await route.endpoint(Request(scope, receive, send))
                    await response(scope, receive, send)
                else:
                    await route.app(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _takes(routes: Sequence[BaseRoute], path: str) -> bool:
    """Whether one of the routes, which come first, may answer the path."""
    return any(not isinstance(route, Route) or route.path_regex.match(path) is not None for route in routes)
