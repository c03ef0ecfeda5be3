"""What a bus is: durable publishing, consumers that say when a message is done, and the loop in which they are used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
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
    """A stored message. The topic has no prefix."""

    topic: str
    partition: int
    offset: int
    key: str
    payload: bytes
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message handed to a worker. `attempt` counts from 1.

    Workers died while a `suspect` was out. It goes out alone, and nothing follows before it is answered: a consumer
    that gathers messages must not wait for more.
    """

    topic: str
    partition: int
    offset: int
    key: str
    payload: bytes
    attempt: int
    created_at: datetime | None = None
    suspect: bool = False

    def age_s(self) -> float:
        """How long ago the message was published, by this machine's clock; 0 if the bus does not tell."""
        return max(0.0, (datetime.now(UTC) - self.created_at).total_seconds()) if self.created_at else 0.0


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a group is behind on one partition, and its last member there."""

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

    Every delivery is answered by `done` or `fail`, in any order. The committed offset stays below a message without
    an answer, so no message is lost when a process dies; it may be delivered twice.
    """

    @property
    def group(self) -> str: ...

    def poll(self, max_messages: int, timeout_s: float) -> list[Delivery]:
        """Return messages to handle; none after the timeout. Raises Unavailable while the bus is down."""

    def done(self, delivery: Delivery) -> None:
        """The message was handled durably. It may be committed at any time from now on."""

    def fail(self, delivery: Delivery, error: LakeError) -> None:
        """The message failed. The error's class decides between a retry after a pause and a dead letter."""

    def commit(self) -> None:
        """Commit what is done. Raises Conflict when a partition was lost: others receive its messages."""

    def close(self) -> None:
        """Commit what is done and hand the rest back, without counting an attempt."""


class Bus(Protocol):
    """A message bus. Safe to share between threads; its consumers are not."""

    def publish(self, records: Sequence[Outgoing]) -> None:
        """Return when all messages are durable. After an error some may be durable: publish all again."""

    def consumer(self, group: str, topics: Sequence[str]) -> Consumer: ...

    def lag(self, group: str | None = None) -> list[Lag]:
        """Return the lag of one group or of all, by topic and partition."""

    def tail(self, topic: str, count: int) -> list[Record]:
        """Return the newest messages of a topic, oldest first. Does not move any group's offsets."""

    def read(self, topic: str) -> list[Record]:
        """Return all present messages of a topic. For small topics, such as dead letters."""

    def trim(self, topic: str, partition: int, before: int) -> None:
        """Delete the messages below an offset, whether they were read or not."""

    def ensure_topics(self) -> list[str]:
        """Create missing topics and return their names."""

    def ping(self) -> None:
        """Return when the bus answers; raise the reason otherwise."""

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
