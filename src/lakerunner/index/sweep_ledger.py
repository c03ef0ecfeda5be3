"""The ledger of the sweeper: what was deleted or repaired, why, when, and how many rows and bytes it had."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from lakerunner.index.database import Connection


@dataclass(frozen=True, slots=True)
class Entry:
    #: "segment", "orphan", "lost", "found" or "partition".
    what: str
    reason: str
    org_id: uuid.UUID | None
    signal: str | None
    #: The id of a segment, the key of an object, or the name of a table.
    name: str
    row_count: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Recorded:
    at: datetime
    what: str
    reason: str
    org_id: uuid.UUID | None
    signal: str | None
    name: str
    row_count: int
    size_bytes: int


def record(tx: Connection, entries: Sequence[Entry]) -> None:
    if not entries:
        return
    columns = [(e.what, e.reason, e.org_id, e.signal, e.name, e.row_count, e.size_bytes) for e in entries]
    tx.execute(
        "INSERT INTO sweep_ledger (what, reason, org_id, signal, name, row_count, size_bytes) SELECT * FROM"
        " unnest(%s::text[], %s::text[], %s::uuid[], %s::text[], %s::text[], %s::bigint[], %s::bigint[])",
        [*map(list, zip(*columns, strict=True))],
    )


def list_entries(tx: Connection, limit: int, what: str | None = None) -> list[Recorded]:
    """The latest entries first."""
    rows = tx.execute(
        "SELECT at, what, reason, org_id, signal, name, row_count, size_bytes FROM sweep_ledger"
        " WHERE (%(what)s::text IS NULL OR what = %(what)s) ORDER BY entry_id DESC LIMIT %(limit)s",
        {"what": what, "limit": limit},
    ).fetchall()
    return [Recorded(**row) for row in rows]


def forget(tx: Connection, keep_s: float, limit: int) -> int:
    """Delete up to `limit` entries that are older."""
    return tx.execute(
        "DELETE FROM sweep_ledger WHERE entry_id = ANY(ARRAY(SELECT entry_id FROM sweep_ledger"
        " WHERE at < now() - make_interval(secs => %s) ORDER BY at LIMIT %s))",
        [keep_s, limit],
    ).rowcount
