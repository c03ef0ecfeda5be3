"""The bus on Kafka: an idempotent producer, consumers that rebalance cooperatively, and inspection."""

from __future__ import annotations

import functools
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from lakerunner.bus import topics
from lakerunner.bus.consumer import retry_policy
from lakerunner.bus.consumer_progress import ConsumerProgress
from lakerunner.bus.contract import Lag, Outgoing, Record
from lakerunner.bus.kafka_client import base_config, kafka_errors, to_lake_error
from lakerunner.bus.kafka_consumer import KafkaConsumer, record_of, text_to_checkpoint
from lakerunner.model.errors import LakeError, Missing, Unavailable
from lakerunner.runtime.metrics import BUS_PUBLISHED
from lakerunner.runtime.settings import BusSettings

#: How long a message may take to become durable before publishing fails.
_PUBLISH_S = 10.0
_ADMIN_S = 10.0
#: This long after its time-out a question is given up.
_FORGOTTEN_S = 5.0
_PING_S = 3.0
#: After this long without an answer, questions are asked by a new client.
_REPLACE_S = 15.0
#: A new topic, or one whose broker comes back, has no leader for a moment. This long a question is asked again.
_LEADER_S = 5.0
_NO_LEADER = {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE}

T = TypeVar("T")

Delivered = Callable[[KafkaError | None, Message], None]


class KafkaBus:
    """One producer per process; each consumer has its own client."""

    def __init__(self, settings: BusSettings) -> None:
        self._settings = settings
        self._prefix = settings.prefix
        self._admin = AdminClient(base_config(settings))
        #: Since when pings fail with this client.
        self._unreachable_since_s: float | None = None
        self._producer = self._new_producer()
        self._lock = threading.Lock()

    def publish(self, records: Sequence[Outgoing]) -> None:
        if not records:
            return
        errors: list[KafkaError] = []
        left = len(records)

        def delivered(error: KafkaError | None, _: Message) -> None:
            nonlocal left
            left -= 1
            if error is not None:
                errors.append(error)

        # One publisher at a time: a flush waits for the messages of all threads, and a batch is published in order.
        with self._lock, kafka_errors("publish"):
            for record in records:
                self._produce(record, delivered)
            self._producer.flush(_PUBLISH_S + 5.0)
            if errors and any(error.fatal() for error in errors):
                self._producer = self._new_producer()
        if errors:
            raise _worst(errors)
        if left:
            raise Unavailable(f"cannot publish: {left} of {len(records)} messages were not acknowledged in time")
        for topic, count in Counter(record.topic for record in records).items():
            BUS_PUBLISHED.labels(topic).inc(count)

    def consumer(self, group: str, topics: Sequence[str]) -> KafkaConsumer:
        progress = ConsumerProgress(uuid.uuid4().hex, retry_policy(self._settings))
        return KafkaConsumer(group, topics, self._settings, progress, self.publish)

    def lag(self, group: str | None = None) -> list[Lag]:
        with kafka_errors("ask Kafka for the lag"):
            groups = [group] if group is not None else self._groups()
            committed = [(name, place) for name in groups for place in self._committed(name)]
            ends = _of_leaders(lambda: self._ends([place for _, place in committed]))
        lags = [
            Lag(
                name,
                place.topic.removeprefix(self._prefix),
                place.partition,
                place.offset,
                ends[place.topic, place.partition],
                text_to_checkpoint(place.offset, place.metadata).member,
            )
            for name, place in committed
        ]
        return sorted(lags, key=lambda lag: (lag.group, lag.topic, lag.partition))

    def tail(self, topic: str, count: int) -> list[Record]:
        found = self._read_records(topic, last=count)
        found.sort(key=lambda record: (record.created_at or datetime.min.replace(tzinfo=UTC), record.offset))
        return found[-count:]

    def read(self, topic: str) -> list[Record]:
        return self._read_records(topic, last=None)

    def trim(self, topic: str, partition: int, before: int) -> None:
        with kafka_errors(f"trim {topic}"):
            place = TopicPartition(self._prefix + topic, partition, before)
            for future in self._admin.delete_records([place], request_timeout=_ADMIN_S).values():
                _answer(future)

    def ensure_topics(self) -> list[str]:
        with kafka_errors("create topics"):
            known = self._admin.list_topics(timeout=_ADMIN_S).topics
            missing = [topic for topic in topics.TOPICS if self._prefix + topic.name not in known]
            made = []
            futures = self._admin.create_topics([self._new_topic(t) for t in missing]) if missing else {}
            for name, future in futures.items():
                try:
                    _answer(future)
                    made.append(name.removeprefix(self._prefix))
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                        raise
        return made

    def ping(self) -> None:
        try:
            with kafka_errors("reach Kafka"):
                self._admin.list_topics(timeout=_PING_S)
        except Unavailable:
            self._replace_admin()
            raise
        self._unreachable_since_s = None

    def _replace_admin(self) -> None:
        """Begin anew with a client that has not reached Kafka for long.

        A client whose requests were under way when a broker froze may never find it again.
        """
        now_s = time.monotonic()
        self._unreachable_since_s = self._unreachable_since_s or now_s
        if now_s - self._unreachable_since_s > _REPLACE_S:
            self._unreachable_since_s = now_s
            self._admin = AdminClient(base_config(self._settings))

    def close(self) -> None:
        with self._lock:
            self._producer.flush(_PUBLISH_S)

    def _new_producer(self) -> Producer:
        return Producer(
            {
                **base_config(self._settings),
                "enable.idempotence": True,
                "acks": "all",
                # The same function as topics.partition_of.
                "partitioner": "consistent",
                "linger.ms": 1,
                "delivery.timeout.ms": round(_PUBLISH_S * 1000),
                # Report a missing topic soon instead of waiting half a minute for it.
                "topic.metadata.propagation.max.ms": 2_000,
            }
        )

    def _produce(self, record: Outgoing, delivered: Delivered) -> None:
        while True:
            try:
                self._producer.produce(
                    self._prefix + record.topic, record.payload, record.key.encode(), on_delivery=delivered
                )
            except BufferError:
                # The queue is full until acknowledgements, or the delivery timeout, empty it.
                self._producer.poll(0.1)
            else:
                return

    def _new_topic(self, topic: topics.Topic) -> NewTopic:
        keep_s = self._settings.dead_retention_s if topic.is_dead else self._settings.retention_s
        retention_ms = round(keep_s * 1000)
        replicas = self._settings.replication
        return NewTopic(
            self._prefix + topic.name,
            1 if topic.is_dead else self._settings.partitions,
            replicas,
            # Publishing goes on while one replica is away.
            config={"retention.ms": str(retention_ms), "min.insync.replicas": str(max(1, replicas - 1))},
        )

    def _groups(self) -> list[str]:
        listing = _answer(self._admin.list_consumer_groups(request_timeout=_ADMIN_S))
        return sorted(each.group_id for each in listing.valid)

    def _committed(self, group: str) -> list[TopicPartition]:
        answer = self._admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], request_timeout=_ADMIN_S
        )
        places = _answer(answer[group]).topic_partitions
        return [place for place in places if place.topic.startswith(self._prefix) and place.offset >= 0]

    def _ends(self, places: Sequence[TopicPartition]) -> dict[tuple[str, int], int]:
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        wanted = {TopicPartition(place.topic, place.partition): latest for place in places}
        answer = self._admin.list_offsets(wanted, request_timeout=_ADMIN_S) if wanted else {}
        return {(place.topic, place.partition): _answer(future).offset for place, future in answer.items()}

    def _read_records(self, topic: str, last: int | None) -> list[Record]:
        """Read a topic to its present end: from its start, or only the last messages of each partition."""
        name = self._prefix + topic
        # Partitions are assigned manually and never committed, so this group is never created.
        reader = Consumer(
            {**base_config(self._settings), "group.id": f"look-{uuid.uuid4().hex}", "enable.auto.commit": False,
             "auto.offset.reset": "earliest"}
        )  # fmt: skip
        try:
            with kafka_errors(f"read {topic}"):
                return _read_to_end(reader, name, self._prefix, last)
        finally:
            reader.close()


