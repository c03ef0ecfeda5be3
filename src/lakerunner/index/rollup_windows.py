"""Windows of rollups in the index: marked dirty with every change of raw rows, taken by work items, made clean.

`generation` counts the changes. Whoever changes raw rows raises it in the same transaction. A rollup reads it together
with the list of segments, and its commit makes the window clean only if nobody raised it since.

Windows of a day may be joined (`joined_windows.py`). A transaction that touches windows by their time holds a lock of
the org that joining excludes: a statement that waits for a row that is then replaced would not see what replaces it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

from psycopg.rows import DictRow

from lakerunner.index.database import Connection
from lakerunner.index.segments import days_of
from lakerunner.model.rollup_window import (
    CLOSED_AFTER_NS,
    DAY_SOURCE_TIER_S,
    SETTLE_NS,
    Window,
    days_of_rows,
    last_row_ns,
    source_tier_s,
    windows_of_day,
)
from lakerunner.model.segment import RAW_TIER_S, UNDATED, Segment, is_dated
from lakerunner.model.signals import METRICS
from lakerunner.model.signals.tiers import ROLLED_TIERS_S
from lakerunner.model.time import NS_PER_DAY, TimeRange

#: Windows that one scan announces: of one org, so that none keeps the others waiting, and of all.
_PER_ORG, _PER_SCAN = 500, 5_000

_COLUMNS = "w.org_id, w.tier_s, w.start_ns, w.end_ns, w.generation, w.dirty"
#: Rows that an open deletion hides from queries are still in the raw segments: until they are gone, nothing is made.
DELETING = (
    "EXISTS (SELECT FROM deletion x WHERE x.org_id = w.org_id AND x.signal = 'metrics'"
    " AND x.state IN ('pending', 'running') AND x.start_ns <= w.end_ns AND x.end_ns > w.start_ns)"
)
#: A window of a day is made of finer tiers, so these come first.
_IS_READY = (
    "w.dirty AND w.item_id IS NULL AND NOT w.sealed AND w.end_ns <= %(over_ns)s"
    " AND (w.tier_s <= %(source)s OR NOT EXISTS (SELECT FROM rollup_window f WHERE f.org_id = w.org_id"
    " AND f.tier_s = %(source)s AND f.dirty AND NOT f.sealed AND f.start_ns >= w.start_ns AND f.start_ns < w.end_ns))"
    f" AND NOT {DELETING}"
)
#: A clean window of a closed day in which nothing is still to be made.
_IS_JOINABLE = (
    "NOT w.settled AND w.tier_s <= 300 AND NOT w.dirty AND w.item_id IS NULL AND w.end_ns <= %(closed_ns)s + %(day)s"
    " AND (w.start_ns / %(day)s + 1) * %(day)s <= %(closed_ns)s"
    " AND NOT EXISTS (SELECT FROM rollup_window f WHERE f.org_id = w.org_id AND f.tier_s <= 300 AND f.dirty"
    " AND NOT f.sealed AND f.start_ns >= w.start_ns / %(day)s * %(day)s"
    " AND f.start_ns < (w.start_ns / %(day)s + 1) * %(day)s)"
    f" AND NOT {DELETING}"
)


def share_windows(tx: Connection, org_id: uuid.UUID) -> None:
    """Keep windows of the org from being joined until the transaction ends.

    Taken before rows of segments are locked: a join locks these after its own lock.
    """
    tx.execute("SELECT pg_advisory_xact_lock_shared(hashtextextended('lakerunner-windows ' || %s::text, 0))", [org_id])


def hold_windows(tx: Connection, org_id: uuid.UUID) -> None:
    """Wait until no other transaction changes windows of the org by their time, and keep it so."""
    tx.execute("SELECT pg_advisory_xact_lock(hashtextextended('lakerunner-windows ' || %s::text, 0))", [org_id])


def mark_inserted(tx: Connection, segments: Sequence[Segment]) -> None:
    """Mark the windows of new raw segments, which have new rows. Segments of tiers and other signals have none."""
    by_org: dict[uuid.UUID, list[TimeRange]] = {}
    for segment in segments:
        if segment.signal == METRICS.name and segment.tier_s == RAW_TIER_S and segment.level == 0:
            by_org.setdefault(segment.org_id, []).append(segment.time_range)
    for org_id in sorted(by_org):
        mark_dirty(tx, org_id, by_org[org_id])


def mark_dirty(tx: Connection, org_id: uuid.UUID, ranges: Sequence[TimeRange]) -> None:
    """Raise the generation of all windows in which raw rows were added or removed.

    Days near the present get all their windows with their first row. A wide range, or one far from the present, only
    touches windows that exist: elsewhere, queries read raw rows.
    """
    ranges = [each for each in ranges if each.end_ns > each.start_ns]
    if not ranges:
        return
    now_ns = time.time_ns()
    share_windows(tx, org_id)
    near = [each for each in ranges if each.end_ns - each.start_ns <= NS_PER_DAY and is_dated(each, now_ns)]
    _create_days(tx, org_id, sorted({day for each in near for day in days_of_rows(each)}))
    # Locked in order: transactions that touch the same windows wait for each other and do not deadlock.
    tx.execute(
        "UPDATE rollup_window w SET generation = w.generation + 1, dirty = true,"
        " dirty_at = CASE WHEN w.dirty THEN w.dirty_at ELSE now() END"
        " FROM (SELECT org_id, tier_s, start_ns FROM rollup_window o WHERE org_id = %(org_id)s AND NOT sealed"
        " AND start_ns >= %(from_ns)s AND start_ns < %(to_ns)s AND tier_s = ANY(%(tiers)s)"
        " AND EXISTS (SELECT FROM unnest(%(firsts)s::bigint[], %(lasts)s::bigint[]) AS r(first_ns, last_ns)"
        " WHERE o.start_ns < r.last_ns AND o.end_ns >= r.first_ns)"
        " ORDER BY tier_s, start_ns FOR UPDATE) AS touched"
        " WHERE w.org_id = touched.org_id AND w.tier_s = touched.tier_s AND w.start_ns = touched.start_ns",
        {
            "org_id": org_id,
            "tiers": list(ROLLED_TIERS_S),
            "firsts": [each.start_ns for each in ranges],
            "lasts": [last_row_ns(each) for each in ranges],
            "from_ns": min(each.start_ns for each in ranges) - NS_PER_DAY - 1,
            "to_ns": max(each.end_ns for each in ranges),
        },
    )


def _create_days(tx: Connection, org_id: uuid.UUID, days: Sequence[int]) -> None:
    if not days:
        return
    rows = tx.execute(
        "SELECT start_ns FROM rollup_window WHERE org_id = %s AND tier_s = %s AND start_ns = ANY(%s)",
        [org_id, ROLLED_TIERS_S[-1], [day * NS_PER_DAY for day in days]],
    ).fetchall()
    known = {row["start_ns"] // NS_PER_DAY for row in rows}
    windows = [window for day in days if day not in known for window in windows_of_day(org_id, day)]
    if windows:
        windows.sort(key=lambda window: (window.tier_s, window.start_ns))
        tx.execute(
            "INSERT INTO rollup_window (org_id, tier_s, start_ns, end_ns)"
            " SELECT %(org)s, n.* FROM unnest(%(tiers)s::int[], %(starts)s::bigint[], %(ends)s::bigint[])"
            # Of a day whose coarse tiers have expired, hours may have been joined.
            " AS n(tier_s, start_ns, end_ns) WHERE NOT EXISTS (SELECT FROM rollup_window e WHERE e.org_id = %(org)s"
            " AND e.tier_s = n.tier_s AND e.start_ns < n.start_ns AND e.start_ns >= n.start_ns - %(day)s"
            " AND e.end_ns > n.start_ns) ON CONFLICT DO NOTHING",
            {
                "org": org_id,
                "tiers": [w.tier_s for w in windows],
                "starts": [w.start_ns for w in windows],
                "ends": [w.end_ns for w in windows],
                "day": NS_PER_DAY,
            },
        )


def ready_windows(tx: Connection, windows: Sequence[Window]) -> dict[tuple[uuid.UUID, int, int], Window]:
    """By org, tier and start, the window that the asked one has become or is part of, if something can be done now:
    made (over, dirty, and no item has it), or joined."""
    rows = tx.execute(
        f"SELECT DISTINCT {_COLUMNS}, k.start_ns AS asked_ns FROM"  # noqa: S608
        " unnest(%(orgs)s::uuid[], %(tiers)s::int[], %(starts)s::bigint[]) AS k(org_id, tier_s, start_ns)"
        " JOIN rollup_window w ON w.org_id = k.org_id AND w.tier_s = k.tier_s"
        " AND w.start_ns <= k.start_ns AND w.start_ns > k.start_ns - %(day)s AND w.end_ns > k.start_ns"
        f" WHERE ({_IS_READY}) OR ({_IS_JOINABLE})",
        {**_now(), **dict(zip(("orgs", "tiers", "starts"), window_keys(windows), strict=True))},
    ).fetchall()
    return {(row["org_id"], row["tier_s"], row.pop("asked_ns")): _window(row) for row in rows}


def joinable_days(tx: Connection) -> list[Window]:
    """One window of each closed day that has windows to join, oldest days first; this many of each org."""
    return _in_turn(
        tx,
        f"SELECT DISTINCT ON (w.org_id, w.start_ns / %(day)s) {_COLUMNS} FROM rollup_window w WHERE {_IS_JOINABLE}"  # noqa: S608
        " ORDER BY w.org_id, w.start_ns / %(day)s, w.start_ns",
    )


def due_windows(tx: Connection, pause_s: float) -> list[Window]:
    """The windows that wait to be made, oldest first; this many of each org. Their first change is `pause_s` old."""
    return _in_turn(
        tx,
        f"SELECT {_COLUMNS} FROM rollup_window w WHERE {_IS_READY}"  # noqa: S608
        " AND w.dirty_at <= now() - make_interval(secs => %(pause_s)s)",
        pause_s,
    )


def _in_turn(tx: Connection, found: str, pause_s: float = 0.0) -> list[Window]:
    """The windows that a statement finds, the oldest of each org first, so that no org keeps the others waiting."""
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM (SELECT f.*, row_number() OVER (PARTITION BY f.org_id ORDER BY f.end_ns, f.tier_s)"  # noqa: S608
        f" AS turn FROM ({found}) AS f) AS w WHERE w.turn <= %(per_org)s ORDER BY w.turn, w.org_id LIMIT %(limit)s",
        {**_now(), "pause_s": pause_s, "per_org": _PER_ORG, "limit": _PER_SCAN},
    ).fetchall()
    return [_window(row) for row in rows]


def window_keys(windows: Sequence[Window]) -> tuple[list[uuid.UUID], list[int], list[int]]:
    """Orgs, tiers and starts of windows, as the arrays of a statement."""
    return [w.org_id for w in windows], [w.tier_s for w in windows], [w.start_ns for w in windows]


def _now() -> dict[str, int]:
    now_ns = time.time_ns()
    return {
        "over_ns": now_ns - SETTLE_NS,
        "closed_ns": now_ns - CLOSED_AFTER_NS,
        "source": DAY_SOURCE_TIER_S,
        "day": NS_PER_DAY,
    }


def lock_free(tx: Connection, windows: Sequence[Window]) -> list[Window]:
    """Lock those of the windows that no item has and that are still dirty, or still to be joined, as they were.

    They are returned with their present generation.
    """
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM rollup_window w WHERE (w.org_id, w.tier_s, w.start_ns, w.dirty) IN"  # noqa: S608
        " (SELECT * FROM unnest(%s::uuid[], %s::int[], %s::bigint[], %s::boolean[])) AND w.item_id IS NULL"
        " AND (CASE WHEN w.dirty THEN NOT w.sealed ELSE NOT w.settled END)"
        " ORDER BY w.org_id, w.tier_s, w.start_ns FOR UPDATE",
        [*window_keys(windows), [w.dirty for w in windows]],
    ).fetchall()
    return [_window(row) for row in rows]


def bind_windows(tx: Connection, windows: Sequence[Window], item_id: uuid.UUID) -> None:
    tx.execute(
        "UPDATE rollup_window w SET item_id = %s, bound_at = now()"
        " FROM unnest(%s::uuid[], %s::int[], %s::bigint[]) AS k(org_id, tier_s, start_ns)"
        " WHERE w.org_id = k.org_id AND w.tier_s = k.tier_s AND w.start_ns = k.start_ns",
        [item_id, *window_keys(windows)],
    )


def release_windows(tx: Connection, item_id: uuid.UUID) -> None:
    """Set the windows of an item free. The next attempt waits as if they had just become dirty."""
    _lock_in_order(tx, item_id)
    tx.execute("UPDATE rollup_window SET item_id = NULL, dirty_at = now() WHERE item_id = %s", [item_id])


def _lock_in_order(tx: Connection, item_id: uuid.UUID) -> None:
    """Lock the windows of an item in the order in which `mark_dirty` does, so that the two do not deadlock."""
    tx.execute("SELECT FROM rollup_window WHERE item_id = %s ORDER BY tier_s, start_ns FOR UPDATE", [item_id])


def windows_of_items(tx: Connection, item_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, list[tuple[Window, float]]]:
    rows = tx.execute(
        f"SELECT {_COLUMNS}, w.item_id, extract(epoch FROM now() - w.dirty_at)::float8 AS waited_s"  # noqa: S608
        " FROM rollup_window w WHERE w.item_id = ANY(%s) ORDER BY w.item_id, w.tier_s, w.start_ns",
        [list(item_ids)],
    ).fetchall()
    found: dict[uuid.UUID, list[tuple[Window, float]]] = {}
    for row in rows:
        item_id, waited_s = row.pop("item_id"), row.pop("waited_s")
        found.setdefault(item_id, []).append((_window(row), waited_s))
    return found


def read_generations(tx: Connection, windows: Sequence[Window]) -> tuple[list[Window], bool]:
    """The windows with their present generations; and whether they can be made: the finer tier that they are made of
    is complete, or among them, and no deletion is under way.

    Must run in the snapshot in which the segments are listed.
    """
    rows = tx.execute(
        f"SELECT {_COLUMNS}, {DELETING} AS deleting FROM rollup_window w WHERE (w.org_id, w.tier_s, w.start_ns) IN"  # noqa: S608
        " (SELECT * FROM unnest(%s::uuid[], %s::int[], %s::bigint[])) ORDER BY w.tier_s, w.start_ns",
        window_keys(windows),
    ).fetchall()
    coarse = [window for window in windows if source_tier_s(window.tier_s) != RAW_TIER_S]
    mine = [window.start_ns for window in windows if window.tier_s == DAY_SOURCE_TIER_S]
    missing = tx.execute(
        "SELECT FROM rollup_window f JOIN unnest(%s::uuid[], %s::bigint[], %s::bigint[]) AS k(org_id, start_ns, end_ns)"
        " ON f.org_id = k.org_id AND f.start_ns >= k.start_ns AND f.start_ns < k.end_ns"
        " WHERE f.tier_s = %s AND f.dirty AND NOT f.sealed AND f.start_ns <> ALL(%s) LIMIT 1",
        [
            [w.org_id for w in coarse], [w.start_ns for w in coarse], [w.end_ns for w in coarse], DAY_SOURCE_TIER_S,
            mine,
        ],
    ).fetchone()  # fmt: skip
    deleting = [row.pop("deleting") for row in rows]
    return [_window(row) for row in rows], missing is None and not any(deleting)


def end_windows(tx: Connection, windows: Sequence[Window], item_id: uuid.UUID) -> int:
    """Make windows clean whose generation is still the given one, and supersede their former segments, also lost ones.

    Of windows that were clean when they were read, the generation is compared, and nothing changes but that the item
    no longer has them. Returns how many there were, for the caller to compare.
    """
    if not windows:
        return 0
    _lock_in_order(tx, item_id)
    ended = tx.execute(
        "UPDATE rollup_window w SET item_id = NULL, dirty = false,"
        " made_generation = CASE WHEN k.dirty THEN w.generation ELSE w.made_generation END,"
        " made_at = CASE WHEN k.dirty THEN now() ELSE w.made_at END"
        " FROM unnest(%s::uuid[], %s::int[], %s::bigint[], %s::bigint[], %s::boolean[])"
        " AS k(org_id, tier_s, start_ns, generation, dirty)"
        " WHERE w.org_id = k.org_id AND w.tier_s = k.tier_s AND w.start_ns = k.start_ns"
        " AND w.generation = k.generation AND w.item_id = %s"
        " AND CASE WHEN k.dirty THEN NOT w.sealed ELSE NOT w.dirty END",
        [*window_keys(windows), [w.generation for w in windows], [w.dirty for w in windows], item_id],
    ).rowcount
    windows = [window for window in windows if window.dirty]
    for window in windows:
        first, last = days_of(window.row_range)
        tx.execute(
            "UPDATE segment SET state = 'superseded', superseded_at = now(), superseded_by = %s WHERE org_id = %s"
            " AND signal = %s AND tier_s = %s AND state IN ('live', 'lost')"
            " AND (dateint BETWEEN %s AND %s OR dateint = %s) AND start_ns > %s AND start_ns <= %s",
            [
                item_id, window.org_id, METRICS.name, window.tier_s, first, last, UNDATED, window.start_ns,
                window.end_ns,
            ],
        )  # fmt: skip
    return ended


def seal(tx: Connection, org_id: uuid.UUID, source_s: int, before_ns: int) -> int:
    """Keep forever as they are the windows whose source (raw rows, or a finer tier) expired before that time."""
    tiers = [tier_s for tier_s in ROLLED_TIERS_S if source_tier_s(tier_s) == source_s]
    return tx.execute(
        "UPDATE rollup_window SET sealed = true WHERE org_id = %s AND tier_s = ANY(%s) AND start_ns < %s"
        " AND NOT sealed",
        [org_id, tiers, before_ns],
    ).rowcount


def forget_windows(tx: Connection, org_id: uuid.UUID, tier_s: int, before_ns: int, limit: int) -> int:
    """Delete up to `limit` windows that ended before that time, because the tier itself expired."""
    return tx.execute(
        "DELETE FROM rollup_window WHERE (org_id, tier_s, start_ns) IN (SELECT org_id, tier_s, start_ns"
        " FROM rollup_window WHERE org_id = %s AND tier_s = %s AND end_ns <= %s AND item_id IS NULL LIMIT %s)",
        [org_id, tier_s, before_ns, limit],
    ).rowcount


def _window(row: DictRow) -> Window:
    return Window(**row)
