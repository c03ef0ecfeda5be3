"""One round of sweeping: retention, ended segments, the comparison of bucket and index, partitions; or a dry run."""

from __future__ import annotations

import time

from lakerunner.index.database import Database
from lakerunner.index.ended_segments import count_lost
from lakerunner.index.leases import Lease
from lakerunner.model.errors import Conflict
from lakerunner.ops.sweeping import dangling, ended, orphans, partitions, retention
from lakerunner.ops.sweeping.found import Finding, Report, Swept
from lakerunner.ops.sweeping.metrics import IMPLAUSIBLE, LISTED_AT, LOST, SWEPT, SWEPT_BYTES
from lakerunner.ops.sweeping.pace import Pace
from lakerunner.runtime.settings import Settings
from lakerunner.runtime.stop import Stop
from lakerunner.runtime.telemetry import log
from lakerunner.store.object_store import ObjectStore


def sweep_round(
    settings: Settings,
    database: Database,
    store: ObjectStore,
    *,
    listing: bool,
    lease: Lease | None = None,
    stop: Stop | None = None,
    on_found: Report = lambda _: None,
) -> Swept:
    """Delete and repair what there is. With `listing`, the bucket is compared with the index too.

    It may run beside another round: everything is marked by compare-and-swap, and deleting twice does no harm.
    """
    sweep = settings.sweep
    swept = Swept()

    def report(finding: Finding) -> None:
        swept.add(finding)
        SWEPT.labels(finding.what).inc()
        SWEPT_BYTES.labels(finding.what).inc(finding.bytes)
        on_found(finding)

    pace = Pace(sweep.deletes_per_s, sweep.round_objects, stop)
    retention.end_expired(database, settings.retention, lease, report)
    ended.delete_ended(database, store, sweep.grace_s, pace, lease, report)
    if listing:
        _compare(settings, database, store, pace, report)
        LISTED_AT.set(time.time())
    partitions.drop_empty(database, report)
    partitions.watch_vacuum(database)
    LOST.set(database.read(count_lost))
    return swept


def _compare(settings: Settings, database: Database, store: ObjectStore, pace: Pace, report: Report) -> None:
    """Repair what differs between bucket and index. A difference that is too large to be believed is an alarm."""
    try:
        dangling.mark_dangling(database, store, report)
        orphans.delete_orphans(database, store, settings.sweep.orphan_grace_s, pace, report)
    except Conflict as error:
        IMPLAUSIBLE.set(1)
        log().error("bucket and index do not fit", error=str(error))
    else:
        IMPLAUSIBLE.set(0)


def dry_run(
    settings: Settings, database: Database, store: ObjectStore, *, listing: bool, limit: int, on_found: Report
) -> Swept:  # fmt: skip
    """Report what a round would delete and repair, and change nothing."""
    swept = Swept()

    def report(finding: Finding) -> None:
        swept.add(finding)
        on_found(finding)

    retention.find_expired(database, settings.retention, limit, report)
    ended.find_ended(database, settings.sweep.grace_s, limit, report)
    if listing:
        dangling.report_dangling(database, store, report)
        orphans.report_orphans(database, store, settings.sweep.orphan_grace_s, report)
    partitions.find_empty(database, report)
    return swept
