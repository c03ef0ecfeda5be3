"""A role that stands on the index: it opens lrdb, refuses a wrong schema, and is ready when lrdb answers."""

from __future__ import annotations

from collections.abc import Mapping

from lakerunner.index.database import Database
from lakerunner.index.embedded import index_url
from lakerunner.index.migrate import require_current_schema
from lakerunner.runtime.role import Probe, Role
from lakerunner.runtime.settings import Settings


def open_database(settings: Settings) -> Database:
    """The index that the settings name. It need not be up."""
    return Database(
        index_url(settings),
        pool_size=settings.index.pool_size,
        connect_timeout_s=settings.index.connect_timeout_s,
        statement_timeout_s=settings.index.statement_timeout_s,
    )


class IndexedRole(Role):
    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.database = open_database(settings)

    def start(self) -> None:
        require_current_schema(self.database)

    def probes(self) -> Mapping[str, Probe]:
        return {"index": self.database.ping}

    def close(self) -> None:
        self.database.close()
