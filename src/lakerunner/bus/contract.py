"""What a bus is: durable publishing, consumers that say when a message is done, and the loop in which they are used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from lakerunner.index.outbox import Outgoing
from lakerunner.model.errors import Conflict, LakeError
from lakerunner.runtime.metrics import BUS_HANDLED, SWALLOWED
from lakerunner.runtime.retry import Backoff
from lakerunner.runtime.stop import Stop
from lakerunner.runtime.telemetry import log

#: Between two steps of a consumer's loop while index or bus are down.
_TROUBLE = Backoff(base_s=0.2, cap_s=5.0)


@dataclass(frozen=True, slots=True)
class Record:
    """A message where it lies. Topics are without the prefix."""

    topic: str
    partition: int
    offset: int
    key: str
    payload: bytes
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message handed to a worker, for the `attempt`th time."""

    topic: str
    partition: int
    offset: int
    key: str
    payload: bytes
    attempt: int


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a group is behind on one partition, and who last worked on it."""

    group: str
    topic: str
    partition: int
    committed: int
    end: int
    member: str = ""

    @property
    def behind(self) -> int:
        return max(0, self.end - self.committed)


class Consumer(Protocol):
    """One member of a group, used by one thread.

    Every delivery is answered by `done` or `fail`, in any order. While an answer is missing, the offset that is
    committed stays below it, so a message is lost by no death of anybody; it may be delivered twice.
    """

    @property
    def group(self) -> str: ...

    def poll(self, max_messages: int, timeout_s: float) -> list[Delivery]:
        """Messages to handle; empty after the timeout. Unavailable while the bus is down: try again."""

    def done(self, delivery: Delivery) -> None:
        """It was handled, durably. From now on it may be committed at any time."""

    def fail(self, delivery: Delivery, error: LakeError) -> None:
        """It was not. By the error's class, it comes again after a pause, or goes to the dead letters."""

    def commit(self) -> None:
        """Make durable what is done. Conflict when a partition was lost meanwhile: its messages come to others."""

    def close(self) -> None:
        """Commit what is done and hand the rest back: no attempt is held against it."""


class Bus(Protocol):
    """A carrier of messages. Safe for threads; its consumers are not."""

    def publish(self, records: Sequence[Outgoing]) -> None:
        """Return when all are durable. After an error, some may be: publish all again."""

    def consumer(self, group: str, topics: Sequence[str]) -> Consumer: ...

    def lag(self, group: str | None = None) -> list[Lag]:
        """Of one group or of all, by topic and partition."""

    def tail(self, topic: str, count: int) -> list[Record]:
        """The newest messages of a topic, oldest first. Reading does not move any group."""

    def read(self, topic: str) -> list[Record]:
        """All messages of a topic as of now. For small topics: the dead letters."""

    def trim(self, topic: str, partition: int, before: int) -> None:
        """Forget the messages below that offset, whoever has not read them."""

    def ensure_topics(self) -> list[str]:
        """Make the topics that are missing, and return their names."""

    def ping(self) -> None:
        """Return when the bus answers; raise why not otherwise."""

    def close(self) -> None: ...


def run_steps(step: Callable[[], None], stop: Stop, role: str) -> None:
    """Repeat a step (poll, work, answer, commit) until asked to stop; wait while index or bus are down.

    The consumer stays open. Its owner closes it, which hands back whatever was not answered.
    """
    failures = 0
    while not stop:
        try:
            step()
            failures = 0
        except Conflict as error:
            # The partition's messages went to another member, who handles them again.
            SWALLOWED.labels("bus_partition_lost").inc()
            log().info("partition lost", role=role, reason=str(error))
        except LakeError as error:
            if not error.retryable:
                raise
            failures += 1
            log().warning("waiting for index or bus", role=role, error=str(error))
            stop.wait(_TROUBLE.delay_s(failures))


def answer(consumer: Consumer, delivery: Delivery, error: LakeError | None = None) -> None:
    """Done without an error; else it comes again or goes to the dead letters, by the error's class."""
    if error is None:
        consumer.done(delivery)
    else:
        consumer.fail(delivery, error)
    BUS_HANDLED.labels(delivery.topic, consumer.group, "done" if error is None else error.code).inc()


__all__ = ["Bus", "Consumer", "Delivery", "Lag", "Outgoing", "Record", "answer", "run_steps"]
