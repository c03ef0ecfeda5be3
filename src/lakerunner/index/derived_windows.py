"""Stretches of time whose derived metrics count deleted rows: from the request of a deletion until they are made again.

Rules do not cover such a stretch (`rule_coverage.py`). When the last segment of a deletion is rewritten, the hours
that lost rows become due. Whoever makes one again reads all its rows, and the commit compares: the segments and the
rules are still those that were read. Then the new samples become visible and the old ones are hidden, at once.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from psycopg.rows import DictRow
from psycopg.types.json import Jsonb

from lakerunner.index.call_halves import halves_within
from lakerunner.index.database import Connection
from lakerunner.index.segments import SegmentRef, days_of
from lakerunner.model.deletion import DeletionRequest
from lakerunner.model.segment import UNDATED, Segment
from lakerunner.model.time import NS_PER_S, TimeRange

#: Windows are as wide as the parts into which ingest cuts rows: open at the left, closed at the right.
WIDTH_NS = 3_600 * NS_PER_S
#: Who asks for the deletion of samples that were replaced.
CREATED_BY: Final = "made again after a deletion"
#: With this many open deletions, an org gets no further ones from here: it may want to ask for some itself.
_MOST_OPEN = 50
#: A window that ends in the future is made again after this time.
_LONGEST_WAIT_S = 3_600.0


@dataclass(frozen=True, slots=True)
class Due:
    """A stretch of time to be made again, and the windows of deletions in it."""

    org_id: uuid.UUID
    signal: str
    time_range: TimeRange
    keys: tuple[tuple[uuid.UUID, int, int], ...]


@dataclass(frozen=True, slots=True)
class Remade:
    """What a commit must find as it was read, and which samples the new ones replace."""

    due: Due
    catalog_version: int
    #: All segments with rows of the time, and the version of the rules that each was evaluated with.
    read: Mapping[SegmentRef, int]
    #: Hides the samples that are replaced, if there are any.
    replaced: DeletionRequest | None
    may_hold: Callable[[Segment], bool]
    samples: int
    #: Metric -> why its samples stay.
    left_out: Mapping[str, str] = field(default_factory=dict)
    #: Halves of calls that wait, of spans that began in the time, where calls were counted again.
    waiting: pa.Table | None = None


def hide(tx: Connection, deletion_id: uuid.UUID, request: DeletionRequest) -> None:
    """From the request on, derived metrics of its time count rows that queries do not see."""
    tx.execute(
        "INSERT INTO derived_window (deletion_id, org_id, signal, start_ns, end_ns, state)"
        " VALUES (%s, %s, %s, %s, %s, 'hidden')",
        [deletion_id, request.org_id, request.signal, request.start_ns, request.end_ns],
    )


def unhide(tx: Connection, deletion_id: uuid.UUID) -> None:
    """The deletion was cancelled: all rows are there."""
    tx.execute("DELETE FROM derived_window WHERE deletion_id = %s", [deletion_id])


def touch(tx: Connection, touched: Iterable[tuple[uuid.UUID, Segment]]) -> None:
    """Rows of these segments are gone, by these deletions, of which the index knows that they hide something."""
    for deletion_id, segment in touched:
        tx.execute(
            "INSERT INTO derived_window (deletion_id, org_id, signal, start_ns, end_ns, state)"
            " SELECT deletion_id, org_id, signal,"
            " (greatest(start_ns, %(from)s) - 1) / %(width)s * %(width)s + 1,"
            " (least(end_ns, %(to)s) - 2 + %(width)s) / %(width)s * %(width)s + 1, 'waiting'"
            " FROM derived_window WHERE deletion_id = %(id)s AND state = 'hidden'"
            " AND start_ns < %(to)s AND end_ns > %(from)s ON CONFLICT DO NOTHING",
            {
                "id": deletion_id, "from": max(1, segment.time_range.start_ns), "to": segment.time_range.end_ns,
                "width": WIDTH_NS,
            },
        )  # fmt: skip


def rows_are_gone(tx: Connection, deletion_id: uuid.UUID) -> None:
    """The deletion is done: what lost rows is due, and what lost none is as it was."""
    tx.execute("DELETE FROM derived_window WHERE deletion_id = %s AND state = 'hidden'", [deletion_id])
    tx.execute(
        "UPDATE derived_window SET state = 'due', ready_at = least(greatest(now(), to_timestamp(end_ns / 1e9)),"
        " now() + make_interval(secs => %s)) WHERE deletion_id = %s AND state = 'waiting'",
        [_LONGEST_WAIT_S, deletion_id],
    )


def take_due(tx: Connection, wait_s: float, reach_ns: int) -> Due | None:
    """The window that is due longest, with all that overlap it. Others pass it over for `wait_s`, then try too.

    Rows that began up to `reach_ns` before or after a window are read with it, so no deletion may be open there either.
    """
    row = tx.execute(
        "SELECT w.org_id, w.signal, w.start_ns, w.end_ns FROM derived_window w WHERE w.state = 'due'"
        " AND w.ready_at <= now() - make_interval(secs => %s) AND NOT EXISTS (SELECT FROM deletion d"
        " WHERE d.org_id = w.org_id AND d.signal = w.signal AND d.state IN ('pending', 'running')"
        " AND d.start_ns < w.end_ns + %s AND d.end_ns > w.start_ns - %s)"
        " AND (SELECT count(*) FROM deletion d WHERE d.org_id = w.org_id AND d.state IN ('pending', 'running')) < %s"
        " ORDER BY w.ready_at LIMIT 1 FOR UPDATE OF w SKIP LOCKED",
        [wait_s, reach_ns, reach_ns, _MOST_OPEN],
    ).fetchone()
    if row is None:
        return None
    start_ns, end_ns = row["start_ns"], row["end_ns"]
    while True:
        rows = tx.execute(
            "UPDATE derived_window SET ready_at = now() WHERE org_id = %s AND signal = %s AND state = 'due'"
            " AND start_ns < %s AND end_ns > %s RETURNING deletion_id, start_ns, end_ns",
            [row["org_id"], row["signal"], end_ns, start_ns],
        ).fetchall()
        hull = min(each["start_ns"] for each in rows), max(each["end_ns"] for each in rows)
        if hull == (start_ns, end_ns):
            keys = tuple((each["deletion_id"], each["start_ns"], each["end_ns"]) for each in rows)
            return Due(row["org_id"], row["signal"], TimeRange(start_ns, end_ns), keys)
        start_ns, end_ns = hull


def why_kept(tx: Connection, due: Due, time_range: TimeRange) -> str | None:
    """Why rows of this time are missing, so that nothing can be made of them; None if all are there."""
    row = tx.execute(
        "SELECT reason FROM rule_hole WHERE org_id = %(org)s AND signal = %(signal)s AND rule_id = 0"
        " AND reason LIKE '%% have expired' AND start_ns < %(end)s AND end_ns > %(start)s"
        " UNION ALL SELECT 'segment ' || segment_id || ' is lost' FROM segment WHERE org_id = %(org)s"
        " AND signal = %(signal)s AND state = 'lost' AND start_ns < %(end)s AND end_ns > %(start)s LIMIT 1",
        {
            "org": due.org_id, "signal": due.signal, "start": time_range.start_ns, "end": time_range.end_ns,
        },
    ).fetchone()  # fmt: skip
    return None if row is None else str(row["reason"])


def keep(tx: Connection, due: Due, reason: str) -> None:
    """The samples stay as they are, forever."""
    _end(tx, due, "kept", reason=reason)


def clashes(tx: Connection, due: Due) -> dict[int, str]:
    """Rule -> why samples that it made cannot be distinguished from samples that were sent, in this time."""
    rows = tx.execute(
        "SELECT DISTINCT rule_id, reason FROM rule_hole WHERE org_id = %s AND signal = %s AND rule_id <> 0"
        " AND reason LIKE '%%a metric of this name%%' AND start_ns < %s AND end_ns > %s",
        [due.org_id, due.signal, due.time_range.end_ns, due.time_range.start_ns],
    ).fetchall()
    return {row["rule_id"]: row["reason"] for row in rows}


def apply_remade(tx: Connection, remade: Remade, replaced_by: uuid.UUID | None) -> str | None:
    """End the windows, after the old samples were hidden; return what is not as it was read, if anything.

    The segments are compared after the samples to be hidden were listed: an item whose samples are among these has
    its rows among those. They are not locked: a statement that waits for locks does not see what it waited for.
    """
    due = remade.due
    first, last = days_of(due.time_range)
    rows = tx.execute(
        "SELECT dateint, segment_id, rules_version FROM segment WHERE org_id = %s AND signal = %s AND tier_s = 0"
        " AND state = 'live' AND (dateint BETWEEN %s AND %s OR dateint = %s) AND start_ns < %s AND end_ns > %s"
        " ORDER BY dateint, segment_id",
        [due.org_id, due.signal, first, last, UNDATED, due.time_range.end_ns, due.time_range.start_ns],
    ).fetchall()
    live = {SegmentRef(row["dateint"], row["segment_id"]): row["rules_version"] for row in rows}
    if live != remade.read:
        return "segments of its time came or went meanwhile"
    if remade.waiting is not None:
        waiting = halves_within(tx, due.org_id, due.time_range, remade.waiting.num_rows)
        if not waiting.equals(remade.waiting):
            return "calls of its time were paired meanwhile"
    if not _end(tx, due, "made", replaced_by=replaced_by, samples=remade.samples, left_out=remade.left_out):
        return "its windows were made by another item"
    return None


def is_catalog(tx: Connection, due: Due, version: int) -> bool:
    """Whether the rules are those of that version, until the transaction ends."""
    row = tx.execute(
        "SELECT version FROM rule_catalog WHERE org_id = %s AND signal = %s FOR SHARE", [due.org_id, due.signal]
    ).fetchone()
    return (0 if row is None else row["version"]) == version


def forget_replaced(tx: Connection, keep_s: float, limit: int) -> int:
    """Forget deletions of replaced samples that ended this long ago. Receipts of deletions on request are kept."""
    return tx.execute(
        "DELETE FROM deletion WHERE deletion_id IN (SELECT deletion_id FROM deletion WHERE created_by = %s"
        " AND state = 'done' AND ended_at < now() - make_interval(secs => %s) LIMIT %s)",
        [CREATED_BY, keep_s, limit],
    ).rowcount


def windows_of(tx: Connection, deletion_id: uuid.UUID, limit: int = 10_000) -> list[DictRow]:
    """What became of the derived metrics of a deletion, by time."""
    return tx.execute(
        "SELECT start_ns, end_ns, state, reason, replaced_by, samples, left_out, ended_at FROM derived_window"
        " WHERE deletion_id = %s ORDER BY start_ns, end_ns LIMIT %s",
        [deletion_id, limit],
    ).fetchall()


def _end(
    tx: Connection,
    due: Due,
    state: str,
    *,
    reason: str | None = None,
    replaced_by: uuid.UUID | None = None,
    samples: int | None = None,
    left_out: Mapping[str, str] | None = None,
) -> bool:
    keys: Sequence[Sequence[object]] = [list(column) for column in zip(*due.keys, strict=True)]
    ended = tx.execute(
        "UPDATE derived_window w SET state = %s, reason = %s, replaced_by = %s, samples = %s, left_out = %s,"
        " ended_at = now() FROM unnest(%s::uuid[], %s::bigint[], %s::bigint[]) AS k(deletion_id, start_ns, end_ns)"
        " WHERE w.deletion_id = k.deletion_id AND w.start_ns = k.start_ns AND w.end_ns = k.end_ns"
        " AND w.state = 'due'",
        [state, reason, replaced_by, samples, Jsonb(dict(left_out or {})), *keys],
    ).rowcount
    return ended == len(due.keys)
