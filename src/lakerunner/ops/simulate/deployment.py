"""The lake of a simulation: its own index and bucket in a folder, and the real roles as threads of one process.

Threads, so that all stages share one Spark session: a session per stage takes a gigabyte each. What the roles do is
the same as in processes of their own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import structlog
from psycopg import sql
from pydantic import BaseModel

from lakerunner.index.database import Connection, Database
from lakerunner.index.migrate import migrate
from lakerunner.index.orgs import ensure_default_org
from lakerunner.model.errors import LakeError
from lakerunner.ops.roles import ROLES
from lakerunner.ops.running_index import running_index
from lakerunner.runtime.retry import Backoff
from lakerunner.runtime.role import Recycle, Role
from lakerunner.runtime.settings import Settings
from lakerunner.runtime.stop import Stop
from lakerunner.runtime.telemetry import log

#: Roles that answer questions, and those of which nothing is asked here. A simulation asks index and bucket itself.
_IDLE_ROLES = frozenset(
    {"query-api", "query-worker", "monitor", "ruler", "canary", "demo-shop"}
    | {"delete", "boxer-delete", "backfill", "boxer-backfill"}
)
_RESTART = Backoff(base_s=0.25, cap_s=5.0)
#: Short waits: a simulated hour passes in a second or two. A setting that the user gave wins.
_IMPATIENT: dict[str, dict[str, Any]] = {
    "intake": {
        "folder_poll_s": 0.2,
        "folder_settle_s": 0.0,
        "folder_full_scan_s": 3_600.0,
        "reconcile_interval_s": 0.0,
    },
    "pipeline": {
        "bundle_idle_s": 0.3,
        "bundle_age_s": 3.0,
        "batch_items": 64,
        "compact_wait_s": 5.0,
        "rollup_pause_s": 5.0,
        "reconcile_after_s": 120.0,
    },
    "upkeep": {"interval_s": 5.0},
    "log": {"level": "warning"},
}
#: Bundles of many objects wait for all of them.
_PATIENT_BUNDLES = {"bundle_idle_s": 3.0, "bundle_age_s": 60.0}


def simulated_settings(given: Settings, folder: Path, objects_per_item: int) -> Settings:
    """The given settings with short waits, over an index and a bucket of their own in the folder."""
    sections: dict[str, Any] = {}
    for name in type(given).model_fields:
        section: BaseModel = getattr(given, name)
        chosen = {key: getattr(section, key) for key in section.model_fields_set}
        sections[name] = {**_IMPATIENT.get(name, {}), **chosen}
    sections["pipeline"]["bundle_objects"] = objects_per_item
    if objects_per_item > 1:
        # Bundles become full: how many objects share one is the user's choice, and not due to this machine's speed.
        sections["pipeline"] |= _PATIENT_BUNDLES
    # Never the user's own lake.
    sections |= {"data": {"dir": folder}, "index": {"url": "embedded"}, "store": {}, "bus": {"kind": "postgres"}}
    return Settings.model_validate(sections)


class Deployment:
    """The running roles. A role that fails for a passing reason is started again, as its process would be."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self.settings = settings
        self.database = database
        self._stop = Stop()
        self._roles: list[Role] = []
        self._threads: list[threading.Thread] = []
        self._failure: BaseException | None = None

    def start(self, names: Sequence[str]) -> None:
        for entry in ROLES:
            if entry.name in names:
                role = entry.load()(self.settings)
                self._roles.append(role)
                role.start()
        for role in self._roles:
            thread = threading.Thread(target=self._live, args=(role,), name=role.name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def check(self) -> None:
        """Raise what ended a role."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        self._stop.request()
        for thread in self._threads:
            thread.join()
        for role in reversed(self._roles):
            role.close()

    def _live(self, role: Role) -> None:
        structlog.contextvars.bind_contextvars(role=role.name)
        failures = 0
        while not self._stop:
            try:
                role.run(self._stop)
            except Recycle:
                continue
            except LakeError as error:
                if not error.retryable:
                    self._failure = error
                    return
                failures += 1
                log().warning("waiting for a dependency", error=str(error))
                self._stop.wait(_RESTART.ceiling_s(failures))
            except BaseException as error:  # noqa: BLE001  (raised again by `check`, in the main thread)
                self._failure = error
                return


def _commit_without_waiting(tx: Connection) -> None:
    """The lake of a simulation need not survive a power failure, and disks of busy machines are slow."""
    row = tx.execute("SELECT current_database() AS name").fetchone()
    assert row is not None
    tx.execute(sql.SQL("ALTER DATABASE {} SET synchronous_commit = off").format(sql.Identifier(row["name"])))


def simulated_roles() -> list[str]:
    """The roles that change the lake, in the order in which they start."""
    return [entry.name for entry in ROLES if entry.name not in _IDLE_ROLES]


@contextmanager
def running_deployment(settings: Settings) -> Iterator[Deployment]:
    """Yield a deployment whose index is ready and whose roles are not yet started."""
    with running_index(settings) as database:
        migrate(database)
        with database.transaction() as tx:
            ensure_default_org(tx)
            _commit_without_waiting(tx)
        deployment = Deployment(settings, database)
        try:
            yield deployment
        finally:
            deployment.close()
