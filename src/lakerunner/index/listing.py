"""Live segments in the order of their keys, a page at a time, for the comparison of the index with the bucket."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lakerunner.index import sweep_ledger
from lakerunner.index.database import Connection, Database
from lakerunner.index.rollup_windows import mark_dirty, share_windows
from lakerunner.index.segments import SELECT_SEGMENTS, SegmentRef, ref, segment_of_row
from lakerunner.index.sweep_ledger import Entry
from lakerunner.model.segment import UNDATED, Segment
from lakerunner.model.signals import METRICS
from lakerunner.model.time import NS_PER_DAY, NS_PER_HOUR, dateint

#: Segments per statement.
_PAGE = 1_000


@dataclass(frozen=True, slots=True, order=True)
class SegmentFolder:
    """Segments whose objects share the prefix db/org/collector/day/signal/."""

    org_id: uuid.UUID
    collector: str
    #: Days since 1970.
    day: int
    signal: str

    @property
    def dateint(self) -> int:
        return dateint(self.day * NS_PER_DAY)


def months(tx: Connection) -> list[int]:
    """The partitions that there are, as the month of their days; that of undated segments is 0."""
    rows = tx.execute(
        "SELECT substr(c.relname, 9)::int AS month FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
        " WHERE i.inhparent = 'segment'::regclass ORDER BY 1"
    ).fetchall()
    return [row["month"] for row in rows]


def folders(tx: Connection, month: int) -> list[SegmentFolder]:
    """The folders with live segments that the index stores under days of this month. Reads the whole partition."""
    rows = tx.execute(
        "SELECT DISTINCT org_id, collector, start_ns / %s AS day, signal FROM segment"
        " WHERE dateint >= %s AND dateint < %s AND state = 'live'",
        [NS_PER_DAY, month * 100, (month + 1) * 100],
    ).fetchall()
    return sorted(SegmentFolder(**row) for row in rows)


def segments_of(database: Database, folder: SegmentFolder) -> Iterator[Segment]:
    """The live segments of a folder by hour and id, which is the order of their keys."""
    after: tuple[int, uuid.UUID] = (-1, uuid.UUID(int=0))
    start_ns = folder.day * NS_PER_DAY
    while True:
        rows = database.read(
            lambda tx, after=after: tx.execute(  # type: ignore[misc]
                SELECT_SEGMENTS + " WHERE s.org_id = %s AND s.signal = %s AND s.collector = %s AND s.state = 'live'"
                " AND s.dateint IN (%s, %s) AND s.start_ns >= %s AND s.start_ns < %s"
                " AND (s.start_ns / %s, s.segment_id) > (%s, %s) ORDER BY s.start_ns / %s, s.segment_id LIMIT %s",
                [
                    folder.org_id, folder.signal, folder.collector, folder.dateint, UNDATED, start_ns,
                    start_ns + NS_PER_DAY, NS_PER_HOUR, *after, NS_PER_HOUR, _PAGE,
                ],
            ).fetchall()
        )  # fmt: skip
        segments = [segment_of_row(row) for row in rows]
        yield from segments
        if len(segments) < _PAGE:
            return
        last = segments[-1]
        after = last.time_range.start_ns // NS_PER_HOUR, last.segment_id


def lost_segments(tx: Connection, limit: int) -> list[Segment]:
    rows = tx.execute(SELECT_SEGMENTS + " WHERE s.state = 'lost' ORDER BY s.segment_id LIMIT %s", [limit]).fetchall()
    return [segment_of_row(row) for row in rows]


def is_live(tx: Connection, name: SegmentRef) -> bool:
    row = tx.execute(
        "SELECT FROM segment WHERE dateint = %s AND segment_id = %s AND state = 'live'", [name.dateint, name.segment_id]
    ).fetchone()
    return row is not None


def mark_found(tx: Connection, segments: Sequence[Segment]) -> int:
    """Make lost segments live again whose objects are back.

    Tiers may have been made without their samples since.
    """
    found = 0
    for segment in segments:
        name = ref(segment)
        share_windows(tx, segment.org_id)
        is_back = tx.execute(
            "UPDATE segment SET state = 'live', superseded_at = NULL, end_reason = NULL"
            " WHERE dateint = %s AND segment_id = %s AND state = 'lost'",
            [name.dateint, name.segment_id],
        ).rowcount
        found += is_back
        if is_back and segment.signal == METRICS.name:
            mark_dirty(tx, segment.org_id, [segment.time_range])
    sweep_ledger.record(
        tx,
        [
            Entry("found", "its objects are back", each.org_id, each.signal, str(each.segment_id), each.row_count,
                  each.size_bytes)
            for each in segments
        ],
    )  # fmt: skip
    return found
