"""Segments in the index: insert them, look them up in one snapshot, supersede them by compare-and-swap."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from psycopg.errors import CheckViolation
from psycopg.rows import DictRow
from psycopg.types.json import Jsonb

from lakerunner.index.database import Connection, Database
from lakerunner.model.errors import Unavailable
from lakerunner.model.segment import UNDATED, Pruning, Segment
from lakerunner.model.time import NS_PER_DAY, TimeRange, dateint

#: An arbitrary number, equal in every process: the holder of this advisory lock may add partitions.
_PARTITION_LOCK = 0x6C72_7061


#: What `segment_of_row` reads.
SEGMENT_COLUMNS = (
    "s.segment_id, s.org_id, s.collector, s.signal, s.start_ns, s.end_ns, s.row_count, s.size_bytes,"
    " s.tier_s, s.level, s.format_version, s.pruning, s.dateint, s.rules_version"
)
SELECT_SEGMENTS = f"SELECT {SEGMENT_COLUMNS} FROM segment s"  # noqa: S608


@dataclass(frozen=True, slots=True, order=True)
class SegmentRef:
    """Identifies a segment's row. The day (`Segment.index_day`) selects the partition."""

    dateint: int
    segment_id: uuid.UUID


def ref(segment: Segment) -> SegmentRef:
    return SegmentRef(segment.index_day, segment.segment_id)


def ensure_partitions(database: Database, dateints: Iterable[int]) -> None:
    """Create the monthly partitions that these days need.

    Attaching a separately created table takes a lock that does not block readers and writers, unlike
    `CREATE TABLE … PARTITION OF`. So this is a separate transaction before the item's commit.
    """
    months = sorted({day // 100 for day in dateints})
    with database.transaction() as tx:
        missing = _without_partition(tx, months)
    if not missing:
        return
    with database.transaction() as tx:
        tx.execute("SELECT pg_advisory_xact_lock(%s)", [_PARTITION_LOCK])
        for month in _without_partition(tx, missing):
            low = month * 100
            tx.execute(f"CREATE TABLE segment_{month} (LIKE segment INCLUDING DEFAULTS INCLUDING CONSTRAINTS)")
            tx.execute(f"ALTER TABLE segment ATTACH PARTITION segment_{month} FOR VALUES FROM ({low}) TO ({low + 100})")


def _without_partition(tx: Connection, months: Sequence[int]) -> list[int]:
    # Queries pg_class because to_regclass answers from a cache that an advisory lock does not refresh: it would miss a
    # partition that another process created while this one waited.
    rows = tx.execute(
        "SELECT month FROM unnest(%s::int[]) AS month WHERE NOT EXISTS (SELECT FROM pg_class c WHERE"
        " c.relname = 'segment_' || month AND c.relnamespace = current_schema()::regnamespace) ORDER BY month",
        [list(months)],
    ).fetchall()
    return [row["month"] for row in rows]


def insert_segments(tx: Connection, segments: Sequence[Segment], made_by: uuid.UUID) -> None:
    """Make segments live. Their partitions must exist."""
    if not segments:
        return
    columns = [
        (
            segment.segment_id, segment.org_id, segment.collector, segment.signal, segment.index_day,
            segment.time_range.start_ns, segment.time_range.end_ns, segment.row_count, segment.size_bytes,
            segment.tier_s, segment.level, segment.format_version, Jsonb(segment.pruning.to_json()),
            segment.id_filter or None, segment.rules_version,
        )
        for segment in segments
    ]  # fmt: skip
    try:
        tx.execute(
            "INSERT INTO segment (segment_id, org_id, collector, signal, dateint, start_ns, end_ns, row_count,"
            " size_bytes, tier_s, level, format_version, pruning, id_filter, rules_version, made_by)"
            " SELECT s.*, %s FROM unnest(%s::uuid[], %s::uuid[], %s::text[], %s::text[], %s::int[], %s::bigint[],"
            " %s::bigint[], %s::bigint[], %s::bigint[], %s::int[], %s::int[], %s::int[], %s::jsonb[],"
            " %s::bytea[], %s::bigint[]) AS s",
            [made_by, *map(list, zip(*columns, strict=True))],
        )
    except CheckViolation as error:
        if "no partition" not in str(error):
            raise
        # The sweeper dropped the empty partition of an old month after `ensure_partitions` had seen it.
        raise Unavailable(
            "cannot insert segments: their partition was dropped meanwhile; it is created again"
        ) from None


def supersede(tx: Connection, refs: Sequence[SegmentRef], by: uuid.UUID) -> int:
    """Mark live segments as superseded; return how many were live, for the caller to compare."""
    if not refs:
        return 0
    return tx.execute(
        "UPDATE segment s SET state = 'superseded', superseded_at = now(), superseded_by = %s"
        " FROM unnest(%s::int[], %s::uuid[]) AS r(dateint, segment_id)"
        " WHERE s.dateint = r.dateint AND s.segment_id = r.segment_id AND s.state = 'live'",
        [by, [r.dateint for r in refs], [r.segment_id for r in refs]],
    ).rowcount


def live_segments(
    tx: Connection, org_id: uuid.UUID, signal: str, time_range: TimeRange, tier_s: int = 0
) -> list[Segment]:
    """Return all live segments of a tier that overlap the range, in one statement and so from one snapshot."""
    first, last = days_of(time_range)
    rows = tx.execute(
        SELECT_SEGMENTS + " WHERE org_id = %s AND signal = %s AND tier_s = %s AND state = 'live'"
        " AND (dateint BETWEEN %s AND %s OR dateint = %s) AND start_ns < %s AND end_ns > %s"
        " ORDER BY start_ns, segment_id",
        [org_id, signal, tier_s, first, last, UNDATED, time_range.end_ns, time_range.start_ns],
    ).fetchall()
    return [segment_of_row(row) for row in rows]


def days_of(time_range: TimeRange) -> tuple[int, int]:
    """The first and the last day under which segments may overlap the range; any undated segment may, too."""
    # A segment is stored under the day of its first row, so one of the day before may reach into the range.
    return dateint(max(0, time_range.start_ns - NS_PER_DAY)), dateint(time_range.end_ns)


def segment_of_row(row: DictRow) -> Segment:
    """The segment of a row of SEGMENT_COLUMNS."""
    time_range = TimeRange(row.pop("start_ns"), row.pop("end_ns"))
    is_dated = row.pop("dateint") != UNDATED
    return Segment(time_range=time_range, pruning=Pruning.from_json(row.pop("pruning")), is_dated=is_dated, **row)
