"""Derived metrics in the index: slots, so that no two samples share a time, and halves of calls that wait.

Both are written in the transaction that ends the item, so a killed worker leaves nothing, and a repeated one changes
nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from lakerunner.index.database import Connection
from lakerunner.model.errors import Unavailable

#: An arbitrary number, equal in every process: first key of the advisory locks of orgs.
_HALVES_LOCK = 0x6C72_6867


@dataclass(frozen=True, slots=True)
class Half:
    """One side of a call. See `pipeline/derive/edges.py`."""

    pair: str
    own: str
    is_client: bool
    service: str
    start_ns: int
    duration_ns: int
    failed: bool
    messaging: bool

    @property
    def key(self) -> tuple[str, bool, str]:
        return self.pair, self.is_client, self.own


@dataclass(frozen=True, slots=True)
class Derivation:
    """What an item's derived metrics need to be counted exactly once."""

    #: Slot and interval of every derived sample.
    slots: Sequence[tuple[int, int]] = ()
    #: Halves that waited and are now counted.
    taken: Sequence[Half] = ()
    #: Halves that wait from now on.
    left: Sequence[Half] = ()


def next_slots(tx: Connection, count: int, slots: int) -> list[int]:
    """Numbers for so many tasks, each below `slots`. A number comes again only after all others."""
    rows = tx.execute(
        "SELECT nextval('derived_slot_number') AS number FROM generate_series(1, %s)", [count]
    ).fetchall()  # fmt: skip
    return [int(row["number"] % slots) for row in rows]


def waiting_halves(tx: Connection, org_id: uuid.UUID, halves: Sequence[Half]) -> list[Half]:
    """Return the other sides of these halves, as far as they wait."""
    rows = tx.execute(
        "SELECT h.pair, h.own, h.is_client, h.service, h.start_ns, h.duration_ns, h.failed, h.messaging"
        " FROM service_graph_half h JOIN unnest(%s::text[], %s::boolean[]) AS w(pair, is_client)"
        " ON h.org_id = %s AND h.pair = w.pair AND h.is_client <> w.is_client",
        [[half.pair for half in halves], [half.is_client for half in halves], org_id],
    ).fetchall()
    return list({half.key: half for half in (Half(**row) for row in rows)}.values())


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
    if not change.taken and not change.left:
        return
    # Two items with the two sides of a call must see each other: one of them waits here.
    tx.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", [_HALVES_LOCK, str(org_id)])
    if change.taken:
        deleted = tx.execute(
            "DELETE FROM service_graph_half h USING unnest(%s::text[], %s::boolean[], %s::text[])"
            " AS w(pair, is_client, own)"
            " WHERE h.org_id = %s AND h.pair = w.pair AND h.is_client = w.is_client AND h.own = w.own",
            [*map(list, zip(*(half.key for half in change.taken), strict=True)), org_id],
        ).rowcount
        if deleted != len(change.taken):
            raise Unavailable("cannot commit derived metrics: another item has paired the same calls")
    if change.left:
        if waiting_halves(tx, org_id, change.left):
            raise Unavailable("cannot commit derived metrics: the other side of a call came meanwhile")
        columns = zip(
            *(
                (h.pair, h.own, h.is_client, h.service, h.start_ns, h.duration_ns, h.failed, h.messaging)
                for h in change.left
            ),
            strict=True,
        )
        tx.execute(
            "INSERT INTO service_graph_half"
            " (org_id, pair, own, is_client, service, start_ns, duration_ns, failed, messaging)"
            " SELECT %s, w.* FROM unnest(%s::text[], %s::text[], %s::boolean[], %s::text[], %s::bigint[], %s::bigint[],"
            " %s::boolean[], %s::boolean[]) AS w ON CONFLICT DO NOTHING",
            [org_id, *map(list, columns)],
        )


def forget_halves(tx: Connection, keep_s: float, limit: int) -> int:
    """Delete halves whose other side did not come in time; return how many."""
    return tx.execute(
        "DELETE FROM service_graph_half WHERE ctid IN (SELECT ctid FROM service_graph_half"
        " WHERE seen_at < now() - make_interval(secs => %s) ORDER BY seen_at LIMIT %s)",
        [keep_s, limit],
    ).rowcount


def forget_slots(tx: Connection, keep_s: float, limit: int) -> int:
    """Delete slots of old items. Later data may, once in thousands of items, share the time of a sample."""
    return tx.execute(
        "DELETE FROM derived_slot WHERE ctid IN (SELECT ctid FROM derived_slot"
        " WHERE made_at < now() - make_interval(secs => %s) ORDER BY made_at LIMIT %s)",
        [keep_s, limit],
    ).rowcount
