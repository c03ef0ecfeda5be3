"""What a plan asks of the index: the live segments of several signals and times, in one statement."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from lakerunner.index.database import Connection
from lakerunner.index.segments import SELECT_SEGMENTS, SegmentRef, segment_of_row
from lakerunner.model.segment import RAW_TIER_S, Segment
from lakerunner.model.time import NS_PER_DAY, TimeRange, dateint


@dataclass(frozen=True, slots=True)
class Want:
    """Segments of one signal and tier that overlap a time."""

    signal: str
    time_range: TimeRange
    tier_s: int = RAW_TIER_S


def live_refs(tx: Connection, org_id: uuid.UUID, wants: Sequence[Want]) -> list[SegmentRef]:
    """All live segments that any want needs: one statement, hence one snapshot for the whole plan.

    Names only: what a segment is never changes, so callers keep descriptions and ask (`described`) for new ones alone.
    """
    # A segment lies within the day of its first row, so the day before the range may still reach into it.
    rows = tx.execute(
        "SELECT DISTINCT s.dateint, s.segment_id FROM segment s"
        " JOIN unnest(%s::text[], %s::int[], %s::int[], %s::int[], %s::bigint[], %s::bigint[])"
        " AS w(signal, tier_s, first, last, start_ns, end_ns)"
        " ON s.signal = w.signal AND s.tier_s = w.tier_s AND s.dateint BETWEEN w.first AND w.last"
        " AND s.start_ns < w.end_ns AND s.end_ns > w.start_ns"
        # Said again for the whole plan, as constants: these let PostgreSQL leave whole partitions out.
        " WHERE s.org_id = %s AND s.state = 'live' AND s.dateint BETWEEN %s AND %s",
        [
            [want.signal for want in wants],
            [want.tier_s for want in wants],
            [_first_day(want) for want in wants],
            [dateint(want.time_range.end_ns) for want in wants],
            [want.time_range.start_ns for want in wants],
            [want.time_range.end_ns for want in wants],
            org_id,
            min(map(_first_day, wants), default=0),
            max((dateint(want.time_range.end_ns) for want in wants), default=0),
        ],
    ).fetchall()
    return [SegmentRef(row["dateint"], row["segment_id"]) for row in rows]


def live_fingerprint(tx: Connection, org_id: uuid.UUID, signal: str, time_range: TimeRange) -> str:
    """A text that changes when any live segment of the signal and time comes or goes, of whatever tier.

    Made where the segments are: a query over a month touches thousands of them, and only this crosses the wire.
    """
    row = tx.execute(
        "SELECT count(*) AS number, coalesce(bit_xor(hashtextextended(segment_id::text, 0)), 0) AS one,"
        " coalesce(bit_xor(hashtextextended(segment_id::text, 1)), 0) AS other FROM segment"
        " WHERE org_id = %s AND signal = %s AND state = 'live' AND dateint BETWEEN %s AND %s"
        " AND start_ns < %s AND end_ns > %s",
        [
            org_id,
            signal,
            dateint(max(0, time_range.start_ns - NS_PER_DAY)),
            dateint(time_range.end_ns),
            time_range.end_ns,
            time_range.start_ns,
        ],
    ).fetchone()
    assert row is not None
    return f"{row['number']}:{row['one']}:{row['other']}"


def described(tx: Connection, refs: Sequence[SegmentRef]) -> list[Segment]:
    """What those segments are, whatever their state."""
    rows = tx.execute(
        SELECT_SEGMENTS + " JOIN unnest(%s::int[], %s::uuid[]) AS r(dateint, segment_id)"
        " ON s.dateint = r.dateint AND s.segment_id = r.segment_id",
        [[ref.dateint for ref in refs], [ref.segment_id for ref in refs]],
    ).fetchall()
    return [segment_of_row(row) for row in rows]


def _first_day(want: Want) -> int:
    return dateint(max(0, want.time_range.start_ns - NS_PER_DAY))
