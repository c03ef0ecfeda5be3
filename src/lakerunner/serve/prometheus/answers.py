"""Answers and errors in the format that Prometheus clients parse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.requests import Request
from starlette.responses import Response

from lakerunner.model.errors import BadInput, Denied, LakeError, LimitHit, Missing, Unavailable
from lakerunner.query.series.block import EvaluationError
from lakerunner.query.series.times import TooManySteps
from lakerunner.serve.admission.running import Cancelled, TimedOut
from lakerunner.serve.admission.turns import TooMany
from lakerunner.serve.dialect import RETRY_AFTER_S, Dialect, DialectRoute, Handler
from lakerunner.serve.rendering.compression import compressed
from lakerunner.serve.rendering.json import json_text

#: HTTP status and `errorType` by error class. The first class that matches decides.
_ERRORS: tuple[tuple[type[LakeError], int, str], ...] = (
    (EvaluationError, 422, "execution"),
    (BadInput, 400, "bad_data"),
    (TimedOut, 503, "timeout"),
    (TooManySteps, 400, "bad_data"),
    (LimitHit, 422, "execution"),
    (Cancelled, 503, "canceled"),
    (TooMany, 429, "unavailable"),
    (Unavailable, 503, "unavailable"),
    (Denied, 401, "unauthorized"),
    (Missing, 404, "not_found"),
)
#: The warning that Prometheus gives when `limit` truncates an answer.
TRUNCATED = "results truncated due to limit"


def success(
    request: Request,
    data: bytes,
    warnings: Sequence[str] = (),
    infos: Sequence[str] = (),
    extra: Mapping[str, object] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A successful answer, compressed if the client accepts it. Call it in a thread when the data is large."""
    parts = [b'{"status":"success","data":', data]
    for name, value in (("warnings", warnings), ("infos", infos), *(extra or {}).items()):
        if value:
            parts += [b',"', name.encode(), b'":', json_text(value)]
    body, encoding = compressed(b"".join(parts) + b"}", request.headers.get("accept-encoding", ""))
    all_headers = {"Vary": "Accept-Encoding", **(headers or {})}
    if encoding:
        all_headers["Content-Encoding"] = encoding
    return Response(body, media_type="application/json", headers=all_headers)


def failure(error: LakeError) -> Response:
    status, kind = next(
        ((status, kind) for type_, status, kind in _ERRORS if isinstance(error, type_)), (500, "internal")
    )
    headers = {"Retry-After": RETRY_AFTER_S} if error.retryable else {}
    if isinstance(error, Denied):
        headers["WWW-Authenticate"] = 'Bearer realm="lakerunner"'
    body = json_text({"status": "error", "errorType": kind, "error": str(error)})
    return Response(body, status, headers, media_type="application/json")


PROMETHEUS = Dialect("prometheus", failure)


def prometheus_route(
    path: str, handler: Handler, methods: Sequence[str] = ("GET", "POST"), *, light: bool = False
) -> DialectRoute:
    return DialectRoute(path, handler, methods, PROMETHEUS, light=light)


def data_response(request: Request, document: object, warnings: Sequence[str] = ()) -> Response:
    """A successful answer whose data is a plain document."""
    return success(request, json_text(document), warnings)
