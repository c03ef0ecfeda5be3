"""Find the live segments for a query plan: of several signals and time ranges, in one statement."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import LiteralString

from lakerunner.index.database import Connection
from lakerunner.index.segments import SELECT_SEGMENTS, SegmentRef, days_of, segment_of_row
from lakerunner.index.watermark import WATERMARK_MS
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
    if not wants:
        return []
    statement, values = _select_refs(org_id, wants)
    return [SegmentRef(row["dateint"], row["segment_id"]) for row in tx.execute(statement, values).fetchall()]


def watermarked_refs(
    tx: Connection, org_id: uuid.UUID, wants: Sequence[Want]
) -> tuple[list[SegmentRef], int | None]:  # fmt: skip
    """What `live_refs` returns, and the watermark of the signals: what arrived before it is in these segments."""
    statement, values = _select_refs(org_id, wants)
    # One statement is one round trip and one snapshot. The row without a segment is the watermark.
    rows = tx.execute(
        f"SELECT refs.*, NULL AS watermark_ms FROM ({statement}) AS refs"  # noqa: S608
        f" UNION ALL SELECT NULL, NULL, watermark_ms FROM ({WATERMARK_MS}) AS least",
        [*values, org_id, ",".join({want.signal for want in wants})],
    ).fetchall()
    refs = [SegmentRef(row["dateint"], row["segment_id"]) for row in rows if row["segment_id"] is not None]
    return refs, next(row["watermark_ms"] for row in rows if row["segment_id"] is None)


def _select_refs(org_id: uuid.UUID, wants: Sequence[Want]) -> tuple[LiteralString, list[object]]:
    """The statement and its parameters.

    They are scalars: preparing six arrays takes psycopg longer than PostgreSQL takes to answer. With the bounds of the
    days, PostgreSQL skips the partitions of other days. An undated segment may lie anywhere.
    """
    days = [days_of(want.time_range) for want in wants]
    overlaps = ["(s.signal = %s AND s.tier_s = %s AND s.start_ns < %s AND s.end_ns > %s)"] * len(wants)
    statement = (
        "SELECT s.dateint, s.segment_id FROM segment s"
        " WHERE s.org_id = %s AND s.state = 'live' AND (s.dateint BETWEEN %s AND %s OR s.dateint = %s) AND "
    )
    bounds = [(want.signal, want.tier_s, want.time_range.end_ns, want.time_range.start_ns) for want in wants]
    first, last = min(first for first, _ in days), max(last for _, last in days)
    return statement + f"({' OR '.join(overlaps)})", [org_id, first, last, UNDATED, *chain.from_iterable(bounds)]


def load_segments(tx: Connection, refs: Sequence[SegmentRef]) -> list[Segment]:
    """What those segments are, whatever their state."""
    rows = tx.execute(
        SELECT_SEGMENTS + " JOIN unnest(%s::int[], %s::uuid[]) AS r(dateint, segment_id)"
        " ON s.dateint = r.dateint AND s.segment_id = r.segment_id",
        [[ref.dateint for ref in refs], [ref.segment_id for ref in refs]],
    ).fetchall()
    return [segment_of_row(row) for row in rows]


def load_id_filters(tx: Connection, refs: Sequence[SegmentRef]) -> dict[uuid.UUID, bytes]:
    """Return the id filter of each segment; empty bytes for one that has none, and so may hold every id."""
    rows = tx.execute(
        "SELECT s.segment_id, s.id_filter FROM segment s JOIN unnest(%s::int[], %s::uuid[]) AS r(dateint, segment_id)"
        " ON s.dateint = r.dateint AND s.segment_id = r.segment_id",
        [[ref.dateint for ref in refs], [ref.segment_id for ref in refs]],
    ).fetchall()
    return {row["segment_id"]: bytes(row["id_filter"] or b"") for row in rows}
