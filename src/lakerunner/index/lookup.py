"""Find the live segments for a query plan: of several signals and time ranges, in one statement."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from lakerunner.index.database import Connection
from lakerunner.index.segments import SELECT_SEGMENTS, SegmentRef, days_of, segment_of_row
from lakerunner.model.segment import RAW_TIER_S, UNDATED, Segment
from lakerunner.model.time import TimeRange


@dataclass(frozen=True, slots=True)
class Want:
    """A request for the segments of one signal and tier that overlap a time range."""

    signal: str
    time_range: TimeRange
    tier_s: int = RAW_TIER_S


def live_refs(tx: Connection, org_id: uuid.UUID, wants: Sequence[Want]) -> list[SegmentRef]:
    """Return all live segments that match any want, in one statement and so from one snapshot.

    Only references: a segment never changes, so callers cache segments and load only new ones with `load_segments`.
    """
    days = [days_of(want.time_range) for want in wants]
    rows = tx.execute(
        "SELECT DISTINCT s.dateint, s.segment_id FROM segment s"
        " JOIN unnest(%s::text[], %s::int[], %s::int[], %s::int[], %s::bigint[], %s::bigint[])"
        " AS w(signal, tier_s, first, last, start_ns, end_ns)"
        " ON s.signal = w.signal AND s.tier_s = w.tier_s AND (s.dateint BETWEEN w.first AND w.last OR s.dateint = %s)"
        " AND s.start_ns < w.end_ns AND s.end_ns > w.start_ns"
        # Repeated as constants for the whole plan, so that PostgreSQL can skip partitions.
        " WHERE s.org_id = %s AND s.state = 'live' AND (s.dateint BETWEEN %s AND %s OR s.dateint = %s)",
        [
            [want.signal for want in wants],
            [want.tier_s for want in wants],
            [first for first, _ in days],
            [last for _, last in days],
            [want.time_range.start_ns for want in wants],
            [want.time_range.end_ns for want in wants],
            UNDATED,
            org_id,
            min((first for first, _ in days), default=0),
            max((last for _, last in days), default=0),
            UNDATED,
        ],
    ).fetchall()
    return [SegmentRef(row["dateint"], row["segment_id"]) for row in rows]


def load_segments(tx: Connection, refs: Sequence[SegmentRef]) -> list[Segment]:
    """What those segments are, whatever their state."""
    rows = tx.execute(
        SELECT_SEGMENTS + " JOIN unnest(%s::int[], %s::uuid[]) AS r(dateint, segment_id)"
        " ON s.dateint = r.dateint AND s.segment_id = r.segment_id",
        [[ref.dateint for ref in refs], [ref.segment_id for ref in refs]],
    ).fetchall()
    return [segment_of_row(row) for row in rows]
