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
from lakerunner.model.errors import BadInput, Denied, LakeError, LimitHit
from lakerunner.runtime.crash import crash_point
from lakerunner.runtime.http_body import read_body
from lakerunner.runtime.settings import Settings
from lakerunner.runtime.telemetry import log

PATH = "/api/v1/intake/s3"
_SOURCE = "http"
_RETRY_AFTER_S = 5


def webhook_routes(settings: Settings, database: Database, recorder: Recorder) -> list[BaseRoute]:
    """Return the route `POST /api/v1/intake/s3`, which needs an API key with the scope ingest."""

    def handle(body: bytes, only_orgs: frozenset[uuid.UUID] | None) -> Response:
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
            only_orgs = None
            if settings.auth.required:
                # Before the body is read: nobody without a key may hold our memory or a connection.
                only_orgs = await run_in_threadpool(_orgs, database, request.headers)
            body = await _body(request, settings.intake.webhook_max_bytes)
            return await run_in_threadpool(handle, body, only_orgs)
        except _LacksScope as error:
            return _refusal(error, 403)
        except Denied as error:
            return _refusal(error, 401)
        except _LateBody as error:
            return _refusal(error, 408)
        except LimitHit as error:
            return _refusal(error, 413)
        except LakeError as error:
            return _try_again(error)

    return [Route(PATH, intake, methods=["POST"])]


async def _body(request: Request, max_bytes: int) -> bytes:
    try:
        return await read_body(request, max_bytes, "raise intake.webhook_max_bytes")
    except BadInput as error:
        raise _LateBody(error.message, hint=error.hint) from None


def _orgs(database: Database, headers: Headers) -> frozenset[uuid.UUID] | None:
    """Return the orgs whose objects the sender may announce; None means all."""
    secret = secret_in(headers)
    with database.transaction() as tx:
        key = authenticate(tx, secret)
    try:
        require(key, Scope.INGEST)
    except Denied as error:
        raise _LacksScope(error.message, hint=error.hint) from None
    return key.operates if Scope.ADMIN in key.scopes else key.org_ids


class _LacksScope(Denied):
    """The key is valid, but lacks the scope."""


class _LateBody(BadInput):
    """The body did not arrive in time, or its sender left."""


def _refusal(error: LakeError, status: int) -> Response:
    headers = {"WWW-Authenticate": 'Basic realm="lakerunner"'} if status == 401 else None
    return JSONResponse({"error": error.message, "code": error.code, "hint": error.hint}, status, headers)


def _try_again(error: LakeError) -> Response:
    """Answer 503: the event is not durable, so the sender must keep it and send it again."""
    log().warning("event not recorded", source=_SOURCE, error=str(error))
    document = {"error": error.message, "code": error.code, "hint": error.hint}
    return JSONResponse(document, 503, {"Retry-After": str(_RETRY_AFTER_S)})
