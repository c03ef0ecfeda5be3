"""Rejected events: stored with the reason, and counted when the same event comes again."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from lakerunner.model.ids import hashed_id

if TYPE_CHECKING:
    from lakerunner.index.database import Connection

#: Rows kept per kind and source, so that a misbehaving sender cannot fill the index. Metrics count on.
_KEEP_ROWS = 10_000


class RejectedKind(enum.StrEnum):
    #: The event could not be parsed.
    MALFORMED = "malformed"
    #: The event names a bucket that is not configured. One row per bucket, with the latest key.
    FOREIGN = "foreign"
    #: The event was posted with an API key that is not for the object's org.
    DENIED = "denied"
    #: The object has no owner: add a profile, then backfill.
    UNMAPPED = "unmapped"
    #: The object cannot be read, because of its key or because the store refuses it.
    UNUSABLE = "unusable"


#: Kinds about an object. Their rows are deleted when the object gets into the ledger.
_ABOUT_OBJECTS = (RejectedKind.DENIED, RejectedKind.UNMAPPED, RejectedKind.UNUSABLE)


@dataclass(frozen=True, slots=True)
class Rejection:
    kind: RejectedKind
    source: str
    reason: str
    bucket: str = ""
    key: str = ""
    body: str = ""

    @property
    def rejected_id(self) -> uuid.UUID:
        about = "" if self.kind is RejectedKind.FOREIGN else self.key + "\0" + self.body
        return _id(self.kind, self.bucket, about)


@dataclass(frozen=True, slots=True)
class RejectedRow:
    kind: str
    source: str
    bucket: str
    key: str
    reason: str
    body: str
    times: int
    first_at: datetime
    last_at: datetime


def put_rejected(tx: Connection, rejections: Sequence[Rejection], keep_rows: int = _KEEP_ROWS) -> None:
    """Add rejections, or count those that are known; the oldest above the limit of their kind and source go."""
    # Sorted by id, so that two transactions with the same rows wait for each other instead of deadlocking.
    by_id = {each.rejected_id: each for each in sorted(rejections, key=lambda each: each.rejected_id)}
    if not by_id:
        return
    rows = by_id.values()
    counted = tx.execute(
        "INSERT INTO intake_rejected AS r (rejected_id, kind, source, bucket, key, reason, body)"
        " SELECT * FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[])"
        " ON CONFLICT (rejected_id) DO UPDATE SET times = r.times + 1, last_at = now(), source = excluded.source,"
        " key = excluded.key, reason = excluded.reason RETURNING times",
        [
            list(by_id),
            [row.kind for row in rows],
            [row.source for row in rows],
            [_clean(row.bucket) for row in rows],
            [_clean(row.key) for row in rows],
            [_clean(row.reason) for row in rows],
            [_clean(row.body) for row in rows],
        ],
    ).fetchall()
    if all(row["times"] > 1 for row in counted):
        return
    for kind, source in sorted({(row.kind, row.source) for row in rows}):
        # Skips what another process is writing or deleting, instead of a deadlock with it.
        tx.execute(
            "DELETE FROM intake_rejected WHERE rejected_id IN (SELECT rejected_id FROM intake_rejected"
            " WHERE kind = %s AND source = %s ORDER BY last_at DESC, rejected_id OFFSET %s FOR UPDATE SKIP LOCKED)",
            [kind, source, keep_rows],
        )


def clear_rejections(tx: Connection, objects: Sequence[tuple[str, str]]) -> int:
    """Delete the rejections of these objects (bucket, key), which are in the ledger now."""
    if not objects:
        return 0
    ids = [_id(kind, bucket, key + "\0") for kind in _ABOUT_OBJECTS for bucket, key in objects]
    return tx.execute("DELETE FROM intake_rejected WHERE rejected_id = ANY(%s)", [ids]).rowcount


def list_rejected(tx: Connection, kind: RejectedKind | None = None, limit: int = 100) -> list[RejectedRow]:
    """Return the latest rejections, for people."""
    rows = tx.execute(
        "SELECT kind, source, bucket, key, reason, body, times, first_at, last_at FROM intake_rejected"
        " WHERE %(kind)s::text IS NULL OR kind = %(kind)s ORDER BY last_at DESC, rejected_id LIMIT %(limit)s",
        {"kind": kind, "limit": limit},
    ).fetchall()
    return [RejectedRow(**row) for row in rows]


def count_rejected(tx: Connection) -> dict[str, int]:
    """Return the number of rejections by kind."""
    rows = tx.execute("SELECT kind, count(*) AS count FROM intake_rejected GROUP BY kind ORDER BY kind").fetchall()
    return {row["kind"]: row["count"] for row in rows}


def forget_excess(tx: Connection, keep_s: float, keep_rows: int, limit: int) -> int:
    """Delete up to `limit` rejections of each kind: those that did not recur for `keep_s`, and the oldest of too many.

    So neither a misbehaving sender nor a prefix without an owner fills the index. A listing finds again what was about
    objects that still exist.
    """
    return sum(
        tx.execute(
            "DELETE FROM intake_rejected WHERE rejected_id = ANY(ARRAY("
            "(SELECT rejected_id FROM intake_rejected WHERE kind = %(kind)s"
            " AND last_at < now() - make_interval(secs => %(keep_s)s) LIMIT %(limit)s) UNION"
            " (SELECT rejected_id FROM intake_rejected WHERE kind = %(kind)s ORDER BY last_at DESC, rejected_id"
            " OFFSET %(keep_rows)s LIMIT %(limit)s)))",
            {"kind": kind, "keep_s": keep_s, "keep_rows": keep_rows, "limit": limit},
        ).rowcount
        for kind in RejectedKind
    )


def _id(kind: RejectedKind, bucket: str, about: str) -> uuid.UUID:
    return hashed_id(kind.encode(), bucket.encode(), about.encode(errors="surrogatepass"))


def _clean(text: str) -> str:
    """Replace characters that PostgreSQL cannot store."""
    return text.encode(errors="replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
