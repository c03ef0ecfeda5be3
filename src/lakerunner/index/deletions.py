"""Deletions in the index: request, list, begin and cancel them; which rows are hidden; the receipt.

A request lists the live segments that it concerns, in the transaction that stores it. From then on no item may
supersede such a segment unless it applies the deletion (`unapplied`), so that rows are hidden until they are gone.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import DictRow
from psycopg.types.json import Jsonb

from lakerunner.index import derived_windows
from lakerunner.index.database import Connection
from lakerunner.index.deletion_end import end_complete
from lakerunner.index.rollup_windows import mark_dirty, share_windows
from lakerunner.index.rule_holes import DELETED, record_gone
from lakerunner.index.segments import SELECT_SEGMENTS, SegmentRef, days_of, ref, segment_of_row
from lakerunner.model.deletion import DeletionRequest, DeletionState, SegmentDeleted
from lakerunner.model.errors import Conflict, LimitHit, Missing
from lakerunner.model.hidden import HiddenRows
from lakerunner.model.ids import fresh_id
from lakerunner.model.segment import UNDATED, Segment
from lakerunner.model.signals import METRICS
from lakerunner.model.time import TimeRange

#: Open deletions of an org: every query of the org tests the rows of each.
MAX_OPEN = 100
#: Segments that one deletion may concern. Each is read and written again.
MAX_SEGMENTS = 200_000
_COLUMNS = (
    "d.deletion_id, d.org_id, d.signal, d.selector, d.start_ns, d.end_ns, d.state, d.created_by, d.created_at,"
    " d.begins_at, d.ended_at"
)


@dataclass(frozen=True, slots=True)
class Deletion:
    deletion_id: uuid.UUID
    org_id: uuid.UUID
    signal: str
    selector: str
    start_ns: int
    end_ns: int
    state: DeletionState
    created_by: str
    created_at: datetime
    begins_at: datetime
    ended_at: datetime | None
    #: Segments that it concerns, and those that are done.
    segments: int
    segments_done: int
    rows_before: int
    rows_deleted: int


def request_deletion(
    tx: Connection,
    request: DeletionRequest,
    wait_s: float,
    may_hold: Callable[[Segment], bool],
    *,
    makes_holes: bool = True,
) -> uuid.UUID:
    """Store a deletion and the segments that may hold its rows. They are hidden from the commit on.

    It begins `wait_s` later; until then it may be cancelled. What rules made of such rows is no longer right, or gone;
    without `makes_holes`, the caller knows that no rule is concerned.
    """
    # One request of an org at a time, so that the number of open ones is exact.
    tx.execute("SELECT pg_advisory_xact_lock(hashtextextended('lakerunner-delete ' || %s::text, 0))", [request.org_id])
    row = tx.execute(
        "SELECT count(*) AS open FROM deletion WHERE org_id = %s AND state IN ('pending', 'running')", [request.org_id]
    ).fetchone()
    if row is not None and row["open"] >= MAX_OPEN:
        raise LimitHit(f"cannot accept the deletion: {MAX_OPEN} of this org are open", hint="wait until some are done")
    share_windows(tx, request.org_id)
    segments = [each for each in _lock_live(tx, request) if may_hold(each)]
    deletion_id = fresh_id()
    tx.execute(
        "INSERT INTO deletion (deletion_id, org_id, signal, selector, condition, start_ns, end_ns, state, created_by,"
        " begins_at) VALUES (%s, %s, %s, %s, %s, %s, %s, 'pending', %s, now() + make_interval(secs => %s))",
        [
            deletion_id, request.org_id, request.signal, request.selector, request.condition, request.start_ns,
            request.end_ns, request.created_by, wait_s,
        ],
    )  # fmt: skip
    tx.execute(
        "INSERT INTO deletion_segment (deletion_id, dateint, segment_id, rows_before)"
        " SELECT %s, * FROM unnest(%s::int[], %s::uuid[], %s::bigint[])",
        [
            deletion_id, [each.index_day for each in segments], [each.segment_id for each in segments],
            [each.row_count for each in segments],
        ],
    )  # fmt: skip
    _touch_windows(tx, segments, request.start_ns, request.end_ns)
    if makes_holes and segments and request.signal == METRICS.name:
        record_gone(tx, request.org_id, request.signal, request.start_ns, request.end_ns, DELETED)
    elif makes_holes and segments:
        derived_windows.hide(tx, deletion_id, request)
    return deletion_id


def _lock_live(tx: Connection, request: DeletionRequest) -> list[Segment]:
    """The live segments of the time range, locked. Commits under way may replace some: then it is asked again."""
    wanted = TimeRange(request.start_ns, request.end_ns)
    first, last = days_of(wanted)
    where = (
        " WHERE s.org_id = %s AND s.signal = %s AND s.state = 'live'"
        " AND (s.dateint BETWEEN %s AND %s OR s.dateint = %s)"
        " AND s.start_ns < %s AND s.end_ns > %s AND (s.tier_s = 0 OR EXISTS (SELECT FROM rollup_window w"
        " WHERE w.org_id = s.org_id AND w.tier_s = s.tier_s AND w.sealed AND w.start_ns < s.end_ns"
        " AND w.end_ns >= s.start_ns))"
    )
    terms = [request.org_id, request.signal, first, last, UNDATED, wanted.end_ns, wanted.start_ns]
    ordered = where + " ORDER BY s.dateint, s.segment_id LIMIT %s"
    while True:
        rows = tx.execute(
            f"SELECT s.dateint, s.segment_id FROM segment s{ordered} FOR SHARE OF s",  # noqa: S608
            [*terms, MAX_SEGMENTS + 1],
        ).fetchall()
        locked = {SegmentRef(row["dateint"], row["segment_id"]) for row in rows}
        # While it waited for locks, commits took segments away from it. What they made is seen by another statement.
        rows = tx.execute(SELECT_SEGMENTS + ordered, [*terms, MAX_SEGMENTS + 1]).fetchall()
        segments = [segment_of_row(row) for row in rows]
        if len(segments) > MAX_SEGMENTS:
            raise LimitHit(
                f"cannot accept the deletion: it concerns more than {MAX_SEGMENTS:,} segments",
                hint="delete shorter time ranges, one after the other",
            )
        if {ref(each) for each in segments} <= locked:
            return segments


def _touch_windows(tx: Connection, segments: Sequence[Segment], start_ns: int, end_ns: int) -> None:
    """The rollups of the rows are no longer right."""
    by_org: dict[uuid.UUID, list[TimeRange]] = {}
    for each in segments:
        if each.signal == METRICS.name and not each.tier_s:
            times = each.time_range
            cut = TimeRange(max(times.start_ns, start_ns), min(times.end_ns, end_ns))
            by_org.setdefault(each.org_id, []).append(cut)
    for org_id in sorted(by_org):
        mark_dirty(tx, org_id, by_org[org_id])


def begin_deletions(tx: Connection, limit: int, deletion_id: uuid.UUID | None = None) -> list[Segment]:
    """Start deletions whose wait is over; returns the segments to announce. One without segments is done at once."""
    rows = tx.execute(
        "UPDATE deletion SET state = 'running' WHERE deletion_id = ANY(ARRAY(SELECT deletion_id FROM deletion"
        " WHERE state = 'pending' AND begins_at <= now() AND (%(id)s::uuid IS NULL OR deletion_id = %(id)s)"
        " ORDER BY begins_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED)) RETURNING deletion_id",
        {"id": deletion_id, "limit": limit},
    ).fetchall()
    ids = {row["deletion_id"] for row in rows}
    end_complete(tx, ids)
    found = tx.execute(
        SELECT_SEGMENTS + " JOIN deletion_segment d ON d.dateint = s.dateint AND d.segment_id = s.segment_id"
        " WHERE d.deletion_id = ANY(%s) AND d.state = 'pending' AND s.state = 'live'",
        [list(ids)],
    ).fetchall()
    return [segment_of_row(row) for row in found]


def cancel_deletion(tx: Connection, org_id: uuid.UUID, deletion_id: uuid.UUID) -> Deletion:
    """Cancel a pending deletion: its rows are visible again."""
    done = tx.execute(
        "UPDATE deletion SET state = 'cancelled', ended_at = now() WHERE deletion_id = %s AND org_id = %s"
        " AND state = 'pending'",
        [deletion_id, org_id],
    )
    if done.rowcount:
        tx.execute(
            "UPDATE deletion_segment SET state = 'cancelled', ended_at = now() WHERE deletion_id = %s"
            " AND state = 'pending'",
            [deletion_id],
        )
        derived_windows.unhide(tx, deletion_id)
    found = find_deletion(tx, org_id, deletion_id)
    if not done.rowcount:
        raise Conflict(
            f"cannot cancel deletion {deletion_id}: it is {found.state}",
            hint="only a pending deletion can be cancelled",
        )
    return found


def list_deletions(tx: Connection, org_id: uuid.UUID, signal: str | None = None, limit: int = 1_000) -> list[Deletion]:
    """The deletions of an org, the latest first."""
    return _select(
        tx,
        "d.org_id = %(org)s AND (%(signal)s::text IS NULL OR d.signal = %(signal)s)",
        {"org": org_id, "signal": signal, "limit": limit},
    )


def find_deletion(tx: Connection, org_id: uuid.UUID, deletion_id: uuid.UUID) -> Deletion:
    """One deletion of the org. One of another org does not exist."""
    found = _select(
        tx, "d.org_id = %(org)s AND d.deletion_id = %(id)s", {"org": org_id, "id": deletion_id, "limit": 1}
    )  # fmt: skip
    if not found:
        raise Missing(f"cannot find the deletion {deletion_id}", hint="see `lakerunner delete list`")
    return found[0]


def _select(tx: Connection, where: str, terms: dict[str, Any]) -> list[Deletion]:
    rows = tx.execute(
        f"SELECT {_COLUMNS}, t.* FROM deletion d CROSS JOIN LATERAL (SELECT count(*) AS segments,"  # noqa: S608
        " count(*) FILTER (WHERE s.state <> 'pending') AS segments_done,"
        " coalesce(sum(s.rows_before), 0)::bigint AS rows_before,"
        " coalesce(sum(s.rows_before - s.rows_after) FILTER (WHERE s.state IN ('rewritten', 'emptied')), 0)::bigint"
        " AS rows_deleted FROM deletion_segment s WHERE s.deletion_id = d.deletion_id) AS t"
        f" WHERE {where} ORDER BY d.created_at DESC, d.deletion_id LIMIT %(limit)s",
        terms,
    ).fetchall()
    return [Deletion(**{**row, "state": DeletionState(row["state"])}) for row in rows]


def receipt(tx: Connection, deletion_id: uuid.UUID, limit: int = 10_000) -> list[DictRow]:
    """What became of each segment: rows before and after, and the keys and checksums of what replaces it."""
    return tx.execute(
        "SELECT segment_id, state, rows_before, rows_after, made, ended_at FROM deletion_segment"
        " WHERE deletion_id = %s ORDER BY ended_at, segment_id LIMIT %s",
        [deletion_id, limit],
    ).fetchall()


def metrics_present(tx: Connection, deletion: Deletion, names: Sequence[str]) -> list[str]:
    """Which of these metrics may have samples in the time of the deletion, rollups included."""
    first, last = days_of(TimeRange(deletion.start_ns, deletion.end_ns))
    rows = tx.execute(
        "SELECT n.name FROM unnest(%s::text[]) AS n(name) WHERE EXISTS (SELECT FROM segment s WHERE s.org_id = %s"
        " AND s.signal = 'metrics' AND s.state = 'live' AND (s.dateint BETWEEN %s AND %s OR s.dateint = %s)"
        " AND s.start_ns < %s AND s.end_ns > %s AND coalesce(s.pruning->'values'->'metric_name' ? n.name, true))"
        " ORDER BY n.name",
        [sorted(names), deletion.org_id, first, last, UNDATED, deletion.end_ns, deletion.start_ns],
    ).fetchall()
    return [row["name"] for row in rows]


def hidden_rows(tx: Connection, deletion_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, HiddenRows]:
    rows = tx.execute(
        "SELECT deletion_id, start_ns, end_ns, condition FROM deletion WHERE deletion_id = ANY(%s)",
        [list(deletion_ids)],
    ).fetchall()
    return {row["deletion_id"]: HiddenRows(**row) for row in rows}


def pending_of(tx: Connection, refs: Sequence[SegmentRef]) -> dict[SegmentRef, list[HiddenRows]]:
    """What running deletions want of these segments."""
    rows = tx.execute(
        "SELECT s.dateint, s.segment_id, d.deletion_id, d.start_ns, d.end_ns, d.condition FROM deletion_segment s"
        " JOIN unnest(%s::int[], %s::uuid[]) AS r(dateint, segment_id) USING (dateint, segment_id)"
        " JOIN deletion d USING (deletion_id) WHERE s.state = 'pending' AND d.state = 'running'"
        " ORDER BY d.deletion_id",
        [[each.dateint for each in refs], [each.segment_id for each in refs]],
    ).fetchall()
    found: dict[SegmentRef, list[HiddenRows]] = {}
    for row in rows:
        found.setdefault(SegmentRef(row.pop("dateint"), row.pop("segment_id")), []).append(HiddenRows(**row))
    return found


def unapplied(tx: Connection, superseded: Sequence[SegmentRef], outcomes: Sequence[SegmentDeleted]) -> int:
    """How many open deletions of superseded segments the item does not apply: their rows would be visible again."""
    if not superseded:
        return 0
    rows = tx.execute(
        "SELECT s.segment_id, s.deletion_id FROM deletion_segment s JOIN unnest(%s::int[], %s::uuid[])"
        " AS r(dateint, segment_id) USING (dateint, segment_id) WHERE s.state = 'pending'",
        [[each.dateint for each in superseded], [each.segment_id for each in superseded]],
    ).fetchall()
    applied = {(each.segment_id, deletion_id) for each in outcomes for deletion_id in each.deletion_ids}
    return sum((row["segment_id"], row["deletion_id"]) not in applied for row in rows)


def apply_outcomes(tx: Connection, outcomes: Sequence[SegmentDeleted]) -> bool:
    """Record what became of segments, and end deletions that have none left. False if a deletion is no longer open."""
    if not outcomes:
        return True
    pairs = [(deletion_id, each) for each in outcomes for deletion_id in each.deletion_ids]
    columns = [
        (deletion_id, each.dateint, each.segment_id, each.end.value, each.rows_after,
         None if each.made is None else Jsonb(dict(each.made)))
        for deletion_id, each in pairs
    ]  # fmt: skip
    rows = tx.execute(
        "UPDATE deletion_segment s SET state = r.state, rows_after = r.rows_after, made = r.made, ended_at = now()"
        " FROM unnest(%s::uuid[], %s::int[], %s::uuid[], %s::text[], %s::bigint[], %s::jsonb[])"
        " AS r(deletion_id, dateint, segment_id, state, rows_after, made) WHERE s.deletion_id = r.deletion_id"
        " AND s.dateint = r.dateint AND s.segment_id = r.segment_id AND s.state = 'pending'"
        " RETURNING s.dateint, s.segment_id, s.deletion_id",
        [*map(list, zip(*columns, strict=True))],
    ).fetchall()
    if len(rows) != len(pairs):
        return False
    touched = [SegmentRef(each.dateint, each.segment_id) for each in outcomes if each.end != "untouched"]
    found = tx.execute(
        SELECT_SEGMENTS + " JOIN unnest(%s::int[], %s::uuid[]) AS r(dateint, segment_id)"
        " ON s.dateint = r.dateint AND s.segment_id = r.segment_id",
        [[each.dateint for each in touched], [each.segment_id for each in touched]],
    ).fetchall()
    segments = [segment_of_row(row) for row in found]
    _touch_windows(tx, segments, 0, 1 << 62)
    ids = {each.segment_id: each.deletion_ids for each in outcomes}
    derived_windows.touch(tx, [(deletion_id, each) for each in segments for deletion_id in ids[each.segment_id]])
    end_complete(tx, {row["deletion_id"] for row in rows})
    return True
