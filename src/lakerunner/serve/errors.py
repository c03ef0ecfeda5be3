"""Our errors over HTTP: one shape, one status a class, and never a traceback."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from lakerunner.model.errors import BadInput, Conflict, Denied, LakeError, LimitHit, Missing, Unavailable

_STATUS: dict[type[LakeError], int] = {
    BadInput: 400,
    Denied: 401,
    Missing: 404,
    Conflict: 409,
    LimitHit: 422,
    Unavailable: 503,
}
_RETRY_AFTER_S = "2"


def status_of(error: LakeError) -> int:
    return next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), 500)


def render_error(_: Request, error: Exception) -> Response:
    """`{"error": {"code", "message", "hint", "where"}}`, as docs/api.md promises."""
    assert isinstance(error, LakeError)
    headers = {"Retry-After": _RETRY_AFTER_S} if error.retryable else {}
    if isinstance(error, Denied):
        headers["WWW-Authenticate"] = 'Bearer realm="lakerunner"'
    return JSONResponse({"error": error_document(error)}, status_code=status_of(error), headers=headers)


def error_document(error: LakeError) -> dict[str, object]:
    return {"code": error.code, "message": error.message, "hint": error.hint, "where": error.where}
