"""A consumer on Kafka: a member of a group, whose commits carry a word for the next owner of the partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message, TopicPartition

from lakerunner.bus.consuming import ProgressConsumer, Publish
from lakerunner.bus.contract import Record
from lakerunner.bus.kafka_client import base_config, logger, telling, told_as_ours
from lakerunner.bus.partition import Mark
from lakerunner.bus.progress import MAX_WAITING, Place, Progress
from lakerunner.runtime.settings import BusSettings

#: How long a handler may take before the group gives its partitions to others. A dead process is noticed by the
#: session's timeout; this is only for one that hangs.
_HANG_S = 3_600.0
_COMMITTED_S = 10.0
#: Messages taken from the client at once.
_FETCH = 500
#: The group changes around us: a commit of the generation before is refused, also for partitions that we keep.
_REBALANCING = {KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION}


class KafkaConsumer(ProgressConsumer):
    """While Kafka is away, `poll` returns nothing (the client reconnects by itself) and `commit` is Unavailable.

    A commit in the middle of a rebalance is put off until the next one.
    """

    def __init__(
        self, group: str, topics: Sequence[str], settings: BusSettings, progress: Progress, publish: Publish
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
        self._opening: set[Place] = set()
        #: Came from the client, and belong to partitions that may not be open yet.
        self._arrived: list[Message] = []
        self._paused: set[Place] = set()
        self._client.subscribe(
            [self._prefix + topic for topic in topics],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def close(self) -> None:
        farewells = {place: self._progress[place].farewell() for place in self._progress}
        try:
            self._commit(farewells)
        except KafkaException as error:
            # What cannot be committed any more is delivered again to others.
            logger.warning("closing without commit: %s", error)
        self._progress.drop_all()
        self._client.close()

    def _fetch(self, wait_s: float) -> None:
        with telling(f"consume as {self.group}"):
            self._pause_full()
            self._gather(wait_s)
            self._open_assigned()
        arrived, self._arrived = self._arrived, []
        for message in arrived:
            if (error := message.error()) is None:
                record = record_of(message, self._prefix)
                self._progress.fetched((record.topic, record.partition), [record])
            elif error.fatal():
                raise told_as_ours(error, f"consume as {self.group}")
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

    def _save(self, marks: Mapping[Place, Mark]) -> Mapping[Place, Mark]:
        try:
            self._commit(marks)
        except KafkaException as raised:
            error: KafkaError = raised.args[0]
            if error.code() in _REBALANCING:
                # Still ours until a callback says otherwise: saved with the next commit, or then. Nothing may be
                # dropped here, because the client goes on from where it is.
                return {}
            raise told_as_ours(error, f"commit as {self.group}") from raised
        return marks

    def _commit(self, marks: Mapping[Place, Mark]) -> None:
        if not marks:
            return
        committed = self._client.commit(
            offsets=[
                TopicPartition(self._prefix + topic, partition, mark.committed, mark_to_text(mark))
                for (topic, partition), mark in marks.items()
            ],
            asynchronous=False,
        )
        for place in committed or ():
            if place.error is not None:
                raise KafkaException(place.error)

    def _open_assigned(self) -> None:
        """Read how the last owners ended. Raises while Kafka is away, and is tried again with the next fetch."""
        if not self._opening:
            return
        wanted = [TopicPartition(self._prefix + topic, partition) for topic, partition in self._opening]
        for found in self._client.committed(wanted, timeout=_COMMITTED_S):
            if found.error is not None:
                raise KafkaException(found.error)
            self._progress.open(self._place(found), text_to_mark(found.offset, found.metadata))
        self._opening.clear()

    def _pause_full(self) -> None:
        """Stop the client from fetching what would only wait here, and let it go on when there is room."""
        full = {place for place in self._progress if self._progress[place].waiting_count >= MAX_WAITING}
        roomy = {p for p in self._paused if p in self._progress and self._progress[p].waiting_count < MAX_WAITING // 2}
        if new := full - self._paused:
            self._client.pause([TopicPartition(self._prefix + topic, partition) for topic, partition in new])
        if roomy:
            self._client.resume([TopicPartition(self._prefix + topic, partition) for topic, partition in roomy])
        self._paused = (self._paused | full) - roomy

    def _on_assign(self, _: Consumer, places: list[TopicPartition]) -> None:
        self._opening.update(self._place(place) for place in places)

    def _on_revoke(self, _: Consumer, places: list[TopicPartition]) -> None:
        ours = [place for each in places if (place := self._place(each)) in self._progress]
        try:
            self._commit({place: self._progress[place].farewell() for place in ours})
        except KafkaException as error:
            logger.warning("partitions given away without commit: %s", error)
        self._on_lost(_, places)

    def _on_lost(self, _: Consumer, places: list[TopicPartition]) -> None:
        for each in places:
            place = self._place(each)
            self._progress.drop(place)
            self._opening.discard(place)
            self._paused.discard(place)
        gone = {(each.topic, each.partition) for each in places}
        self._arrived = [m for m in self._arrived if (m.topic(), m.partition()) not in gone]

    def _place(self, place: TopicPartition) -> Place:
        return place.topic.removeprefix(self._prefix), place.partition


def record_of(message: Message, prefix: str) -> Record:
    kind, timestamp_ms = message.timestamp()
    created_at = None if kind == TIMESTAMP_NOT_AVAILABLE else datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    # A key or value may be null when somebody else wrote it: then it is empty, and not readable, like other rubbish.
    key = (message.key() or b"").decode(errors="replace")
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None and partition is not None and offset is not None
    return Record(topic.removeprefix(prefix), partition, offset, key, message.value() or b"", created_at)


def mark_to_text(mark: Mark) -> str:
    """All of a mark but its offset, for the commit's metadata."""
    fields = {"handed": mark.handed, "attempts": mark.attempts, "alone": mark.alone, "member": mark.member}
    return orjson.dumps(fields).decode()


def text_to_mark(offset: int, text: str | None) -> Mark:
    """The mark of a commit; a plain one when it was made by another tool, or there is none."""
    committed = max(0, offset)
    try:
        fields: Any = orjson.loads(text or "{}")
        mark = Mark(
            committed,
            max(committed, int(fields.get("handed", committed))),
            int(fields.get("attempts", 0)),
            bool(fields.get("alone", False)),
            str(fields.get("member", "")),
        )
    except (ValueError, AttributeError, TypeError):
        return Mark(committed, committed)
    return mark
