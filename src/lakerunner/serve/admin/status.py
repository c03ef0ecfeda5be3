"""`GET /api/v1/status`: the state of the deployment in one document, for holders of an admin key."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lakerunner import __version__
from lakerunner.bus.contract import Bus
from lakerunner.index.api_keys import Scope
from lakerunner.index.database import Database
from lakerunner.index.migrate import schema_version
from lakerunner.index.row_reports import count_reports
from lakerunner.index.status import index_status
from lakerunner.intake.rejections import count_rejected
from lakerunner.model.errors import Denied
from lakerunner.runtime.settings import Settings
from lakerunner.serve.auth import key_of
from lakerunner.serve.dialect import DialectRoute
from lakerunner.serve.errors import OWN
from lakerunner.serve.rendering.json import json_response


def status_document(database: Database, bus: Bus) -> dict[str, object]:
    """The document that `lakerunner status -o json` prints and this route returns."""
    return {
        "version": __version__,
        "schema": schema_version(database),
        "index": asdict(index_status(database)),
        "losses": _losses(database),
        "bus": _lag_by_topic(bus),
    }


def _losses(database: Database) -> dict[str, object]:
    """What did not arrive as sent: rows of the last hour, and events that brought no object into the ledger."""
    with database.transaction() as tx:
        return {"rows": [asdict(count) for count in count_reports(tx)], "events": count_rejected(tx)}


def _lag_by_topic(bus: Bus) -> list[dict[str, object]]:
    behind: Counter[tuple[str, str]] = Counter()
    for lag in bus.lag():
        behind[lag.group, lag.topic] += lag.behind
    return [{"group": group, "topic": topic, "lag": lag} for (group, topic), lag in sorted(behind.items())]


def status_routes(settings: Settings, database: Database, bus: Bus) -> list[BaseRoute]:
    def answer(request: Request) -> Response:
        if settings.auth.required:
            key = key_of(request, database, Scope.ADMIN)
            if key.operates is not None:
                raise Denied(
                    f"cannot show the state of all orgs to the key {key.name!r}: it is for {len(key.org_ids)} of them",
                    hint="use an admin key without an org",
                )
        return json_response(status_document(database, bus))

    async def status(request: Request) -> Response:
        # In a thread: the database calls block.
        return await run_in_threadpool(answer, request)

    return [DialectRoute("/api/v1/status", status, ["GET"], OWN)]
