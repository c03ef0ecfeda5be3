"""HTTP dialects: the answer format of one family of clients. Each route names its dialect and how it behaves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lakerunner.model.errors import Bug, LakeError
from lakerunner.runtime.telemetry import log
from lakerunner.serve.admission.running import TooSlow

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]
RETRY_AFTER_S = "2"


@dataclass(frozen=True, slots=True)
class Dialect:
    name: str
    #: Renders an error. Every error passes through it, wherever it is raised.
    failure: Callable[[LakeError], Response]


class DialectRoute(Route):
    """A route that renders every error in the format of its dialect.

    `streams`: the answer is sent in pieces over a long time, so it cannot be restarted in the slow lane.
    `light`: the route is cheap or is about this process, so it always runs in the API's own process.
    """

    def __init__(
        self,
        path: str,
        handler: Handler,
        methods: Sequence[str],
        dialect: Dialect,
        *,
        streams: bool = False,
        light: bool = False,
    ) -> None:
        self.handler, self.dialect, self.streams, self.light = handler, dialect, streams, light
        super().__init__(path, self.answer, methods=list(methods))
        # Starlette adds HEAD to GET. A handler that tells methods apart would take it for one that changes something.
        self.methods = set(methods)

    async def answer(self, request: Request) -> Response:
        try:
            return await self.handler(request)
        except LakeError as error:
            return self.dialect.failure(error)
        except TooSlow:
            raise
        except Exception:  # noqa: BLE001  (clients parse errors, so an unexpected one needs the format too)
            log().exception("request failed", path=request.url.path)
            return self.dialect.failure(Bug("cannot answer: internal error; see the server's log"))
