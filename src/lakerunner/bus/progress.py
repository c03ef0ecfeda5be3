"""All partitions of one consumer: what to hand out next, and what has to be saved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from lakerunner.bus.contract import Delivery, Record
from lakerunner.bus.partition import Doomed, Mark, PartitionProgress, RetryPolicy
from lakerunner.model.errors import LakeError

#: Topic (without prefix) and partition.
Place: TypeAlias = tuple[str, int]

#: Messages that a consumer may have out. A boxer gathers; nobody gathers this many without answering.
MAX_OUT = 4_096
#: Messages that wait in memory for one partition.
MAX_WAITING = 256


class Progress:
    """Pure bookkeeping over partitions. Messages suspected of killing their worker go out strictly alone."""

    def __init__(self, member: str, policy: RetryPolicy) -> None:
        self.member = member
        self._policy = policy
        self._partitions: dict[Place, PartitionProgress] = {}
        self._saved: dict[Place, Mark] = {}
        self._turn = 0

    def open(self, place: Place, found: Mark) -> None:
        """We own it from now on; `found` is what its last owner left."""
        self._partitions[place] = PartitionProgress(found, self.member, self._policy)
        self._saved[place] = found

    def drop(self, place: Place) -> None:
        """We do not own it any more. Answers to what is out are ignored from now on."""
        self._partitions.pop(place, None)
        self._saved.pop(place, None)

    def drop_all(self) -> None:
        self._partitions.clear()
        self._saved.clear()

    def __iter__(self) -> Iterator[Place]:
        return iter(tuple(self._partitions))

    def __contains__(self, place: Place) -> bool:
        return place in self._partitions

    def __getitem__(self, place: Place) -> PartitionProgress:
        return self._partitions[place]

    def fetched(self, place: Place, records: Iterable[Record]) -> None:
        if place in self._partitions:
            self._partitions[place].fetched(records)

    def take(self, max_messages: int, now_s: float) -> list[Delivery]:
        """Hand out up to that many, from the partitions in turn."""
        ready = {place: record for place, p in self._partitions.items() if (record := p.ready(now_s)) is not None}
        out = self.out_count()
        suspects = [place for place, record in ready.items() if self._partitions[place].goes_alone(record)]
        if suspects:
            return [] if out else [self._hand_out(suspects[0], now_s)]
        if self._suspect_is_out():
            return []
        taken: list[Delivery] = []
        room = min(max_messages, MAX_OUT - out)
        places = self._in_turn(list(ready))
        while places and len(taken) < room:
            taken.extend([self._hand_out(place, now_s) for place in places[: room - len(taken)]])
            places = [place for place in places if self._may_join(place, now_s)]
        return taken

    def take_back(self, deliveries: Sequence[Delivery], now_s: float) -> None:
        """They never reached a worker."""
        for delivery in reversed(deliveries):
            if partition := self._partitions.get((delivery.topic, delivery.partition)):
                partition.take_back(delivery.offset, now_s)

    def done(self, delivery: Delivery) -> None:
        if partition := self._partitions.get((delivery.topic, delivery.partition)):
            partition.done(delivery.offset)

    def fail(self, delivery: Delivery, error: LakeError, now_s: float) -> None:
        if partition := self._partitions.get((delivery.topic, delivery.partition)):
            partition.fail(delivery.offset, error.code, str(error), retryable=error.retryable, now_s=now_s)

    def doomed(self) -> list[Doomed]:
        return [doomed for partition in self._partitions.values() for doomed in partition.doomed()]

    def buried(self, record: Record) -> None:
        if partition := self._partitions.get((record.topic, record.partition)):
            partition.buried(record.offset)

    def unsaved(self) -> dict[Place, Mark]:
        """The marks that changed since they were last saved."""
        only_one_out = self.out_count() == 1
        marks = {place: p.mark(only_one_out=only_one_out) for place, p in self._partitions.items()}
        return {place: mark for place, mark in marks.items() if not _says_the_same(mark, self._saved[place])}

    def saved(self, marks: Mapping[Place, Mark]) -> None:
        self._saved.update((place, mark) for place, mark in marks.items() if place in self._partitions)

    def out_count(self) -> int:
        return sum(partition.out_count for partition in self._partitions.values())

    def wakes_in_s(self, now_s: float) -> float | None:
        """How long until the first pause ends, if one is on."""
        times = [at for p in self._partitions.values() if (at := p.wakes_at_s()) is not None]
        return max(0.0, min(times) - now_s) if times else None

    def _hand_out(self, place: Place, now_s: float) -> Delivery:
        partition = self._partitions[place]
        record = partition.hand_out(now_s)
        attempt = partition.attempt(record.offset)
        return Delivery(record.topic, record.partition, record.offset, record.key, record.payload, attempt)

    def _suspect_is_out(self) -> bool:
        return any(partition.suspect_is_out() for partition in self._partitions.values())

    def _may_join(self, place: Place, now_s: float) -> bool:
        record = self._partitions[place].ready(now_s)
        return record is not None and not self._partitions[place].goes_alone(record)

    def _in_turn(self, places: list[Place]) -> list[Place]:
        # Without turns a busy partition that sorts first would starve the others.
        self._turn += 1
        first = self._turn % len(places) if places else 0
        return places[first:] + places[:first]


def _says_the_same(mark: Mark, saved: Mark) -> bool:
    """Whether saving can be spared. An idle partition is not written to merely because its owner changed."""
    if mark.committed == mark.handed == saved.committed == saved.handed:
        return mark.attempts == saved.attempts
    return mark == saved
