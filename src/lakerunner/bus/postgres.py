"""The bus in PostgreSQL: partitions with offsets, as in Kafka, in tables of the index."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Any

from lakerunner.bus import topics
from lakerunner.bus.consumer import retry_policy
from lakerunner.bus.consumer_progress import ConsumerProgress
from lakerunner.bus.contract import Lag, Outgoing, Record
from lakerunner.bus.postgres_consumer import CHANNEL, PostgresConsumer
from lakerunner.bus.postgres_cursor import TOPICS_HINT
from lakerunner.index.database import Connection, Database
from lakerunner.model.errors import Missing
from lakerunner.runtime.metrics import BUS_PUBLISHED
from lakerunner.runtime.settings import BusSettings

_COLUMNS = "topic, partition, at_offset, key, payload, created_at"


class PostgresBus:
    """Publishing is one transaction. Each consumer has its own connection, whose locks mark its partitions."""

    def __init__(self, settings: BusSettings, database: Database) -> None:
        self._settings = settings
        self._database = database
        self._prefix = settings.prefix
        #: Full topic name -> number of partitions, which never changes after creation.
        self._partitions: dict[str, int] = {}

    def publish(self, records: Sequence[Outgoing]) -> None:
        if not records:
            return
        with self._database.transaction() as tx:
            self.publish_in(tx, records)
        for topic, count in Counter(record.topic for record in records).items():
            BUS_PUBLISHED.labels(topic).inc(count)

    def publish_in(self, tx: Connection, records: Sequence[Outgoing]) -> None:
        """Publish within the caller's transaction: messages become visible and durable when it commits."""
        names = [self._prefix + record.topic for record in records]
        counts = self._partition_counts(tx, set(names))
        places = [
            (name, topics.partition_of(record.key, counts[name])) for name, record in zip(names, records, strict=True)
        ]
        next_offset = _take_offsets(tx, Counter(places))
        offsets = []
        for place in places:
            offsets.append(next_offset[place])
            next_offset[place] += 1
        tx.execute(
            "INSERT INTO bus_message (topic, partition, at_offset, key, payload)"
            " SELECT * FROM unnest(%s::text[], %s::int[], %s::bigint[], %s::text[], %s::bytea[])",
            [
                names,
                [partition for _, partition in places],
                offsets,
                [record.key for record in records],
                [record.payload for record in records],
            ],
        )
        tx.execute("SELECT pg_notify(%s, name) FROM unnest(%s::text[]) AS name", [CHANNEL, sorted(set(names))])

    def consumer(self, group: str, topics: Sequence[str]) -> PostgresConsumer:
        member = uuid.uuid4().hex
        progress = ConsumerProgress(member, retry_policy(self._settings))
        return PostgresConsumer(
            group, topics, self._prefix, self._database, self._settings.session_timeout_s, progress, self.publish
        )

    def lag(self, group: str | None = None) -> list[Lag]:
        with self._database.transaction() as tx:
            rows = tx.execute(
                "SELECT c.group_name, c.topic, c.partition, p.next_offset, c.member,"
                " greatest(c.committed, coalesce((SELECT min(m.at_offset) FROM bus_message m"
                " WHERE m.topic = c.topic AND m.partition = c.partition), p.next_offset)) AS committed"
                " FROM bus_cursor c JOIN bus_partition p USING (topic, partition)"
                " WHERE (%(group)s::text IS NULL OR c.group_name = %(group)s) AND starts_with(c.topic, %(prefix)s)"
                " ORDER BY c.group_name, c.topic, c.partition",
                {"group": group, "prefix": self._prefix},
            ).fetchall()
        return [
            Lag(
                row["group_name"],
                row["topic"].removeprefix(self._prefix),
                row["partition"],
                row["committed"],
                row["next_offset"],
                row["member"],
            )
            for row in rows
        ]

    def tail(self, topic: str, count: int) -> list[Record]:
        with self._database.transaction() as tx:
            self._partition_counts(tx, {self._prefix + topic})
            rows = tx.execute(
                f"SELECT m.* FROM bus_partition p CROSS JOIN LATERAL (SELECT {_COLUMNS} FROM bus_message b"  # noqa: S608
                " WHERE b.topic = p.topic AND b.partition = p.partition ORDER BY at_offset DESC LIMIT %(count)s) m"
                " WHERE p.topic = %(topic)s"
                " ORDER BY m.created_at DESC, m.partition DESC, m.at_offset DESC LIMIT %(count)s",
                {"topic": self._prefix + topic, "count": count},
            ).fetchall()
        return [self._record(row) for row in reversed(rows)]

    def read(self, topic: str) -> list[Record]:
        with self._database.transaction() as tx:
            self._partition_counts(tx, {self._prefix + topic})
            rows = tx.execute(
                f"SELECT {_COLUMNS} FROM bus_message WHERE topic = %s ORDER BY partition, at_offset",  # noqa: S608
                [self._prefix + topic],
            ).fetchall()
        return [self._record(row) for row in rows]

    def trim(self, topic: str, partition: int, before: int) -> None:
        with self._database.transaction() as tx:
            tx.execute(
                "DELETE FROM bus_message WHERE topic = %s AND partition = %s AND at_offset < %s",
                [self._prefix + topic, partition, before],
            )

    def ensure_topics(self) -> list[str]:
        with self._database.transaction() as tx:
            if not self._missing_topics(tx):
                return []
            # Otherwise two processes that start together would both create a topic, perhaps with different counts.
            # Waits for publishers and lets them wait, so only when needed.
            tx.execute("LOCK TABLE bus_partition IN SHARE ROW EXCLUSIVE MODE")
            missing = self._missing_topics(tx)
            for topic in missing:
                tx.execute(
                    "INSERT INTO bus_partition (topic, partition) SELECT %s, n FROM generate_series(0, %s - 1) AS n",
                    [self._prefix + topic.name, 1 if topic.is_dead else self._settings.partitions],
                )
        return [topic.name for topic in missing]

    def _missing_topics(self, tx: Connection) -> list[topics.Topic]:
        known = {row["topic"] for row in tx.execute("SELECT DISTINCT topic FROM bus_partition").fetchall()}
        return [topic for topic in topics.TOPICS if self._prefix + topic.name not in known]

    def ping(self) -> None:
        self._database.ping()

    def close(self) -> None:
        """Do nothing: the caller owns the database."""

    def _record(self, row: dict[str, Any]) -> Record:
        return Record(
            row["topic"].removeprefix(self._prefix),
            row["partition"],
            row["at_offset"],
            row["key"],
            bytes(row["payload"]),
            row["created_at"],
        )

    def _partition_counts(self, tx: Connection, names: set[str]) -> dict[str, int]:
        missing = names - self._partitions.keys()
        if missing:
            rows = tx.execute(
                "SELECT topic, count(*) AS count FROM bus_partition WHERE topic = ANY(%s) GROUP BY topic",
                [sorted(missing)],
            ).fetchall()
            self._partitions.update((row["topic"], row["count"]) for row in rows)
        for name in sorted(names - self._partitions.keys()):
            raise Missing(
                f"cannot find the topic {name} on the bus",
                hint=TOPICS_HINT,
            )
        return self._partitions


