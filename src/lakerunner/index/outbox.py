"""The outbox: messages that commit with a transaction and are published after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakerunner.index.database import Connection, Database

#: PostgreSQL notifies this channel when a commit adds messages.
CHANNEL = "lakerunner_outbox"
#: The backlog is counted up to here. A larger one says no more about what is wrong, and costs more to count.
MAX_COUNTED = 100_000


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to publish. The bus encodes it; the index only stores it. The topic has no prefix."""

    topic: str
    key: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class Pending:
    outbox_id: int
    message: Outgoing


@dataclass(frozen=True, slots=True)
class Backlog:
    count: int
    oldest_s: float


def put(tx: Connection, messages: Sequence[Outgoing]) -> None:
    """Add messages within the caller's transaction."""
    if not messages:
        return
    tx.execute(
        "INSERT INTO outbox (topic, key, payload) SELECT * FROM unnest(%s::text[], %s::text[], %s::bytea[])",
        [[m.topic for m in messages], [m.key for m in messages], [m.payload for m in messages]],
    )
    tx.execute(f"NOTIFY {CHANNEL}")


def pending(database: Database, limit: int) -> list[Pending]:
    """Return the oldest unpublished messages, in order."""
    with database.transaction() as tx:
        rows = tx.execute(
            "SELECT outbox_id, topic, key, payload FROM outbox WHERE published_at IS NULL ORDER BY outbox_id LIMIT %s",
            [limit],
        ).fetchall()
    return [Pending(row["outbox_id"], Outgoing(row["topic"], row["key"], bytes(row["payload"]))) for row in rows]


def mark_published(database: Database, outbox_ids: Sequence[int]) -> None:
    with database.transaction() as tx:
        tx.execute("UPDATE outbox SET published_at = now() WHERE outbox_id = ANY(%s)", [list(outbox_ids)])


def backlog(tx: Connection) -> Backlog:
    """The unpublished messages; counts no further than `MAX_COUNTED`."""
    row = tx.execute(
        "SELECT (SELECT count(*) FROM (SELECT FROM outbox WHERE published_at IS NULL ORDER BY outbox_id LIMIT %s)"
        " AS counted) AS count,"
        " coalesce((SELECT extract(epoch FROM now() - created_at) FROM outbox WHERE published_at IS NULL"
        " ORDER BY outbox_id LIMIT 1), 0)::float8 AS oldest_s",
        [MAX_COUNTED],
    ).fetchone()
    assert row is not None
    return Backlog(row["count"], row["oldest_s"])


def forget_published(tx: Connection, keep_s: float, limit: int) -> int:
    """Delete up to `limit` messages that were published more than `keep_s` ago; return their number."""
    return tx.execute(
        "DELETE FROM outbox WHERE outbox_id = ANY(ARRAY(SELECT outbox_id FROM outbox WHERE published_at IS NOT NULL"
        " AND published_at < now() - make_interval(secs => %s) ORDER BY published_at LIMIT %s))",
        [keep_s, limit],
    ).rowcount
