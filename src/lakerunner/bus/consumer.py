"""The base class of consumers: fetch, send dead letters, hand out, save checkpoints. Each bus implements the I/O."""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from time import monotonic

import structlog

from lakerunner.bus import topics
from lakerunner.bus.consumer_progress import ConsumerProgress, PartitionId
from lakerunner.bus.contract import Delivery, Outgoing
from lakerunner.bus.messages import DeadLetter, encode
from lakerunner.bus.partition_progress import Checkpoint, PoisonMessage, RetryPolicy
from lakerunner.model.errors import LakeError
from lakerunner.runtime.metrics import BUS_HANDLED
from lakerunner.runtime.retry import Backoff
from lakerunner.runtime.settings import BusSettings

#: Longest sleep between two fetches, so that ownership and retry pauses are handled even when nothing arrives.
_MAX_SLEEP_S = 0.25
#: Shortest sleep, for a message whose pause is over but which may not be handed out yet.
_MIN_SLEEP_S = 0.01

log = structlog.get_logger("lakerunner.bus")

Publish = Callable[[Sequence[Outgoing]], None]


def retry_policy(settings: BusSettings) -> RetryPolicy:
    return RetryPolicy(settings.max_attempts, Backoff(settings.retry_base_s, settings.retry_max_s))


class BaseConsumer(ABC):
    """The part of a consumer that is the same on every bus. For use by one thread."""

    def __init__(self, group: str, progress: ConsumerProgress, publish: Publish) -> None:
        self.group = group
        self._progress = progress
        self._publish = publish

    def poll(self, max_messages: int, timeout_s: float) -> list[Delivery]:
        end_s = monotonic() + timeout_s
        wait_s = 0.0
        while True:
            self._fetch(wait_s)
            self._send_dead_letters()
            taken = self._progress.take(max_messages, monotonic())
            if taken:
                return self._checkpointed(taken)
            now_s = monotonic()
            if now_s >= end_s:
                return []
            pause_s = self._progress.wakes_in_s(now_s)
            wait_s = min(end_s - now_s, _MAX_SLEEP_S, _MAX_SLEEP_S if pause_s is None else max(pause_s, _MIN_SLEEP_S))

    def done(self, delivery: Delivery) -> None:
        self._progress.done(delivery)

    def fail(self, delivery: Delivery, error: LakeError) -> None:
        self._progress.fail(delivery, error, monotonic())

    def commit(self) -> None:
        self._send_dead_letters()
        self._progress.saved(self._save(self._progress.unsaved()))

    def _checkpointed(self, taken: list[Delivery]) -> list[Delivery]:
        # Saved before the messages are handed out, so that the next owner knows if this worker died over them.
        try:
            self._progress.saved(self._save(self._progress.unsaved()))
        except LakeError:
            self._progress.take_back(taken, monotonic())
            raise
        return taken

    def _send_dead_letters(self) -> None:
        """Publish dead letters. They are durable before their offsets can be committed."""
        poisoned = self._progress.poisoned()
        if not poisoned:
            return
        self._publish([self._dead_letter(each) for each in poisoned])
        for each in poisoned:
            self._progress.dead_lettered(each.record)
            BUS_HANDLED.labels(each.record.topic, self.group, "dead").inc()
            where = {"topic": each.record.topic, "partition": each.record.partition, "offset": each.record.offset}
            log.warning("message given up", group=self.group, attempts=each.attempts, reason=each.reason, **where)

    def _dead_letter(self, poisoned: PoisonMessage) -> Outgoing:
        record = poisoned.record
        letter = DeadLetter(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            key=record.key,
            group=self.group,
            attempts=poisoned.attempts,
            code=poisoned.code,
            reason=poisoned.reason,
            payload_base64=base64.b64encode(record.payload).decode(),
        )
        return Outgoing(topics.dead(record.topic).name, record.key, encode(letter))

    @abstractmethod
    def _fetch(self, wait_s: float) -> None:
        """Update ownership and fetch messages; when there are none, wait up to `wait_s` for some."""

    @abstractmethod
    def _save(self, checkpoints: Mapping[PartitionId, Checkpoint]) -> Mapping[PartitionId, Checkpoint]:
        """Make the checkpoints durable and return those that are.

        A partition that another consumer has taken is dropped and raises Conflict.
        """

    @abstractmethod
    def close(self) -> None: ...
