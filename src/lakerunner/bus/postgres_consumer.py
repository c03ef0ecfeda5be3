"""A consumer on the PostgreSQL bus. One session holds its locks, receives notifications and commits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from time import monotonic

import psycopg
import structlog

from lakerunner.bus.consumer import BaseConsumer, Publish
from lakerunner.bus.consumer_progress import MAX_WAITING, ConsumerProgress, PartitionId
from lakerunner.bus.contract import Record
from lakerunner.bus.partition_progress import Checkpoint
from lakerunner.bus.postgres_cursor import Cursors, FullPartitionId
from lakerunner.index.database import Connection, Database, to_lake_error
from lakerunner.index.session import Session
from lakerunner.model.errors import Conflict

#: Publishers notify this channel with the topic's full name.
CHANNEL = "lakerunner_bus"
#: How often ownership is balanced: the partitions of a member that died are idle for about this long. Those of a member
#: whose host vanished are idle for `bus.session_timeout_s` more.
_BALANCE_S = 0.5

log = structlog.get_logger("lakerunner.bus")


class PostgresConsumer(BaseConsumer):
    """Reconnects by itself after PostgreSQL was away; until then `poll` and `commit` raise Unavailable."""

    def __init__(
        self,
        group: str,
        topics: Sequence[str],
        prefix: str,
        database: Database,
        session_timeout_s: float,
        progress: ConsumerProgress,
        publish: Publish,
    ) -> None:
        super().__init__(group, progress, publish)
        self._names = [prefix + topic for topic in topics]
        self._prefix = prefix
        self._database = database
        self._session_timeout_s = session_timeout_s
        self._session: Session | None = None
        self._cursors: Cursors | None = None
        self._balance_at_s = 0.0

    def close(self) -> None:
        if self._cursors is not None:
            with suppress(psycopg.Error):
                # Messages that cannot be committed any more go to others: closing the connection frees the locks.
                self._cursors.save(
                    {
                        self._full(partition_id): self._progress[partition_id].final_checkpoint()
                        for partition_id in self._progress
                    }
                )
        self._forget_session()

    def _fetch(self, wait_s: float) -> None:
        with self._losing_all_on_error():
            connection, cursors = self._connected()
            if monotonic() >= self._balance_at_s:
                self._balance(cursors)
                self._balance_at_s = monotonic() + _BALANCE_S
            found = self._fetch_waiting(connection)
            # Without a notice there is nothing new: an idle consumer costs one statement per poll.
            if not found and wait_s > 0 and self._is_notified(connection, wait_s):
                self._fetch_waiting(connection)

    def _save(self, checkpoints: Mapping[PartitionId, Checkpoint]) -> Mapping[PartitionId, Checkpoint]:
        if not checkpoints:
            return checkpoints
        with self._losing_all_on_error():
            _, cursors = self._connected()
            lost = cursors.save(
                {self._full(partition_id): checkpoint for partition_id, checkpoint in checkpoints.items()}
            )
        if not lost:
            return checkpoints
        self._progress.saved(
            {
                partition_id: checkpoint
                for partition_id, checkpoint in checkpoints.items()
                if self._full(partition_id) not in lost
            }
        )
        for partition_id in lost:
            self._progress.drop(self._short(partition_id))
            cursors.fences.pop(partition_id, None)
        raise Conflict(f"cannot commit {len(lost)} partitions of {self.group}: another consumer has taken them over")

    def _connected(self) -> tuple[Connection, Cursors]:
        if self._session is not None and self._cursors is not None:
            return self._session.connection, self._cursors
        # All ownership was lost with the old session.
        self._forget_session()
        self._session = Session(self._database, self._session_timeout_s)
        connection = self._session.connection
        # If PostgreSQL crashes, a lost commit only means redelivery, which is normal. Waiting for the disk at every
        # hand-out would cost more.
        connection.execute("SET synchronous_commit = off")
        connection.execute(f"LISTEN {CHANNEL}")
        self._cursors = Cursors(connection, self.group, self._names)
        self._cursors.join()
        self._balance_at_s = 0.0
        return connection, self._cursors

    def _balance(self, cursors: Cursors) -> None:
        membership = cursors.membership()
        excess = set(cursors.excess(membership))
        for partition_id in self._progress:
            self._progress[partition_id].leaving = self._full(partition_id) in excess
        idle = [partition_id for partition_id in excess if self._progress[self._short(partition_id)].out_count == 0]
        if idle:
            cursors.save(
                {partition_id: self._progress[self._short(partition_id)].final_checkpoint() for partition_id in idle}
            )
            cursors.release(idle)
            for partition_id in idle:
                self._progress.drop(self._short(partition_id))
        for partition_id in cursors.wanted(membership):
            found = cursors.acquire(partition_id)
            if found is not None:
                self._progress.open(self._short(partition_id), found)
                log.debug("partition taken", topic=partition_id[0], partition=partition_id[1], group=self.group)

    def _fetch_waiting(self, connection: Connection) -> bool:
        """Fetch messages for partitions with few waiting ones; return whether any came."""
        hungry = [
            partition_id
            for partition_id in self._progress
            if self._progress[partition_id].waiting_count < MAX_WAITING // 2
        ]
        if not hungry:
            return False
        rows = connection.execute(
            "SELECT m.* FROM unnest(%s::text[], %s::int[], %s::bigint[]) AS w (topic, partition, position)"
            " CROSS JOIN LATERAL (SELECT topic, partition, at_offset, key, payload, created_at FROM bus_message b"
            " WHERE b.topic = w.topic AND b.partition = w.partition AND b.at_offset >= w.position"
            " ORDER BY b.at_offset LIMIT %s) m",
            [
                [self._prefix + topic for topic, _ in hungry],
                [partition for _, partition in hungry],
                [self._progress[partition_id].position for partition_id in hungry],
                MAX_WAITING // 2,
            ],
        ).fetchall()
        for row in rows:
            topic, partition = self._short((row["topic"], row["partition"]))
            record = Record(topic, partition, row["at_offset"], row["key"], bytes(row["payload"]), row["created_at"])
            self._progress.fetched((topic, partition), [record])
        return bool(rows)

    def _is_notified(self, connection: Connection, wait_s: float) -> bool:
        """Wait for a message of one of the topics; return whether one was announced in time."""
        return any(notice.payload in self._names for notice in connection.notifies(timeout=wait_s))

    @contextmanager
    def _losing_all_on_error(self) -> Iterator[None]:
        """On an error, drop all partitions: the locks are lost with the session. The next call reconnects."""
        try:
            yield
        except psycopg.Error as error:
            self._forget_session()
            raise to_lake_error(error) from error

    def _forget_session(self) -> None:
        session, self._session, self._cursors = self._session, None, None
        self._progress.drop_all()
        if session is not None:
            session.close()

    def _full(self, partition_id: PartitionId) -> FullPartitionId:
        return self._prefix + partition_id[0], partition_id[1]

    def _short(self, partition_id: FullPartitionId) -> PartitionId:
        return partition_id[0].removeprefix(self._prefix), partition_id[1]