def _take_offsets(tx: Connection, wanted: Counter[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Reserve offsets and return the first one per partition. The rows stay locked until the transaction ends."""
    arrays = [[topic for topic, _ in wanted], [partition for _, partition in wanted]]
    # All publishers lock in the same order, so two may wait for each other but never deadlock.
    tx.execute(
        "SELECT 1 FROM bus_partition WHERE (topic, partition) IN (SELECT * FROM unnest(%s::text[], %s::int[]))"
        " ORDER BY topic, partition FOR UPDATE",
        arrays,
    )
    rows = tx.execute(
        "UPDATE bus_partition b SET next_offset = b.next_offset + w.count"
        " FROM unnest(%s::text[], %s::int[], %s::bigint[]) AS w (topic, partition, count)"
        " WHERE b.topic = w.topic AND b.partition = w.partition"
        " RETURNING b.topic, b.partition, b.next_offset - w.count AS first",
        [*arrays, list(wanted.values())],
    ).fetchall()
    return {(row["topic"], row["partition"]): row["first"] for row in rows}


def forget_expired(tx: Connection, settings: BusSettings, limit: int) -> int:
    """Delete up to `limit` of the oldest messages of each partition that have expired; return their number.

    A message that every group has read, or that no group reads, expires after `retention_s`; one that a group has yet
    to read after `unread_retention_s`; a dead letter after `dead_retention_s`. Of a partition whose first message is
    younger, nothing else is looked at.
    """
    return tx.execute(
        "WITH part AS (SELECT topic, partition, coalesce(min(c.committed), p.next_offset) AS passed,"
        " starts_with(topic, %(dead)s) AS is_dead FROM bus_partition p LEFT JOIN bus_cursor c USING (topic, partition)"
        " WHERE starts_with(topic, %(prefix)s) GROUP BY topic, partition, p.next_offset),"
        " kept AS (SELECT *,"
        " now() - make_interval(secs => CASE WHEN is_dead THEN %(dead_s)s ELSE %(read_s)s END) AS read,"
        " now() - make_interval(secs => CASE WHEN is_dead THEN %(dead_s)s ELSE %(unread_s)s END) AS unread FROM part)"
        # By ctid, which never changes because messages are not updated: a join might read the whole table.
        " DELETE FROM bus_message WHERE ctid = ANY(ARRAY(SELECT old.ctid FROM kept,"
        " LATERAL (SELECT created_at FROM bus_message h"
        " WHERE h.topic = kept.topic AND h.partition = kept.partition ORDER BY h.at_offset LIMIT 1) AS head,"
        " LATERAL (SELECT o.ctid, at_offset, created_at FROM bus_message o WHERE o.topic = kept.topic"
        " AND o.partition = kept.partition AND head.created_at < greatest(kept.read, kept.unread)"
        " ORDER BY o.at_offset LIMIT %(limit)s) AS old"
        " WHERE old.created_at < kept.unread OR old.created_at < kept.read AND old.at_offset < kept.passed))",
        {
            "prefix": settings.prefix,
            "dead": settings.prefix + topics.DEAD_PREFIX,
            "read_s": settings.retention_s,
            "unread_s": settings.unread_retention_s,
            "dead_s": settings.dead_retention_s,
            "limit": limit,
        },
    ).rowcount
