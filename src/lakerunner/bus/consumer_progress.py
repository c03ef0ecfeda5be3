"""Bookkeeping over all partitions of one consumer: what to hand out next, and which checkpoints to save."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from lakerunner.bus.contract import Delivery, Record
from lakerunner.bus.partition_progress import Checkpoint, PartitionProgress, PoisonMessage, RetryPolicy
from lakerunner.model.errors import LakeError

#: Topic (without prefix) and partition.
PartitionId: TypeAlias = tuple[str, int]

#: Messages that a consumer may have out without an answer. A boxer gathers messages, but fewer than this.
MAX_OUT = 4_096
#: Messages of one partition that may wait in memory.
MAX_WAITING = 256


class ConsumerProgress:
    """Pure bookkeeping, without I/O. Messages suspected of killing their worker are handed out strictly alone."""

    def __init__(self, member: str, policy: RetryPolicy) -> None:
        self.member = member
        self._policy = policy
        self._partitions: dict[PartitionId, PartitionProgress] = {}
        self._saved: dict[PartitionId, Checkpoint] = {}
        self._turn = 0

    def open(self, partition_id: PartitionId, found: Checkpoint) -> None:
        """Start to own a partition; `found` is the checkpoint of its last owner."""
        self._partitions[partition_id] = PartitionProgress(found, self.member, self._policy)
        self._saved[partition_id] = found

    def drop(self, partition_id: PartitionId) -> None:
        """Stop owning a partition. Answers to its messages are ignored from now on."""
        self._partitions.pop(partition_id, None)
        self._saved.pop(partition_id, None)

    def drop_all(self) -> None:
        self._partitions.clear()
        self._saved.clear()

    def __iter__(self) -> Iterator[PartitionId]:
        return iter(tuple(self._partitions))

    def __contains__(self, partition_id: PartitionId) -> bool:
        return partition_id in self._partitions

    def __getitem__(self, partition_id: PartitionId) -> PartitionProgress:
        return self._partitions[partition_id]

    def fetched(self, partition_id: PartitionId, records: Iterable[Record]) -> None:
        if partition_id in self._partitions:
            self._partitions[partition_id].fetched(records)

    def take(self, max_messages: int, now_s: float) -> list[Delivery]:
        """Hand out up to `max_messages`, from the partitions in turn."""
        ready = {
            partition_id: record
            for partition_id, p in self._partitions.items()
            if (record := p.ready(now_s)) is not None
        }
        out = self.out_count()
        suspects = [
            partition_id for partition_id, record in ready.items() if self._partitions[partition_id].goes_alone(record)
        ]
        if suspects:
            return [] if out else [self._hand_out(suspects[0], now_s)]
        if self._suspect_is_out():
            return []
        taken: list[Delivery] = []
        room = min(max_messages, MAX_OUT - out)
        partition_ids = self._in_turn(list(ready))
        while partition_ids and len(taken) < room:
            taken.extend([self._hand_out(partition_id, now_s) for partition_id in partition_ids[: room - len(taken)]])
            partition_ids = [partition_id for partition_id in partition_ids if self._may_join(partition_id, now_s)]
        return taken

    def take_back(self, deliveries: Sequence[Delivery], now_s: float) -> None:
        """Undo `take`: the messages never reached a worker."""
        for delivery in reversed(deliveries):
            if partition := self._partitions.get((delivery.topic, delivery.partition)):
                partition.take_back(delivery.offset, now_s)

    def done(self, delivery: Delivery) -> None:
        if partition := self._partitions.get((delivery.topic, delivery.partition)):
            partition.done(delivery.offset)

    def fail(self, delivery: Delivery, error: LakeError, now_s: float) -> None:
        if partition := self._partitions.get((delivery.topic, delivery.partition)):
            partition.fail(delivery.offset, error.code, str(error), retryable=error.retryable, now_s=now_s)

    def poisoned(self) -> list[PoisonMessage]:
        return [poisoned for partition in self._partitions.values() for poisoned in partition.poisoned()]

    def dead_lettered(self, record: Record) -> None:
        if partition := self._partitions.get((record.topic, record.partition)):
            partition.dead_lettered(record.offset)

    def unsaved(self) -> dict[PartitionId, Checkpoint]:
        """Return the checkpoints that changed since they were last saved."""
        only_one_out = self.out_count() == 1
        checkpoints = {
            partition_id: p.checkpoint(only_one_out=only_one_out) for partition_id, p in self._partitions.items()
        }
        return {
            partition_id: checkpoint
            for partition_id, checkpoint in checkpoints.items()
            if not _is_saved(checkpoint, self._saved[partition_id])
        }

    def saved(self, checkpoints: Mapping[PartitionId, Checkpoint]) -> None:
        self._saved.update(
            (partition_id, checkpoint)
            for partition_id, checkpoint in checkpoints.items()
            if partition_id in self._partitions
        )

    def out_count(self) -> int:
        return sum(partition.out_count for partition in self._partitions.values())

    def wakes_in_s(self, now_s: float) -> float | None:
        """Return the time until the first retry pause ends; None without a pause."""
        times = [at for p in self._partitions.values() if (at := p.wakes_at_s()) is not None]
        return max(0.0, min(times) - now_s) if times else None

    def _hand_out(self, partition_id: PartitionId, now_s: float) -> Delivery:
        partition = self._partitions[partition_id]
        record = partition.hand_out(now_s)
        attempt = partition.attempt(record.offset)
        return Delivery(
            record.topic,
            record.partition,
            record.offset,
            record.key,
            record.payload,
            attempt,
            record.created_at,
            suspect=partition.goes_alone(record),
        )

    def _suspect_is_out(self) -> bool:
        return any(partition.suspect_is_out() for partition in self._partitions.values())

    def _may_join(self, partition_id: PartitionId, now_s: float) -> bool:
        record = self._partitions[partition_id].ready(now_s)
        return record is not None and not self._partitions[partition_id].goes_alone(record)

    def _in_turn(self, partition_ids: list[PartitionId]) -> list[PartitionId]:
        # Without turns a busy partition that sorts first would starve the others.
        self._turn += 1
        first = self._turn % len(partition_ids) if partition_ids else 0
        return partition_ids[first:] + partition_ids[:first]


def _is_saved(checkpoint: Checkpoint, saved: Checkpoint) -> bool:
    """Return whether saving can be skipped. A new owner alone does not cause a write for an idle partition."""
    if checkpoint.committed == checkpoint.handed == saved.committed == saved.handed:
        return checkpoint.attempts == saved.attempts
    return checkpoint == saved
