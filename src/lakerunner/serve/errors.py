"""Errors in the format of Lakerunner's own API: one JSON document, one status per error class, never a traceback."""

from __future__ import annotations

from starlette.responses import JSONResponse, Response

from lakerunner.model.errors import BadInput, Conflict, Denied, LakeError, LimitHit, Missing, Unavailable
from lakerunner.serve.admission.running import Cancelled, TimedOut
from lakerunner.serve.admission.turns import TooMany
from lakerunner.serve.dialect import RETRY_AFTER_S, Dialect

_STATUS: dict[type[LakeError], int] = {
    BadInput: 400,
    Denied: 401,
    Missing: 404,
    Conflict: 409,
    LimitHit: 422,
    TooMany: 429,
    TimedOut: 503,
    Cancelled: 503,
    Unavailable: 503,
}


def failure(error: LakeError) -> Response:
    """`{"error": {"code", "message", "hint", "where"}}`, as docs/api.md promises."""
    headers = {"Retry-After": RETRY_AFTER_S} if error.retryable else {}
    if isinstance(error, Denied):
        headers["WWW-Authenticate"] = 'Bearer realm="lakerunner"'
    status = next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), 500)
    return JSONResponse({"error": error_document(error)}, status_code=status, headers=headers)


def error_document(error: LakeError) -> dict[str, object]:
    return {"code": error.code, "message": error.message, "hint": error.hint, "where": error.where}


#: The dialect of Lakerunner's own routes.
OWN = Dialect("lake", failure)
