"""Find the live segments for a query plan: of several signals and time ranges, in one statement."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import Cursor
from psycopg.rows import DictRow

from lakerunner.index.database import Connection
from lakerunner.index.segments import SELECT_SEGMENTS, SegmentRef, segment_of_row
from lakerunner.index.watermark import ask_watermark, watermark_ms
from lakerunner.model.segment import RAW_TIER_S, Segment
from lakerunner.model.time import NS_PER_DAY, TimeRange, dateint


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
    return _refs(_ask_refs(tx, org_id, wants))


def _ask_refs(tx: Connection, org_id: uuid.UUID, wants: Sequence[Want]) -> Cursor[DictRow]:
    # A segment is stored under the day of its first row, so one of the day before may reach into the range.
    return tx.execute(
        "SELECT DISTINCT s.dateint, s.segment_id FROM segment s"
        " JOIN unnest(%s::text[], %s::int[], %s::int[], %s::int[], %s::bigint[], %s::bigint[])"
        " AS w(signal, tier_s, first, last, start_ns, end_ns)"
        " ON s.signal = w.signal AND s.tier_s = w.tier_s AND s.dateint BETWEEN w.first AND w.last"
        " AND s.start_ns < w.end_ns AND s.end_ns > w.start_ns"
        # Repeated as constants for the whole plan, so that PostgreSQL can skip partitions.
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
    )


def _refs(found: Cursor[DictRow]) -> list[SegmentRef]:
    return [SegmentRef(row["dateint"], row["segment_id"]) for row in found.fetchall()]


def watermarked_refs(
    tx: Connection, org_id: uuid.UUID, wants: Sequence[Want]
) -> tuple[list[SegmentRef], int | None]:  # fmt: skip
    """What `live_refs` returns, and the watermark of the signals: what arrived before it is in these segments."""
    # Both statements in one round trip. The watermark goes first: what is committed in between does no harm.
    with tx.pipeline():
        watermark = ask_watermark(tx, org_id, sorted({want.signal for want in wants}))
        found = _ask_refs(tx, org_id, wants)
        return _refs(found), watermark_ms(watermark)


def load_segments(tx: Connection, refs: Sequence[SegmentRef]) -> list[Segment]:
    """What those segments are, whatever their state."""
    rows = tx.execute(
        SELECT_SEGMENTS + " JOIN unnest(%s::int[], %s::uuid[]) AS r(dateint, segment_id)"
        " ON s.dateint = r.dateint AND s.segment_id = r.segment_id",
        [[ref.dateint for ref in refs], [ref.segment_id for ref in refs]],
    ).fetchall()
    return [segment_of_row(row) for row in rows]


def _first_day(want: Want) -> int:
    return dateint(max(0, want.time_range.start_ns - NS_PER_DAY))
