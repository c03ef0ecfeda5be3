"""The ledger: every raw object seen within its memory, and its state."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from lakerunner.index import tally
from lakerunner.model.errors import Missing
from lakerunner.model.raw_object import ObjectOutcome, RawObject

if TYPE_CHECKING:
    from lakerunner.index.database import Connection


class ObjectState(enum.StrEnum):
    """seen -> bundled (part of a work item) -> done or quarantined."""

    SEEN = "seen"
    BUNDLED = "bundled"
    DONE = "done"
    QUARANTINED = "quarantined"


def record_seen(tx: Connection, objects: Sequence[RawObject]) -> list[RawObject]:
    """Insert objects; return those that were new, which the caller announces.

    An object that the ledger may have known and forgotten is not new. The horizon is checked again after the insert,
    which may have waited for `forget_ended` to delete the same object's row.
    """
    if not objects:
        return []
    by_id = {obj.object_id: obj for obj in objects}
    rows = tx.execute(
        "INSERT INTO raw_object (object_id, org_id, collector, signal, bucket, key, version, size_bytes, arrived_at)"
        " SELECT o.* FROM (SELECT object_id, org_id, collector, signal, bucket, key, version, size_bytes,"
        # The bucket's clock may be ahead of ours, but nothing arrives in the future.
        " least(now(), to_timestamp(arrived_ns / 1e9)) AS arrived_at FROM unnest(%s::uuid[], %s::uuid[], %s::text[],"
        " %s::text[], %s::text[], %s::text[], %s::text[], %s::bigint[], %s::bigint[]) AS given(object_id, org_id,"
        " collector, signal, bucket, key, version, size_bytes, arrived_ns)) AS o WHERE NOT EXISTS (SELECT FROM"
        " ledger_horizon h WHERE h.org_id = o.org_id AND o.arrived_at <= h.forgotten_until)"
        " ON CONFLICT DO NOTHING RETURNING object_id",
        [
            list(by_id),
            [obj.org_id for obj in by_id.values()],
            [obj.collector for obj in by_id.values()],
            [obj.signal for obj in by_id.values()],
            [obj.bucket for obj in by_id.values()],
            [obj.key for obj in by_id.values()],
            [obj.version for obj in by_id.values()],
            [obj.size_bytes for obj in by_id.values()],
            [obj.arrived_ns for obj in by_id.values()],
        ],
    ).fetchall()
    if not rows:
        return []
    forgotten = tx.execute(
        "DELETE FROM raw_object o USING ledger_horizon h WHERE o.object_id = ANY(%s) AND h.org_id = o.org_id"
        " AND o.arrived_at <= h.forgotten_until RETURNING o.object_id",
        [[row["object_id"] for row in rows]],
    ).fetchall()
    return [by_id[row["object_id"]] for row in rows if row not in forgotten]


def known_stamps(tx: Connection, stamp_ids: Sequence[uuid.UUID]) -> set[uuid.UUID]:
    """Return those stamps under which a file in the ledger was last seen."""
    rows = tx.execute("SELECT stamp_id FROM raw_object WHERE stamp_id = ANY(%s)", [list(stamp_ids)]).fetchall()
    return {row["stamp_id"] for row in rows}


def set_stamps(tx: Connection, stamps: Mapping[uuid.UUID, uuid.UUID]) -> None:
    """Remember under which stamp the file of each object was seen last."""
    if stamps:
        tx.execute(
            "UPDATE raw_object o SET stamp_id = s.stamp_id"
            " FROM unnest(%s::uuid[], %s::uuid[]) AS s(object_id, stamp_id)"
            " WHERE o.object_id = s.object_id AND o.stamp_id IS DISTINCT FROM s.stamp_id",
            [list(stamps), list(stamps.values())],
        )


def lock_seen(tx: Connection, object_ids: Sequence[uuid.UUID]) -> set[uuid.UUID]:
    """Lock those of the objects that have no item yet, until the transaction ends."""
    # In order of id, so that two boxers with the same objects wait for each other and do not deadlock.
    rows = tx.execute(
        "SELECT object_id FROM raw_object WHERE object_id = ANY(%s) AND state = 'seen' ORDER BY object_id FOR UPDATE",
        [list(object_ids)],
    ).fetchall()
    return {row["object_id"] for row in rows}


def bundle(tx: Connection, object_ids: Sequence[uuid.UUID], item_id: uuid.UUID) -> list[uuid.UUID]:
    """Assign objects to an item; return those that were free. An object that already has an item keeps it."""
    rows = tx.execute(
        "UPDATE raw_object SET state = 'bundled', item_id = %s"
        " WHERE object_id = ANY(%s) AND state = 'seen' RETURNING object_id",
        [item_id, list(object_ids)],
    ).fetchall()
    return [row["object_id"] for row in rows]


def release(tx: Connection, item_id: uuid.UUID) -> None:
    """Set the objects of an item free for another item."""
    tx.execute(
        "UPDATE raw_object SET state = 'seen', item_id = NULL WHERE item_id = %s AND state = 'bundled'", [item_id]
    )


def end_objects(tx: Connection, item_id: uuid.UUID, outcomes: Sequence[ObjectOutcome]) -> int:
    """Write the outcomes of the item's objects; return the number of updated rows for the caller to check."""
    if not outcomes:
        return 0
    return tx.execute(
        "UPDATE raw_object o SET state = CASE WHEN e.reason IS NULL THEN 'done' ELSE 'quarantined' END,"
        " reason = e.reason, row_count = e.row_count, ended_at = now()"
        " FROM unnest(%s::uuid[], %s::bigint[], %s::text[]) AS e(object_id, row_count, reason)"
        " WHERE o.object_id = e.object_id AND o.item_id = %s AND o.state = 'bundled'",
        [
            [outcome.object_id for outcome in outcomes],
            [outcome.row_count for outcome in outcomes],
            [outcome.quarantine_reason for outcome in outcomes],
            item_id,
        ],
    ).rowcount


