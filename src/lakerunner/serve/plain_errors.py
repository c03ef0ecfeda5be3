"""What the dialects of Loki and Tempo share: whole JSON documents as answers, and errors as plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from lakerunner.model.errors import BadInput, Denied, LakeError, LimitHit, Missing, Unavailable
from lakerunner.query.series.block import EvaluationError
from lakerunner.query.syntax.errors import ParseError
from lakerunner.serve.admission.running import Cancelled, TimedOut
from lakerunner.serve.admission.turns import TooMany
from lakerunner.serve.dialect import RETRY_AFTER_S
from lakerunner.serve.rendering.compression import compressed

#: HTTP status by error class. The first class that matches decides. 499 is what these servers answer when a client has
#: left.
_STATUS: tuple[tuple[type[LakeError], int], ...] = (
    (EvaluationError, 400),
    (BadInput, 400),
    (TimedOut, 504),
    (Cancelled, 499),
    (TooMany, 429),
    (Unavailable, 503),
    (Denied, 401),
    (Missing, 404),
)


def document(request: Request, body: bytes, headers: Mapping[str, str] | None = None) -> Response:
    """A whole JSON text, compressed if the client accepts it. Call it in a thread when it is large."""
    body, encoding = compressed(body, request.headers.get("accept-encoding", ""))
    all_headers = {"Vary": "Accept-Encoding", **(headers or {})}
    if encoding:
        all_headers["Content-Encoding"] = encoding
    return Response(body, media_type="application/json", headers=all_headers)


def message_of(error: LakeError) -> str:
    """The error in one line. Clients know where a parse error is from its text."""
    if isinstance(error, ParseError):
        hint = f"; {error.hint}" if error.hint else ""
        return f"parse error at line {error.line}, col {error.column}: {error.reason}{hint}"
    return str(error)


@dataclass(frozen=True, slots=True)
class PlainErrors:
    """Renders errors. `over_limit` is the status of a query that exceeds a limit other than time."""

    over_limit: int

    def status_of(self, error: LakeError) -> int:
        statuses: Sequence[tuple[type[LakeError], int]] = (*_STATUS, (LimitHit, self.over_limit))
        return next((status for kind, status in statuses if isinstance(error, kind)), 500)

    def failure(self, error: LakeError) -> Response:
        headers = {"Retry-After": RETRY_AFTER_S} if error.retryable else {}
        if isinstance(error, Denied):
            headers["WWW-Authenticate"] = 'Bearer realm="lakerunner"'
        text = message_of(error).encode("utf-8", "replace").decode()
        return PlainTextResponse(text + "\n", self.status_of(error), headers)
