"""Deletes the objects of segments that ended more than the grace period ago, then their rows in the index.

Objects first: a sweeper that dies in between finds the rows again, and deleting a missing object is no error. No query
needs such objects, because one whose snapshot is older than the grace period is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from lakerunner.index.database import Database
from lakerunner.index.ended_segments import Ended, ended_segments, forget_segments
from lakerunner.index.leases import Lease, require_held
from lakerunner.ops.sweeping.found import Finding, Report
from lakerunner.ops.sweeping.pace import Pace
from lakerunner.runtime.crash import crash_point
from lakerunner.store import keys
from lakerunner.store.object_store import ObjectStore

#: Segments per request to the bucket and per transaction.
_BATCH = 200


def find_ended(database: Database, grace_s: float, limit: int, report: Report) -> None:
    """Report whose objects `delete_ended` would delete."""
    with database.transaction() as tx:
        found = ended_segments(tx, grace_s, limit)
    for each in found:
        report(_finding(each))


def delete_ended(
    database: Database, store: ObjectStore, grace_s: float, pace: Pace, lease: Lease | None, report: Report
) -> None:
    """Delete the objects and rows of all such segments, the longest ended first, until the pace's round is over."""
    while not pace.is_over:
        with database.transaction() as tx:
            if lease is not None:
                require_held(tx, lease)
            batch = ended_segments(tx, grace_s, _BATCH)
        if not batch or not _delete(database, store, batch, pace, lease):
            return
        for each in batch:
            report(_finding(each))
        if len(batch) < _BATCH:
            return


def _delete(
    database: Database, store: ObjectStore, batch: Sequence[Ended], pace: Pace, lease: Lease | None
) -> bool:  # fmt: skip
    names = [key for each in batch for key in keys.segment_keys(each.segment)]
    if not pace.take(len(names)):
        return False
    crash_point("sweep_before_delete")
    store.delete(names[: len(names) // 2])
    crash_point("sweep_half_deleted")
    store.delete(names[len(names) // 2 :])
    crash_point("sweep_after_delete")
    with database.transaction() as tx:
        if lease is not None:
            require_held(tx, lease)
        forget_segments(tx, batch)
    crash_point("sweep_after_record")
    return True


def _finding(ended: Ended) -> Finding:
    segment = ended.segment
    return Finding(
        "segment",
        f"{ended.state}: {ended.reason}",
        str(segment.segment_id),
        segment.org_id,
        segment.signal,
        segment.row_count,
        segment.size_bytes,
        ended.age_s,
    )
