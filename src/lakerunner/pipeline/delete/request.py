"""Requesting and beginning deletions: the transactions that hide rows and announce segments to the stage."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Final

from lakerunner.bus.announce import segments_made
from lakerunner.index import deletions, outbox
from lakerunner.index.database import Connection, Database
from lakerunner.index.leases import Lease, require_held
from lakerunner.model.deletion import DeletionRequest
from lakerunner.model.segment import Segment
from lakerunner.runtime.crash import crash_point

#: The name of the stage.
NAME: Final = "delete"
#: Deletions that one transaction begins.
_BATCH = 20


def request_deletion(
    tx: Connection,
    request: DeletionRequest,
    wait_s: float,
    may_hold: Callable[[Segment], bool],
    *,
    makes_holes: bool = True,
) -> uuid.UUID:
    """Store a deletion. From the commit on, its rows are hidden. Without a wait, it begins at once."""
    deletion_id = deletions.request_deletion(tx, request, wait_s, may_hold, makes_holes=makes_holes)
    crash_point("delete_requested")
    if not wait_s:
        outbox.put(tx, segments_made(deletions.begin_deletions(tx, 1, deletion_id), [NAME]))
    return deletion_id


def begin_due(database: Database, lease: Lease | None = None) -> int:
    """Begin the deletions whose wait is over; returns how many segments were announced."""
    announced = 0
    while True:
        with database.transaction() as tx:
            if lease is not None:
                require_held(tx, lease)
            segments = deletions.begin_deletions(tx, _BATCH)
            outbox.put(tx, segments_made(segments, [NAME]))
            crash_point("delete_before_begin")
        crash_point("delete_after_begin")
        announced += len(segments)
        if not segments:
            return announced
