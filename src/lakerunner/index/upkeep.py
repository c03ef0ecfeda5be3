"""Upkeep of the index: delete expired rows, and create the partitions that will be needed soon."""

from __future__ import annotations

import time

from lakerunner.index import outbox, work
from lakerunner.index.database import Database
from lakerunner.index.leases import Lease, require_held
from lakerunner.index.segments import ensure_partitions
from lakerunner.model.time import NS_PER_DAY, dateint
from lakerunner.runtime.settings import UpkeepSettings

#: Partitions are created this far ahead, so that no ingest has to create one when a month begins.
_DAYS_AHEAD = 7


def run_upkeep(database: Database, settings: UpkeepSettings, lease: Lease) -> dict[str, int]:
    """Run one round as the holder of the lease. Returns the number of deleted rows by table."""
    now_ns = time.time_ns()
    ensure_partitions(database, (dateint(now_ns), dateint(now_ns + _DAYS_AHEAD * NS_PER_DAY)))
    with database.transaction() as tx:
        require_held(tx, lease)
        return {
            "outbox": outbox.forget_published(tx, settings.outbox_keep_s),
            "work_item": work.forget_ended(tx, settings.work_keep_s),
        }
