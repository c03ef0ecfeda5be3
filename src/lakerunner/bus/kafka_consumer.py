"""A consumer on Kafka. Its commits carry a checkpoint in their metadata, for the next owner of the partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

import orjson
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message, TopicPartition

from lakerunner.bus.consumer import BaseConsumer, Publish
from lakerunner.bus.consumer_progress import MAX_WAITING, ConsumerProgress, PartitionId
from lakerunner.bus.contract import Record
from lakerunner.bus.kafka_client import base_config, kafka_errors, logger, to_lake_error
from lakerunner.bus.partition_progress import Checkpoint
from lakerunner.runtime.settings import BusSettings

#: How long a handler may take before the group gives its partitions to others. Only for a process that hangs: a dead
#: one is detected by the session timeout.
_HANG_S = 3_600.0
_COMMITTED_S = 10.0
#: Messages taken from the client at once.
_FETCH = 500
#: Errors of a commit during a rebalance. Kafka refuses the old generation, even for partitions that we keep.
_REBALANCING = {KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION}


class KafkaConsumer(BaseConsumer):
    """While Kafka is away, `poll` returns nothing (the client reconnects by itself) and `commit` is Unavailable.

    A commit during a rebalance is postponed to the next commit.

    Every topic has a client of its own, all in one group. A sticky assignment counts the partitions of a client and not
    those of each topic: of two members of three topics, the second got every partition of one topic and none of
    another, so that one process did all the work of a signal.
    """

    def __init__(
        self, group: str, topics: Sequence[str], settings: BusSettings, progress: ConsumerProgress, publish: Publish
    ) -> None:
        super().__init__(group, progress, publish)
        self._prefix = settings.prefix
        session_ms = round(settings.session_timeout_s * 1000)
        config = {
            **base_config(settings),
            "group.id": group,
            "partition.assignment.strategy": "cooperative-sticky",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": max(100, session_ms // 4),
            "max.poll.interval.ms": max(session_ms, round(_HANG_S * 1000)),
            "fetch.wait.max.ms": 100,
            # Finds a returning broker and a new topic soon.
            "topic.metadata.refresh.interval.ms": 10_000,
        }
        #: By topic, without its prefix.
        self._clients = {topic: Consumer(config) for topic in topics}
        #: Assigned partitions whose checkpoint was not read yet.
        self._opening: set[PartitionId] = set()
        #: Messages from the client, whose partitions may not be open yet.
        self._arrived: list[Message] = []
        self._paused: set[PartitionId] = set()
        for topic, client in self._clients.items():
            client.subscribe(
                [self._prefix + topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )

    def close(self) -> None:
        final_checkpoints = {
            partition_id: self._progress[partition_id].final_checkpoint() for partition_id in self._progress
        }
        try:
            self._commit(final_checkpoints)
        except KafkaException as error:
            # Messages that cannot be committed any more are delivered again to others.
            logger.warning("closing without commit: %s", error)
        self._progress.drop_all()
        # At once: a client waits for a Kafka that is away.
        with ThreadPoolExecutor(len(self._clients)) as pool:
            list(pool.map(Consumer.close, self._clients.values()))

    def _fetch(self, wait_s: float) -> None:
        with kafka_errors(f"consume as {self.group}"):
            self._pause_full()
            self._gather(wait_s)
            self._open_assigned()
        arrived, self._arrived = self._arrived, []
        for message in arrived:
            if (error := message.error()) is None:
                record = record_of(message, self._prefix)
                self._progress.fetched((record.topic, record.partition), [record])
            elif error.fatal():
                raise to_lake_error(error, f"consume as {self.group}")
            else:
                # A topic that does not exist yet, a leader that moves: the client retries by itself.
                logger.info("while consuming as %s: %s", self.group, error.str())

    def _gather(self, wait_s: float) -> None:
        """Take the messages that the client has fetched.

        One by one: a batch could contain messages from before and after a rebalance, and one from before would be
        mistaken for the start of the new assignment.
        """
        for client in self._clients.values():
            # The wait is shared; after the first message nobody waits.
            message = client.poll(0.0 if self._arrived else wait_s / len(self._clients))
            most = len(self._arrived) + _FETCH
            while message is not None:
                self._arrived.append(message)
                message = client.poll(0) if len(self._arrived) < most else None

    def _save(self, checkpoints: Mapping[PartitionId, Checkpoint]) -> Mapping[PartitionId, Checkpoint]:
        try:
            self._commit(checkpoints)
        except KafkaException as raised:
            error: KafkaError = raised.args[0]
            if error.code() in _REBALANCING:
                # The partitions are ours until a callback says otherwise, and are saved with the next commit or in that
                # callback. Nothing may be dropped here, because the client continues from its position.
                return {}
            raise to_lake_error(error, f"commit as {self.group}") from raised
        return checkpoints

    def _commit(self, checkpoints: Mapping[PartitionId, Checkpoint]) -> None:
        for topic, places in self._by_topic(checkpoints):
            committed = self._clients[topic].commit(
                offsets=[
                    TopicPartition(place.topic, place.partition, checkpoint.committed, checkpoint_to_text(checkpoint))
                    for place in places
                    for checkpoint in [checkpoints[topic, place.partition]]
                ],
                asynchronous=False,
            )
            for each in committed or ():
                if each.error is not None:
                    raise KafkaException(each.error)

    def _open_assigned(self) -> None:
        """Read the checkpoints of new partitions. Raises while Kafka is away; the next fetch tries again."""
        if not self._opening:
            return
        for topic, wanted in self._by_topic(self._opening):
            for found in self._clients[topic].committed(wanted, timeout=_COMMITTED_S):
                if found.error is not None:
                    raise KafkaException(found.error)
                self._progress.open(self._partition_id(found), text_to_checkpoint(found.offset, found.metadata))
                self._opening.discard(self._partition_id(found))

    def _pause_full(self) -> None:
        """Pause the client for partitions with many waiting messages, and resume it when there are fewer."""
        full = {
            partition_id for partition_id in self._progress if self._progress[partition_id].waiting_count >= MAX_WAITING
        }
        drained = {
            p for p in self._paused if p in self._progress and self._progress[p].waiting_count < MAX_WAITING // 2
        }
        for topic, places in self._by_topic(full - self._paused):
            self._clients[topic].pause(places)
        for topic, places in self._by_topic(drained):
            self._clients[topic].resume(places)
        self._paused = (self._paused | full) - drained

    def _on_assign(self, _: Consumer, assigned: list[TopicPartition]) -> None:
        self._opening.update(self._partition_id(each) for each in assigned)

    def _on_revoke(self, _: Consumer, revoked: list[TopicPartition]) -> None:
        ours = [partition_id for each in revoked if (partition_id := self._partition_id(each)) in self._progress]
        try:
            self._commit({partition_id: self._progress[partition_id].final_checkpoint() for partition_id in ours})
        except KafkaException as error:
            logger.warning("partitions given away without commit: %s", error)
        self._on_lost(_, revoked)

    def _on_lost(self, _: Consumer, lost: list[TopicPartition]) -> None:
        for each in lost:
            partition_id = self._partition_id(each)
            self._progress.drop(partition_id)
            self._opening.discard(partition_id)
            self._paused.discard(partition_id)
        gone = {(each.topic, each.partition) for each in lost}
        self._arrived = [m for m in self._arrived if (m.topic(), m.partition()) not in gone]

    def _by_topic(self, partition_ids: Iterable[PartitionId]) -> Iterator[tuple[str, list[TopicPartition]]]:
        for topic, group in groupby(sorted(partition_ids), key=itemgetter(0)):
            yield topic, [TopicPartition(self._prefix + topic, partition) for _, partition in group]

    def _partition_id(self, found: TopicPartition) -> PartitionId:
        return found.topic.removeprefix(self._prefix), found.partition


def record_of(message: Message, prefix: str) -> Record:
    kind, timestamp_ms = message.timestamp()
    created_at = None if kind == TIMESTAMP_NOT_AVAILABLE else datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    # Another writer may have left key or value null: it becomes empty, and decoding fails as for any bad message.
    key = (message.key() or b"").decode(errors="replace")
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None and partition is not None and offset is not None
    return Record(topic.removeprefix(prefix), partition, offset, key, message.value() or b"", created_at)


def checkpoint_to_text(checkpoint: Checkpoint) -> str:
    """Encode a checkpoint without its offset, for the commit's metadata."""
    fields = {
        "handed": checkpoint.handed,
        "attempts": checkpoint.attempts,
        "alone": checkpoint.alone,
        "member": checkpoint.member,
    }
    return orjson.dumps(fields).decode()


def text_to_checkpoint(offset: int, text: str | None) -> Checkpoint:
    """Decode the checkpoint of a commit. Without our metadata it holds only the offset."""
    committed = max(0, offset)
    try:
        fields: Any = orjson.loads(text or "{}")
        checkpoint = Checkpoint(
            committed,
            max(committed, int(fields.get("handed", committed))),
            int(fields.get("attempts", 0)),
            bool(fields.get("alone", False)),
            str(fields.get("member", "")),
        )
    except (ValueError, AttributeError, TypeError):
        return Checkpoint(committed, committed)
    return checkpoint
