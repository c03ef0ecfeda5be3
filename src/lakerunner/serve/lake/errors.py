"""Errors of our own API: the one shape of `serve/errors.py`, whatever went wrong."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lakerunner.model.errors import Bug, LakeError
from lakerunner.runtime.telemetry import log
from lakerunner.serve.admission.running import Cancelled, TimedOut
from lakerunner.serve.admission.turns import TooMany
from lakerunner.serve.errors import render_error

_STATUS: dict[type[LakeError], int] = {TooMany: 429, TimedOut: 503, Cancelled: 503}


def lake_route(path: str, handler: Callable[[Request], Awaitable[Response]], methods: Sequence[str]) -> Route:
    async def endpoint(request: Request) -> Response:
        try:
            return await handler(request)
        except LakeError as error:
            response = render_error(request, error)
            response.status_code = _STATUS.get(type(error), response.status_code)
            return response
        except Exception:  # noqa: BLE001  (clients parse errors: one that nobody foresaw must have the shape too)
            log().exception("request failed", path=request.url.path)
            return render_error(request, Bug("cannot answer: an error of ours, noted in the log"))

    return Route(path, endpoint, methods=list(methods))
