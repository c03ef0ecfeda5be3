"""Segments that ended: superseded or deleted. Once their objects are gone, their rows go to the sweeper's ledger."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from lakerunner.index import sweep_ledger
from lakerunner.index.database import Connection
from lakerunner.index.deletion_end import end_pending
from lakerunner.index.rollup_windows import mark_dirty, share_windows
from lakerunner.index.segment_sources import forget_sources
from lakerunner.index.segments import SEGMENT_COLUMNS, SegmentRef, ref, segment_of_row
from lakerunner.index.sweep_ledger import Entry
from lakerunner.model.segment import Segment


@dataclass(frozen=True, slots=True)
class Ended:
    """A segment whose objects may be deleted, and why."""

    segment: Segment
    state: str
    reason: str
    #: Since it ended.
    age_s: float


def ended_segments(tx: Connection, grace_s: float, limit: int) -> list[Ended]:
    """Segments that ended more than `grace_s` ago, the longest ago first."""
    rows = tx.execute(
        f"SELECT {SEGMENT_COLUMNS}, s.state, coalesce(s.end_reason, 'by item ' || s.superseded_by) AS reason,"  # noqa: S608
        " extract(epoch FROM now() - s.superseded_at)::float8 AS age_s FROM segment s"
        " WHERE s.state IN ('superseded', 'deleted') AND s.superseded_at < now() - make_interval(secs => %s)"
        " ORDER BY s.superseded_at, s.segment_id LIMIT %s",
        [grace_s, limit],
    ).fetchall()
    return [Ended(state=row.pop("state"), reason=row.pop("reason") or "superseded", age_s=row.pop("age_s"),
                  segment=segment_of_row(row)) for row in rows]  # fmt: skip


def forget_segments(tx: Connection, ended: Sequence[Ended]) -> int:
    """Delete the rows of segments whose objects are deleted, and record each in the ledger. Returns how many it were.

    A row that another sweeper has deleted is not recorded again. Items that waited for such segments end.
    """
    by_ref = {ref(each.segment): each for each in ended}
    asked = [[name.dateint for name in by_ref], [name.segment_id for name in by_ref]]
    rows = tx.execute(
        "DELETE FROM segment s USING unnest(%s::int[], %s::uuid[]) AS r(dateint, segment_id)"
        " WHERE s.dateint = r.dateint AND s.segment_id = r.segment_id AND s.state IN ('superseded', 'deleted')"
        " RETURNING s.dateint, s.segment_id",
        asked,
    ).fetchall()
    gone = [by_ref[SegmentRef(row["dateint"], row["segment_id"])] for row in rows]
    sweep_ledger.record(
        tx,
        [
            Entry("segment", f"{each.state}: {each.reason}", each.segment.org_id, each.segment.signal,
                  str(each.segment.segment_id), each.segment.row_count, each.segment.size_bytes)
            for each in gone
        ],
    )  # fmt: skip
    refs = [ref(each.segment) for each in gone]
    _release(tx, refs)
    forget_sources(tx, refs)
    return len(gone)


def _release(tx: Connection, refs: Sequence[SegmentRef]) -> None:
    """Drop the hold of items on segments that no longer exist, and end items that have nothing left to do."""
    rows = tx.execute(
        "DELETE FROM segment_input i USING unnest(%s::int[], %s::uuid[]) AS r(dateint, segment_id)"
        " WHERE i.dateint = r.dateint AND i.segment_id = r.segment_id RETURNING i.item_id",
        [[each.dateint for each in refs], [each.segment_id for each in refs]],
    ).fetchall()
    tx.execute(
        "DELETE FROM segment_source o USING unnest(%s::int[], %s::uuid[]) AS r(dateint, segment_id)"
        " WHERE o.dateint = r.dateint AND o.segment_id = r.segment_id",
        [[each.dateint for each in refs], [each.segment_id for each in refs]],
    )
    tx.execute(
        "UPDATE work_item w SET state = 'stale', reason = 'its segments are gone', ended_at = now()"
        " WHERE item_id = ANY(%s) AND state = 'open'"
        " AND NOT EXISTS (SELECT FROM segment_input i WHERE i.item_id = w.item_id)",
        [list({row["item_id"] for row in rows})],
    )


def known_ids(tx: Connection, refs: Sequence[tuple[int, uuid.UUID]]) -> set[uuid.UUID]:
    """Those of the segments that the index knows, in any state. The day may be the segment's or 0."""
    rows = tx.execute(
        "SELECT s.segment_id FROM segment s JOIN unnest(%s::int[], %s::uuid[]) AS r(dateint, segment_id)"
        " ON s.dateint = r.dateint AND s.segment_id = r.segment_id",
        [[day for day, _ in refs], [segment_id for _, segment_id in refs]],
    ).fetchall()
    return {row["segment_id"] for row in rows}


def mark_lost(tx: Connection, segment: Segment, missing: Sequence[str]) -> bool:
    """Take a live segment out of the lake because objects of it are missing; False when it is not live any more.

    The windows of a tier are made again, from the raw samples.
    """
    name = ref(segment)
    share_windows(tx, segment.org_id)
    changed = tx.execute(
        "UPDATE segment SET state = 'lost', superseded_at = now(), end_reason = %s"
        " WHERE dateint = %s AND segment_id = %s AND state = 'live'",
        [f"missing: {', '.join(missing)}", name.dateint, name.segment_id],
    )
    if not changed.rowcount:
        return False
    end_pending(tx, [name])
    if segment.tier_s:
        mark_dirty(tx, segment.org_id, [segment.time_range])
    sweep_ledger.record(
        tx,
        [Entry("lost", f"missing in the bucket: {', '.join(missing)}", segment.org_id, segment.signal,
               str(segment.segment_id), segment.row_count, segment.size_bytes)],
    )  # fmt: skip
    return True


def count_lost(tx: Connection) -> int:
    row = tx.execute("SELECT count(*) AS lost FROM segment WHERE state = 'lost'").fetchone()
    assert row is not None
    return int(row["lost"])
