"""Derived metrics in the index: slots, so that no two samples share a time, and which halves of calls wait.

Both are written in the transaction that ends the item, so a killed worker leaves nothing, and a repeated one changes
nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lakerunner.index.call_halves import WAITING, change_halves
from lakerunner.index.database import Connection
from lakerunner.model.errors import Unavailable
from lakerunner.model.half_call import HALF


@dataclass(frozen=True, slots=True)
class Derivation:
    """What an item's derived metrics need to be counted exactly once."""

    #: Slot and interval of every derived sample.
    slots: Sequence[tuple[int, int]] = ()
    #: Halves that waited and are now counted (`call_halves.WAITING`), and those that wait from now on (`HALF`).
    taken: pa.Table = field(default_factory=WAITING.empty_table)
    left: pa.Table = field(default_factory=HALF.empty_table)
    #: How many of the taken ones waited in vain, and count as calls to services that send no spans.
    external: int = 0


def next_slots(tx: Connection, count: int, slots: int) -> list[int]:
    """Numbers for this many tasks, each below `slots`. A number comes again only after all others."""
    rows = tx.execute(
        "SELECT nextval('derived_slot_number') AS number FROM generate_series(1, %s)", [count]
    ).fetchall()  # fmt: skip
    return [int(row["number"] % slots) for row in rows]


def apply_derivation(tx: Connection, org_id: uuid.UUID, change: Derivation) -> None:
    """Record slots and halves. Unavailable if another item changed what this one was computed from: it comes again."""
    if change.slots:
        recorded = tx.execute(
            "INSERT INTO derived_slot (org_id, interval_start, slot) SELECT %s, w.interval_start, w.slot"
            " FROM unnest(%s::bigint[], %s::int[]) AS w(interval_start, slot) ON CONFLICT DO NOTHING",
            [org_id, [interval for _, interval in change.slots], [slot for slot, _ in change.slots]],
        ).rowcount
        if recorded != len(change.slots):
            raise Unavailable("cannot commit derived metrics: another item has samples at the same times")
    if change.taken.num_rows or change.left.num_rows:
        change_halves(tx, org_id, change.taken, change.left)


def forget_slots(tx: Connection, keep_s: float, limit: int) -> int:
    """Delete slots of old items. Later data may, once in thousands of items, share the time of a sample."""
    return tx.execute(
        "DELETE FROM derived_slot WHERE ctid IN (SELECT ctid FROM derived_slot"
        " WHERE made_at < now() - make_interval(secs => %s) ORDER BY made_at LIMIT %s)",
        [keep_s, limit],
    ).rowcount
