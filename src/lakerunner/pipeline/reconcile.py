"""Announcing again what nobody ended: with this, a bus that lost everything has lost nothing.

Every object and item is announced at N, 2N, 4N, 8N ... seconds of age. So a long backlog is not multiplied, and
nothing need be kept of what was announced when. Messages that come twice are harmless.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakerunner.bus.announce import object_seen
from lakerunner.index import outbox
from lakerunner.index.database import Connection, Database
from lakerunner.index.leases import Lease, require_held
from lakerunner.index.ledger import RawObject
from lakerunner.index.outbox import Outgoing
from lakerunner.index.work import WorkItem
from lakerunner.pipeline.bundle import STAGE, work_ready

#: Messages of one transaction; the rest follows in the next.
_PAGE = 1_000

#: An age is due when it passed N, 2N, 4N ... within the last `since` seconds. Times are the database's own.
_OBJECTS = (
    "SELECT object_id, org_id, collector, signal, bucket, key, version, size_bytes"
    " FROM (SELECT *, extract(epoch FROM now() - seen_at)::float8 AS age_s FROM raw_object WHERE state = 'seen') AS o"
    " WHERE age_s >= %(after)s AND floor(log(age_s / %(after)s) / log(2.0))"
    " > floor(log(greatest(age_s - %(since)s, 1e-9) / %(after)s) / log(2.0))"
    " AND object_id > %(last)s ORDER BY object_id LIMIT %(page)s"
)
_ITEMS = (
    "SELECT item_id, stage, org_id, signal"
    " FROM (SELECT *, extract(epoch FROM now() - created_at)::float8 AS age_s FROM work_item"
    " WHERE state = 'open' AND stage = %(stage)s) AS i"
    " WHERE age_s >= %(after)s AND floor(log(age_s / %(after)s) / log(2.0))"
    " > floor(log(greatest(age_s - %(since)s, 1e-9) / %(after)s) / log(2.0))"
    " AND item_id > %(last)s ORDER BY item_id LIMIT %(page)s"
)
_NIL = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True)
class Reconciled:
    objects: int
    items: int


def reconcile(database: Database, after_s: float, since_s: float, lease: Lease | None = None) -> Reconciled:
    """Announce objects without an item and items without an end, of that age and more.

    `since_s` is the time since this was last called; a caller that does not know gives a large number.
    """
    terms = {"after": after_s, "since": since_s, "page": _PAGE, "stage": STAGE}
    return Reconciled(
        objects=_announce(database, _OBJECTS, terms, "object_id", lease),
        items=_announce(database, _ITEMS, terms, "item_id", lease),
    )


def _announce(database: Database, query: str, terms: dict[str, object], key: str, lease: Lease | None) -> int:
    announced, last = 0, _NIL
    while True:
        with database.transaction() as tx:
            if lease is not None:
                require_held(tx, lease)
            messages, last = _page(tx, query, {**terms, "last": last}, key)
            outbox.put(tx, messages)
        announced += len(messages)
        if len(messages) < _PAGE:
            return announced


def _page(tx: Connection, query: str, terms: dict[str, object], key: str) -> tuple[list[Outgoing], str]:
    rows = tx.execute(query, terms).fetchall()
    last = str(rows[-1][key]) if rows else _NIL
    if key == "object_id":
        # The id is a hash of the rest, so the object itself has it.
        return [object_seen(RawObject(**{k: v for k, v in row.items() if k != key})) for row in rows], last
    return [work_ready(WorkItem(**row)) for row in rows], last
