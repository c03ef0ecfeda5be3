"""A consumer on Kafka: a member of a group, whose commits carry a word for the next owner of the partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message, TopicPartition

from lakerunner.bus.consumer import BaseConsumer, Publish
from lakerunner.bus.consumer_progress import MAX_WAITING, ConsumerProgress, PartitionId
from lakerunner.bus.contract import Record
from lakerunner.bus.kafka_client import base_config, kafka_errors, logger, to_lake_error
from lakerunner.bus.partition_progress import Checkpoint
from lakerunner.runtime.settings import BusSettings

#: How long a handler may take before the group gives its partitions to others. A dead process is noticed by the
#: session's timeout; this is only for one that hangs.
_HANG_S = 3_600.0
_COMMITTED_S = 10.0
#: Messages taken from the client at once.
_FETCH = 500
#: The group changes around us: a commit of the generation before is refused, also for partitions that we keep.
_REBALANCING = {KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION}


class KafkaConsumer(BaseConsumer):
    """While Kafka is away, `poll` returns nothing (the client reconnects by itself) and `commit` is Unavailable.

    A commit in the middle of a rebalance is put off until the next one.
    """

    def __init__(
        self, group: str, topics: Sequence[str], settings: BusSettings, progress: ConsumerProgress, publish: Publish
    ) -> None:
        super().__init__(group, progress, publish)
        self._prefix = settings.prefix
        session_ms = round(settings.session_timeout_s * 1000)
        self._client = Consumer(
            {
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
                # A broker that comes back is looked for soon, and a new topic is seen soon.
                "topic.metadata.refresh.interval.ms": 10_000,
            }
        )
        #: Assigned, but what their last owner left is not read yet.
        self._opening: set[PartitionId] = set()
        #: Came from the client, and belong to partitions that may not be open yet.
        self._arrived: list[Message] = []
        self._paused: set[PartitionId] = set()
        self._client.subscribe(
            [self._prefix + topic for topic in topics],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def close(self) -> None:
        final_checkpoints = {
            partition_id: self._progress[partition_id].final_checkpoint() for partition_id in self._progress
        }
        try:
            self._commit(final_checkpoints)
        except KafkaException as error:
            # What cannot be committed any more is delivered again to others.
            logger.warning("closing without commit: %s", error)
        self._progress.drop_all()
        self._client.close()

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
                # A topic that is not there yet, a leader that moves: the client keeps trying.
                logger.info("while consuming as %s: %s", self.group, error.str())

    def _gather(self, wait_s: float) -> None:
        """Take what the client has.

        One by one: a batch could hold messages from before and after a rebalance, and a message from before would be
        taken for the start of the new assignment.
        """
        message = self._client.poll(wait_s)
        while message is not None:
            self._arrived.append(message)
            message = self._client.poll(0) if len(self._arrived) < _FETCH else None

    def _save(self, checkpoints: Mapping[PartitionId, Checkpoint]) -> Mapping[PartitionId, Checkpoint]:
        try:
            self._commit(checkpoints)
        except KafkaException as raised:
            error: KafkaError = raised.args[0]
            if error.code() in _REBALANCING:
                # Still ours until a callback says otherwise: saved with the next commit, or then. Nothing may be
                # dropped here, because the client goes on from where it is.
                return {}
            raise to_lake_error(error, f"commit as {self.group}") from raised
        return checkpoints

    def _commit(self, checkpoints: Mapping[PartitionId, Checkpoint]) -> None:
        if not checkpoints:
            return
        committed = self._client.commit(
            offsets=[
                TopicPartition(self._prefix + topic, partition, checkpoint.committed, checkpoint_to_text(checkpoint))
                for (topic, partition), checkpoint in checkpoints.items()
            ],
            asynchronous=False,
        )
        for partition_id in committed or ():
            if partition_id.error is not None:
                raise KafkaException(partition_id.error)

    def _open_assigned(self) -> None:
        """Read how the last owners ended. Raises while Kafka is away, and is tried again with the next fetch."""
        if not self._opening:
            return
        wanted = [TopicPartition(self._prefix + topic, partition) for topic, partition in self._opening]
        for found in self._client.committed(wanted, timeout=_COMMITTED_S):
            if found.error is not None:
                raise KafkaException(found.error)
            self._progress.open(self._partition_id(found), text_to_checkpoint(found.offset, found.metadata))
        self._opening.clear()

    def _pause_full(self) -> None:
        """Stop the client from fetching what would only wait here, and let it go on when there is room."""
        full = {
            partition_id for partition_id in self._progress if self._progress[partition_id].waiting_count >= MAX_WAITING
        }
        roomy = {p for p in self._paused if p in self._progress and self._progress[p].waiting_count < MAX_WAITING // 2}
        if new := full - self._paused:
            self._client.pause([TopicPartition(self._prefix + topic, partition) for topic, partition in new])
        if roomy:
            self._client.resume([TopicPartition(self._prefix + topic, partition) for topic, partition in roomy])
        self._paused = (self._paused | full) - roomy

    def _on_assign(self, _: Consumer, partition_ids: list[TopicPartition]) -> None:
        self._opening.update(self._partition_id(partition_id) for partition_id in partition_ids)

    def _on_revoke(self, _: Consumer, partition_ids: list[TopicPartition]) -> None:
        ours = [partition_id for each in partition_ids if (partition_id := self._partition_id(each)) in self._progress]
        try:
            self._commit({partition_id: self._progress[partition_id].final_checkpoint() for partition_id in ours})
        except KafkaException as error:
            logger.warning("partitions given away without commit: %s", error)
        self._on_lost(_, partition_ids)

    def _on_lost(self, _: Consumer, partition_ids: list[TopicPartition]) -> None:
        for each in partition_ids:
            partition_id = self._partition_id(each)
            self._progress.drop(partition_id)
            self._opening.discard(partition_id)
            self._paused.discard(partition_id)
        gone = {(each.topic, each.partition) for each in partition_ids}
        self._arrived = [m for m in self._arrived if (m.topic(), m.partition()) not in gone]

    def _partition_id(self, partition_id: TopicPartition) -> PartitionId:
        return partition_id.topic.removeprefix(self._prefix), partition_id.partition


def record_of(message: Message, prefix: str) -> Record:
    kind, timestamp_ms = message.timestamp()
    created_at = None if kind == TIMESTAMP_NOT_AVAILABLE else datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    # A key or value may be null when somebody else wrote it: then it is empty, and not readable, like other rubbish.
    key = (message.key() or b"").decode(errors="replace")
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None and partition is not None and offset is not None
    return Record(topic.removeprefix(prefix), partition, offset, key, message.value() or b"", created_at)


def checkpoint_to_text(checkpoint: Checkpoint) -> str:
    """All of a checkpoint but its offset, for the commit's metadata."""
    fields = {
        "handed": checkpoint.handed,
        "attempts": checkpoint.attempts,
        "alone": checkpoint.alone,
        "member": checkpoint.member,
    }
    return orjson.dumps(fields).decode()


def text_to_checkpoint(offset: int, text: str | None) -> Checkpoint:
    """The checkpoint of a commit; a plain one when it was made by another tool, or there is none."""
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