def objects_of_items(tx: Connection, item_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, list[tuple[RawObject, float]]]:
    """The objects of each open item, each with the seconds since it was seen; oldest first, then by key."""
    rows = tx.execute(
        "SELECT item_id, org_id, collector, signal, bucket, key, version, size_bytes,"
        " extract(epoch FROM now() - seen_at)::float8 AS waited_s FROM raw_object"
        " WHERE item_id = ANY(%s) AND state = 'bundled' ORDER BY item_id, seen_at, key",
        [list(item_ids)],
    ).fetchall()
    found: dict[uuid.UUID, list[tuple[RawObject, float]]] = {}
    for row in rows:
        waited_s = row.pop("waited_s")
        found.setdefault(row.pop("item_id"), []).append((RawObject(**row), waited_s))
    return found


@dataclass(frozen=True, slots=True)
class Quarantined:
    object_id: uuid.UUID
    org_id: uuid.UUID
    signal: str
    bucket: str
    key: str
    size_bytes: int
    reason: str
    ended_at: datetime


_QUARANTINED = "SELECT object_id, org_id, signal, bucket, key, size_bytes, reason, ended_at FROM raw_object"


def find_quarantined(tx: Connection, wanted: uuid.UUID) -> Quarantined:
    row = tx.execute(_QUARANTINED + " WHERE object_id = %s AND state = 'quarantined'", [wanted]).fetchone()
    if row is None:
        raise Missing(f"cannot find {wanted} in quarantine", hint="see `lakerunner ingest quarantine list`")
    return Quarantined(**row)


def quarantined(tx: Connection, org_id: uuid.UUID | None = None, limit: int = 100) -> list[Quarantined]:
    """Return the latest objects that could not be read, with the reason."""
    rows = tx.execute(
        _QUARANTINED + " WHERE state = 'quarantined' AND (%(org)s::uuid IS NULL OR org_id = %(org)s)"
        " ORDER BY ended_at DESC, object_id LIMIT %(limit)s",
        {"org": org_id, "limit": limit},
    ).fetchall()
    return [Quarantined(**row) for row in rows]


def release_quarantined(tx: Connection, object_ids: Sequence[uuid.UUID] | None) -> list[RawObject]:
    """Release these objects, or all, to be read again; return them. The caller announces them in this transaction."""
    rows = tx.execute(
        "UPDATE raw_object SET state = 'seen', item_id = NULL, reason = NULL, ended_at = NULL, seen_at = now()"
        " WHERE state = 'quarantined' AND (%(ids)s::uuid[] IS NULL OR object_id = ANY(%(ids)s))"
        " RETURNING org_id, collector, signal, bucket, key, version, size_bytes",
        {"ids": None if object_ids is None else list(object_ids)},
    ).fetchall()
    return [RawObject(**row) for row in rows]


def forget_ended(tx: Connection, state: ObjectState, keep_s: float, limit: int) -> int:
    """Delete up to `limit` objects that ended in this state more than `keep_s` ago; return their number.

    An object may stay in its bucket and be listed or announced again. So the org's horizon moves to the latest arrival
    among the deleted objects, and `record_seen` takes no unknown object from before it.
    """
    row = tx.execute(
        "WITH gone AS (DELETE FROM raw_object WHERE object_id = ANY(ARRAY(SELECT object_id FROM raw_object"  # noqa: S608
        # A literal, because a generic plan can use the partial index only if the state is in the text.
        f" WHERE state = '{state}' AND ended_at < now() - make_interval(secs => %s) ORDER BY ended_at LIMIT %s"
        " FOR UPDATE SKIP LOCKED)) RETURNING org_id, arrived_at), moved AS ("
        " INSERT INTO ledger_horizon AS h (org_id, forgotten_until)"
        " SELECT org_id, max(arrived_at) FROM gone GROUP BY org_id ORDER BY org_id ON CONFLICT (org_id)"
        " DO UPDATE SET forgotten_until = greatest(h.forgotten_until, excluded.forgotten_until))"
        " SELECT count(*) AS forgotten FROM gone",
        [keep_s, limit],
    ).fetchone()
    assert row is not None
    return int(row["forgotten"])


#: Freshness is measured over at most this many objects, so that its cost does not grow with the rate of intake.
_FRESHNESS_OBJECTS = 10_000


@dataclass(frozen=True, slots=True)
class Freshness:
    """Time from seen to visible, for the latest objects of the last minutes; None when there were none."""

    objects: int
    p50_s: float | None
    p99_s: float | None


def freshness(tx: Connection, minutes: int = 5) -> Freshness:
    row = tx.execute(
        "SELECT count(*) AS objects, percentile_cont(0.5) WITHIN GROUP (ORDER BY took_s) AS p50_s,"
        " percentile_cont(0.99) WITHIN GROUP (ORDER BY took_s) AS p99_s FROM (SELECT"
        " extract(epoch FROM ended_at - seen_at)::float8 AS took_s FROM raw_object"
        " WHERE state = 'done' AND ended_at > now() - make_interval(mins => %s) ORDER BY ended_at DESC LIMIT %s)"
        " AS recent",
        [minutes, _FRESHNESS_OBJECTS],
    ).fetchone()
    assert row is not None
    return Freshness(**row)


def count_by_state(tx: Connection) -> dict[str, int]:
    counts = tally.count_by_state(tx, "raw_object")
    return {state.value: counts.get(state.value, 0) for state in ObjectState}
