"""The base class of roles that use the index: it opens lrdb, checks the schema, and is ready when lrdb answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from lakerunner.index.database import Database
from lakerunner.index.embedded import index_url
from lakerunner.index.migrate import require_current_schema
from lakerunner.runtime.role import Probe, Role
from lakerunner.runtime.settings import Settings


def open_database(settings: Settings, *, fail_fast: bool = False) -> Database:
    """Open the index from the settings. It need not be up yet."""
    return Database(
        index_url(settings),
        pool_size=settings.index.pool_size,
        connect_timeout_s=settings.index.connect_timeout_s,
        statement_timeout_s=settings.index.statement_timeout_s,
        silence_timeout_s=settings.bus.session_timeout_s,
        fail_fast=fail_fast,
    )


class IndexedRole(Role):
    #: Whether the role can work for a while without the index, and so should not wait for it.
    fail_fast: ClassVar[bool] = False

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.database = open_database(settings, fail_fast=self.fail_fast)
        # Imported here: verbs that only open the index need neither store nor Arrow.
        from lakerunner.index.org_requests import RequestLedger

        self._requests = RequestLedger(self.database)

    def start(self) -> None:
        require_current_schema(self.database)
        self._requests.start()

    def probes(self) -> Mapping[str, Probe]:
        return {"index": self.database.ping}

    def close(self) -> None:
        self._requests.end()
        self.database.close()
