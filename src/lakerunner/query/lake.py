"""The lake, opened for asking: one a process, from which each query gets a source of its own."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from lakerunner.index.database import Database
from lakerunner.query.fanout.answer import Workers
from lakerunner.query.fanout.open import open_workers
from lakerunner.query.lake_source import LakeSource, QueryLimits
from lakerunner.query.plan.catalog import Catalog
from lakerunner.query.plan.planner import Planner
from lakerunner.runtime.settings import Settings


class Lake:
    """Safe to share between threads."""

    def __init__(self, catalog: Catalog, workers: Workers, limits: QueryLimits) -> None:
        self._catalog = catalog
        self._workers = workers
        self._limits = limits

    def source(
        self, org_id: uuid.UUID, limits: QueryLimits | None = None, cancelled: Callable[[], None] | None = None
    ) -> LakeSource:
        """What one query of that org reads from. `cancelled` raises when nobody waits for the answer any more."""
        planner = Planner(self._catalog, org_id)
        return LakeSource(org_id, planner, self._workers, limits or self._limits, cancelled)

    def close(self) -> None:
        self._workers.close()


def open_lake(settings: Settings, database: Database) -> Lake:
    """The lake that the settings name, with its workers. The database stays the caller's to close."""
    query = settings.query
    catalog = Catalog(database, patience_s=query.index_patience_s)
    return Lake(catalog, open_workers(settings), QueryLimits(query.timeout_s, query.max_scan_bytes))
