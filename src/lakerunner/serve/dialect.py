"""A dialect is how one family of clients is answered. A route says which it speaks and how it behaves."""

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
    #: Renders an error. Every refusal passes through it, wherever it arises.
    failure: Callable[[LakeError], Response]


class DialectRoute(Route):
    """A route whose every error has its dialect's shape.

    `streams`: the answer comes in pieces over a long time, so that it cannot begin again elsewhere.
    `light`: it costs little or concerns this very process, so that it never leaves the API's own process.
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

    async def answer(self, request: Request) -> Response:
        try:
            return await self.handler(request)
        except LakeError as error:
            return self.dialect.failure(error)
        except TooSlow:
            raise
        except Exception:  # noqa: BLE001  (clients parse errors: an unforeseen one must have the shape too)
            log().exception("request failed", path=request.url.path)
            return self.dialect.failure(Bug("cannot answer: an error of ours, noted in the log"))
