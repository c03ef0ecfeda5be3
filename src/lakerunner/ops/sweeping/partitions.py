"""Drops partitions of the index that have no rows left, and watches whether vacuum keeps up."""

from __future__ import annotations

import time

from lakerunner.index import partitions as index
from lakerunner.index.database import Database
from lakerunner.model.errors import LakeError
from lakerunner.model.time import NS_PER_DAY, dateint
from lakerunner.ops.sweeping.found import Finding, Report
from lakerunner.ops.sweeping.metrics import DEAD_ROWS, FREEZE_AGE
from lakerunner.runtime.metrics import SWALLOWED
from lakerunner.runtime.telemetry import log

#: Months that began less than this ago keep their partition, empty or not: late rows would only create it again.
_RECENT_NS = 62 * NS_PER_DAY
#: Tables whose state is exported: those with the most dead rows.
_WATCHED = 20


def _before_month() -> int:
    return dateint(time.time_ns() - _RECENT_NS) // 100


def find_empty(database: Database, report: Report) -> None:
    for name in database.read(lambda tx: index.old_partitions(tx, _before_month())):
        report(Finding("partition", "without rows", name))


def drop_empty(database: Database, report: Report) -> None:
    """Each is dropped in a transaction of its own. One that is in use is left for the next round."""
    for name in database.read(lambda tx: index.old_partitions(tx, _before_month())):
        try:
            with database.transaction() as tx:
                is_dropped = index.drop_if_empty(tx, name)
        except LakeError as error:
            SWALLOWED.labels("drop_partition").inc()
            log().info("partition not dropped", partition=name, error=str(error))
            continue
        if is_dropped:
            report(Finding("partition", "without rows", name))


def watch_vacuum(database: Database) -> None:
    """Export dead rows and freeze ages."""
    states = database.read(index.vacuum_states)
    DEAD_ROWS.clear()
    for state in states[:_WATCHED]:
        DEAD_ROWS.labels(state.table).set(state.dead_rows)
    FREEZE_AGE.set(max((state.age for state in states), default=0))
