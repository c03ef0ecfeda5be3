"""The webhook for S3 events. It answers with 2xx only after the events are in the ledger."""

from __future__ import annotations

import uuid

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from lakerunner.index.api_keys import Scope, authenticate, require, secret_in
from lakerunner.index.database import Database
from lakerunner.intake.event_s3 import parse_s3
from lakerunner.intake.record import Recorder
from lakerunner.model.errors import Denied, LakeError, LimitHit
from lakerunner.runtime.crash import crash_point
from lakerunner.runtime.settings import Settings
from lakerunner.runtime.telemetry import log

PATH = "/api/v1/intake/s3"
_SOURCE = "http"
_RETRY_AFTER_S = 5


def webhook_routes(settings: Settings, database: Database, recorder: Recorder) -> list[BaseRoute]:
    """Return the route `POST /api/v1/intake/s3`, which needs an API key with the scope ingest."""

    def handle(body: bytes, headers: Headers) -> Response:
        only_orgs = _orgs(database, headers) if settings.auth.required else None
        # A connection test with an empty body is not an event.
        recorded = recorder.record_events(
            [parse_s3(body, always_encoded=False)] if body.strip() else [], _SOURCE, only_orgs
        )
        crash_point("intake_after_record")
        for error in recorded.later.values():
            return _try_again(error)
        return JSONResponse({name: count for name, count in sorted(recorded.counts.items()) if count})

    async def intake(request: Request) -> Response:
        try:
            body = await _body(request, settings.intake.webhook_max_bytes)
            return await run_in_threadpool(handle, body, request.headers)
        except _LacksScope as error:
            return _refusal(error, 403)
        except Denied as error:
            return _refusal(error, 401)
        except LimitHit as error:
            return _refusal(error, 413)
        except LakeError as error:
            return _try_again(error)

    return [Route(PATH, intake, methods=["POST"])]


async def _body(request: Request, max_bytes: int) -> bytes:
    parts, size_bytes = [], 0
    async for part in request.stream():
        size_bytes += len(part)
        if size_bytes > max_bytes:
            raise LimitHit(
                f"cannot read the event: it has more than {max_bytes} bytes", hint="raise intake.webhook_max_bytes"
            )
        parts.append(part)
    return b"".join(parts)


def _orgs(database: Database, headers: Headers) -> frozenset[uuid.UUID] | None:
    """Return the orgs whose objects the sender may announce; None means all."""
    secret = secret_in(headers)
    with database.transaction() as tx:
        key = authenticate(tx, secret)
    try:
        require(key, Scope.INGEST)
    except Denied as error:
        raise _LacksScope(error.message, hint=error.hint) from None
    return None if Scope.ADMIN in key.scopes else key.org_ids


class _LacksScope(Denied):
    """The key is valid, but lacks the scope."""


def _refusal(error: LakeError, status: int) -> Response:
    headers = {"WWW-Authenticate": 'Basic realm="lakerunner"'} if status == 401 else None
    return JSONResponse({"error": error.message, "code": error.code, "hint": error.hint}, status, headers)


def _try_again(error: LakeError) -> Response:
    """Answer 503: the event is not durable, so the sender must keep it and send it again."""
    log().warning("event not recorded", source=_SOURCE, error=str(error))
    document = {"error": error.message, "code": error.code, "hint": error.hint}
    return JSONResponse(document, 503, {"Retry-After": str(_RETRY_AFTER_S)})
