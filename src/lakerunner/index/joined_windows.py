"""Joining windows of a closed day: several become one, so that one segment holds their rows.

All windows of a day are locked when it is decided which of them belong together. The commit of the item that wrote
their rows puts one wide window in the place of many, in the transaction that makes its segments live.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from lakerunner.index.database import Connection
from lakerunner.index.rollup_windows import DELETING, window_keys
from lakerunner.model.rollup_window import Window
from lakerunner.model.time import NS_PER_DAY


@dataclass(frozen=True, slots=True)
class DayWindow:
    """A window of a day, with what decides whether it may be made or joined."""

    window: Window
    sealed: bool
    settled: bool
    #: No item has it, and no deletion of its rows is open.
    is_free: bool


def lock_day(tx: Connection, org_id: uuid.UUID, day: int) -> list[DayWindow]:
    """All windows of all tiers that begin in the day, locked in the order in which `mark_dirty` locks."""
    rows = tx.execute(
        "SELECT w.org_id, w.tier_s, w.start_ns, w.end_ns, w.generation, w.dirty, w.sealed, w.settled,"  # noqa: S608
        f" w.item_id IS NULL AND NOT {DELETING} AS is_free FROM rollup_window w"
        " WHERE w.org_id = %s AND w.start_ns >= %s AND w.start_ns < %s ORDER BY w.tier_s, w.start_ns FOR UPDATE OF w",
        [org_id, day * NS_PER_DAY, (day + 1) * NS_PER_DAY],
    ).fetchall()
    return [
        DayWindow(sealed=row.pop("sealed"), settled=row.pop("settled"), is_free=row.pop("is_free"),
                  window=Window(**row))
        for row in rows
    ]  # fmt: skip


def settle(tx: Connection, windows: Sequence[Window]) -> None:
    """Windows that have no neighbours to be joined with stay as they are forever."""
    tx.execute(
        "UPDATE rollup_window w SET settled = true FROM unnest(%s::uuid[], %s::int[], %s::bigint[])"
        " AS k(org_id, tier_s, start_ns) WHERE w.org_id = k.org_id AND w.tier_s = k.tier_s AND w.start_ns = k.start_ns",
        window_keys(windows),
    )


def join(tx: Connection, joined: Sequence[Window], parts: Sequence[Window], settled: bool) -> bool:
    """Put each wide window in the place of its parts, which must be clean. False if they do not fill it alike.

    The generation is one that no part had, so that later work on the wide window is other work than that on a part.
    """
    for wide in joined:
        inside = [each for each in parts if each.tier_s == wide.tier_s and wide.start_ns <= each.start_ns < wide.end_ns]
        rows = tx.execute(
            "DELETE FROM rollup_window w WHERE w.org_id = %s AND w.tier_s = %s AND w.start_ns = ANY(%s) AND NOT w.dirty"
            " RETURNING w.start_ns, w.end_ns, w.generation, w.sealed",
            [wide.org_id, wide.tier_s, [each.start_ns for each in inside]],
        ).fetchall()
        fills = sum(row["end_ns"] - row["start_ns"] for row in rows) == wide.end_ns - wide.start_ns
        if not fills or len({row["sealed"] for row in rows}) != 1:
            return False
        generation = max(row["generation"] for row in rows) + 1
        tx.execute(
            "INSERT INTO rollup_window (org_id, tier_s, start_ns, end_ns, generation, made_generation, dirty, made_at,"
            " sealed, settled) VALUES (%s, %s, %s, %s, %s, %s, false, now(), %s, %s)",
            [
                wide.org_id, wide.tier_s, wide.start_ns, wide.end_ns, generation, generation, rows[0]["sealed"],
                settled or wide.end_ns - wide.start_ns >= NS_PER_DAY,
            ],
        )  # fmt: skip
    return True
