"""Upkeep of the index: what nobody needs any more is forgotten, what will be needed soon is made."""

from __future__ import annotations

import time

from lakerunner.index import outbox, work
from lakerunner.index.database import Database
from lakerunner.index.leases import Lease, require_held
from lakerunner.index.segments import ensure_partitions
from lakerunner.model.time import NS_PER_DAY, dateint
from lakerunner.runtime.settings import UpkeepSettings

#: Partitions are made this far ahead, so that no ingest has to make one at midnight of the first.
_DAYS_AHEAD = 7


def run_upkeep(database: Database, settings: UpkeepSettings, lease: Lease) -> dict[str, int]:
    """One round, as the holder of the lease. Returns what was removed, by kind."""
    now_ns = time.time_ns()
    ensure_partitions(database, (dateint(now_ns), dateint(now_ns + _DAYS_AHEAD * NS_PER_DAY)))
    with database.transaction() as tx:
        require_held(tx, lease)
        return {
            "outbox": outbox.forget_published(tx, settings.outbox_keep_s),
            "work_item": work.forget_ended(tx, settings.work_keep_s),
        }
