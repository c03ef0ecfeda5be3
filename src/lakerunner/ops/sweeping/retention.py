"""Ends segments that are older than their org keeps them. Their objects follow after the grace period."""

from __future__ import annotations

import time

from lakerunner.index import retention as index
from lakerunner.index.database import Database
from lakerunner.index.leases import Lease, require_held
from lakerunner.index.retention import Expired
from lakerunner.ops.sweeping.found import Finding, Report
from lakerunner.runtime.crash import crash_point
from lakerunner.runtime.settings import RetentionSettings

#: Segments per transaction.
_BATCH = 500


def find_expired(database: Database, settings: RetentionSettings, limit: int, report: Report) -> None:
    """Report what `end_expired` would end, up to `limit` segments of each org, signal and tier."""
    with database.transaction() as tx:
        for org_id, kept, keep_s in index.retentions(tx, settings):
            for each in index.expired(tx, org_id, kept, keep_s, limit):
                report(_finding(each, keep_s))


def end_expired(database: Database, settings: RetentionSettings, lease: Lease | None, report: Report) -> None:
    """End every segment that is older than its retention. Each batch is one transaction."""
    with database.transaction() as tx:
        wanted = index.retentions(tx, settings)
    for org_id, kept, keep_s in wanted:
        while True:
            with database.transaction() as tx:
                if lease is not None:
                    require_held(tx, lease)
                found = index.end_expired(tx, org_id, kept, keep_s, _BATCH)
                crash_point("sweep_before_expiry")
            crash_point("sweep_after_expiry")
            for each in found:
                report(_finding(each, keep_s))
            if len(found) < _BATCH:
                break


def _finding(expired: Expired, keep_s: float) -> Finding:
    age_s = time.time() - expired.time_range.end_ns / 1e9
    return Finding(
        "expired",
        f"{expired.kept} older than {keep_s:g} s",
        str(expired.ref.segment_id),
        expired.org_id,
        expired.kept.signal,
        expired.row_count,
        expired.size_bytes,
        age_s,
    )
