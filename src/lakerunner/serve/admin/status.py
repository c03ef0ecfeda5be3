"""`GET /api/v1/status`: the state of the deployment in one document, for holders of an admin key."""

from __future__ import annotations

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
from lakerunner.index.objectives import FRESHNESS, QUERY_LATENCY
from lakerunner.index.row_reports import count_reports
from lakerunner.intake.rejections import count_rejected
from lakerunner.model.errors import Denied
from lakerunner.runtime.settings import MonitorSettings, Settings
from lakerunner.serve.admin.conditions import problems
from lakerunner.serve.admin.observation import Observation, observe
from lakerunner.serve.auth import key_of
from lakerunner.serve.dialect import DialectRoute
from lakerunner.serve.errors import OWN
from lakerunner.serve.rendering.json import json_response
from lakerunner.store.object_store import ObjectStore


def status_document(settings: Settings, database: Database, bus: Bus, store: ObjectStore) -> dict[str, object]:
    """The document that `lakerunner status -o json` prints and this route returns."""
    seen = observe(database, bus, store)
    return {
        "version": __version__,
        "schema": schema_version(database),
        "index": asdict(seen.index),
        "objectives": _objectives(seen, settings.monitor),
        "losses": _losses(database),
        "bus": [asdict(lag) for lag in seen.lags or ()],
        "dead_letters": seen.dead_letters,
        "bucket": None if seen.bucket is None else asdict(seen.bucket),
        "problems": [asdict(problem) for problem in problems(seen, settings.monitor, settings.canary)],
    }


def _objectives(seen: Observation, settings: MonitorSettings) -> list[dict[str, object]]:
    """The burn rate of each objective and window."""
    shares = {FRESHNESS: settings.freshness_share, QUERY_LATENCY: settings.query_share}
    return [
        {"objective": burn.objective, "window_s": burn.window_s, "burn_rate": burn.rate(shares[burn.objective])}
        for burn in seen.index.burns or ()
        if burn.objective in shares
    ]


def _losses(database: Database) -> dict[str, object]:
    """What did not arrive as sent: rows of the last hour, and events that brought no object into the ledger."""
    with database.transaction() as tx:
        return {"rows": [asdict(count) for count in count_reports(tx)], "events": count_rejected(tx)}


def status_routes(settings: Settings, database: Database, bus: Bus, store: ObjectStore) -> list[BaseRoute]:
    def answer(request: Request) -> Response:
        if settings.auth.required:
            key = key_of(request, database, Scope.ADMIN)
            if key.operates is not None:
                raise Denied(
                    f"cannot show the state of all orgs to the key {key.name!r}: it is for {len(key.org_ids)} of them",
                    hint="use an admin key without an org",
                )
        return json_response(status_document(settings, database, bus, store))

    async def status(request: Request) -> Response:
        # In a thread: the database calls block.
        return await run_in_threadpool(answer, request)

    return [DialectRoute("/api/v1/status", status, ["GET"], OWN)]
