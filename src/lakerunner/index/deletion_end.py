"""The end of deletions: a segment that ended by itself needs no rewriting, and the last segment ends its deletion."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakerunner.index import derived_windows

if TYPE_CHECKING:
    from lakerunner.index.database import Connection
    from lakerunner.index.segments import SegmentRef


def end_pending(tx: Connection, refs: Sequence[SegmentRef]) -> None:
    """Mark segments as gone in every deletion that concerned them."""
    if not refs:
        return
    rows = tx.execute(
        "UPDATE deletion_segment d SET state = 'ended', ended_at = now(), rows_after = 0"
        " FROM unnest(%s::int[], %s::uuid[]) AS r(dateint, segment_id) WHERE d.dateint = r.dateint"
        " AND d.segment_id = r.segment_id AND d.state = 'pending' RETURNING d.deletion_id",
        [[each.dateint for each in refs], [each.segment_id for each in refs]],
    ).fetchall()
    end_complete(tx, {row["deletion_id"] for row in rows})


def end_complete(tx: Connection, deletion_ids: set[uuid.UUID]) -> None:
    """End those of the deletions that have no segment left. Two commits of one deletion wait for each other here."""
    for deletion_id in sorted(deletion_ids):
        tx.execute("SELECT FROM deletion WHERE deletion_id = %s FOR UPDATE", [deletion_id])
        # A statement of its own: it sees what a commit that held the lock before this one has ended.
        ended = tx.execute(
            "UPDATE deletion SET state = 'done', ended_at = now() WHERE deletion_id = %s AND state = 'running'"
            " AND NOT EXISTS (SELECT FROM deletion_segment s WHERE s.deletion_id = deletion.deletion_id"
            " AND s.state = 'pending')",
            [deletion_id],
        )
        if ended.rowcount:
            derived_windows.rows_are_gone(tx, deletion_id)