def _read_to_end(reader: Consumer, name: str, prefix: str, last: int | None) -> list[Record]:
    metadata = reader.list_topics(name, timeout=_ADMIN_S).topics[name]
    if metadata.error is not None:
        raise Missing(f"cannot read the topic {name}: {metadata.error.str()}")
    starts, ends = [], {}
    for partition in metadata.partitions:
        place = TopicPartition(name, partition)
        low, high = _of_leaders(functools.partial(reader.get_watermark_offsets, place, timeout=_ADMIN_S))
        start = low if last is None else max(low, high - last)
        if start < high:
            starts.append(TopicPartition(name, partition, start))
            ends[partition] = high
    reader.assign(starts)
    found: list[Record] = []
    while ends:
        message = reader.poll(_ADMIN_S)
        if message is None:
            raise Unavailable(f"cannot read the topic {name}: Kafka sent nothing for {_ADMIN_S:g} s")
        if (error := message.error()) is not None:
            raise to_lake_error(error, f"read {name}")
        record = record_of(message, prefix)
        if record.partition in ends:
            found.append(record)
            if record.offset + 1 >= ends[record.partition]:
                del ends[record.partition]
    return sorted(found, key=lambda record: (record.partition, record.offset))


def _answer(future: Future[Any]) -> Any:
    """The answer to a question. A client that loses its broker may forget the question, and would never end it."""
    try:
        return future.result(_ADMIN_S + _FORGOTTEN_S)
    except TimeoutError:
        raise Unavailable(f"cannot ask Kafka: no answer within {_ADMIN_S + _FORGOTTEN_S:g} s") from None


def _of_leaders(ask: Callable[[], T]) -> T:
    """The answer of the brokers that lead partitions, once there are such."""
    end_s = time.monotonic() + _LEADER_S
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in _NO_LEADER or time.monotonic() > end_s:
                raise
        time.sleep(0.1)


def _worst(errors: Sequence[KafkaError]) -> LakeError:
    """Return the error to raise for all: one that a retry cannot solve, if there is one."""
    translated = [to_lake_error(error, "publish") for error in errors]
    return next((error for error in translated if not error.retryable), translated[0])
