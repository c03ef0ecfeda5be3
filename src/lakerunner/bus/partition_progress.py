"""Bookkeeping of one partition of a consumer: messages waiting, out, failed or poisoned, and the committable offset."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lakerunner.bus.contract import Record
from lakerunner.runtime.retry import Backoff

#: After this many workers died over the same messages, they are handed out one by one, to find the one that kills. A
#: single death is mostly a deployment or a lost machine, and one by one is slow.
_DEATHS_UNTIL_SINGLY = 2


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    max_attempts: int
    backoff: Backoff


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Stored with the committed offset, so that the next owner knows how the last one ended."""

    #: All messages below this offset are done.
    committed: int = 0
    #: All messages below this offset were handed out. If it is above `committed` and the owner is gone, the owner died
    #: over the messages in between.
    handed: int = 0
    #: Failed attempts at the first message that is not done.
    attempts: int = 0
    #: That message was the only one handed out, so a death is its fault.
    alone: bool = False
    member: str = ""


@dataclass(frozen=True, slots=True)
class PoisonMessage:
    """A message that failed for good and becomes a dead letter."""

    record: Record
    attempts: int
    code: str
    reason: str


class PartitionProgress:
    """Pure bookkeeping: the caller passes times, and nothing is sent.

    A failed message holds back all later messages of its key, except those already handed out. So the messages of one
    key are retried in order, and those of other keys pass, as far as messages may wait in memory.
    """

    def __init__(self, found: Checkpoint, member: str, policy: RetryPolicy) -> None:
        self._member = member
        self._policy = policy
        self._committed = found.committed
        #: The offset to fetch from.
        self.position = found.committed
        #: Set when the partition moves to another member: nothing more is handed out.
        self.leaving = False
        #: By offset, in order.
        self._waiting: dict[int, Record] = {}
        self._out: dict[int, Record] = {}
        self._failed: dict[int, tuple[Record, float]] = {}
        self._poisoned: dict[int, PoisonMessage] = {}
        self._attempts: dict[int, int] = {}
        #: Failed messages that are out again.
        self._retrying: set[int] = set()
        self._handed = found.committed
        # If the checkpoint is our own, we lost the connection and came back: nobody died.
        died = found.handed > found.committed and found.member != member
        self._inherited = _attempts_after(found) if died else found.attempts
        self._killer = died and found.alone and self._inherited >= policy.max_attempts
        suspect = died and (found.alone or self._inherited >= min(_DEATHS_UNTIL_SINGLY, policy.max_attempts))
        self._singly_below = found.handed if suspect else found.committed

    def fetched(self, records: Iterable[Record]) -> None:
        """Add messages from the bus, in offset order; known ones are skipped."""
        for record in records:
            if record.offset < self.position:
                continue
            self.position = record.offset + 1
            if self._inherited:
                self._attempts[record.offset] = self._inherited
                self._inherited = 0
            if self._killer:
                self._killer = False
                attempts = self._attempts[record.offset]
                reason = f"cannot handle this message: {attempts} workers in a row died over it"
                self._poisoned[record.offset] = PoisonMessage(record, attempts, "worker_died", reason)
                continue
            self._waiting[record.offset] = record

    def ready(self, now_s: float) -> Record | None:
        """Return the message that `hand_out` would return, if any."""
        if self.leaving or self._poisoned:
            return None
        if not self._failed and not self._retrying:
            return next(iter(self._waiting.values()), None)
        held = {self._out[offset].key for offset in self._retrying}
        for offset in sorted(self._failed):
            record, not_before_s = self._failed[offset]
            if record.key not in held and not_before_s <= now_s:
                return record
            held.add(record.key)
        return next((record for record in self._waiting.values() if record.key not in held), None)

    def hand_out(self, now_s: float) -> Record:
        record = self.ready(now_s)
        assert record is not None
        if self._failed.pop(record.offset, None) is not None:
            self._retrying.add(record.offset)
        else:
            del self._waiting[record.offset]
        self._out[record.offset] = record
        self._handed = max(self._handed, record.offset + 1)
        return record

    def take_back(self, offset: int, now_s: float) -> None:
        """Undo `hand_out`: the message never reached a worker."""
        record = self._out.pop(offset, None)
        if record is None:
            return
        if offset in self._retrying:
            self._retrying.discard(offset)
            self._failed[offset] = (record, now_s)
        else:
            self._waiting = dict(sorted([(offset, record), *self._waiting.items()]))

    def goes_alone(self, record: Record) -> bool:
        return record.offset < self._singly_below

    def suspect_is_out(self) -> bool:
        return any(offset < self._singly_below for offset in self._out)

    def attempt(self, offset: int) -> int:
        """Return the number of the current attempt at a message, from 1."""
        return self._attempts.get(offset, 0) + 1

    def done(self, offset: int) -> None:
        """Mark a message as done. A late answer to a message that is not out is ignored: it is handled again."""
        if self._out.pop(offset, None) is not None:
            self._resolved(offset)

    def fail(self, offset: int, code: str, reason: str, *, retryable: bool, now_s: float) -> None:
        record = self._out.pop(offset, None)
        if record is None:
            return
        attempts = self._attempts[offset] = self.attempt(offset)
        self._retrying.discard(offset)
        if retryable and attempts < self._policy.max_attempts:
            self._failed[offset] = (record, now_s + self._policy.backoff.delay_s(attempts))
        else:
            self._poisoned[offset] = PoisonMessage(record, attempts, code, reason)

    def poisoned(self) -> list[PoisonMessage]:
        """Return the messages that wait to become dead letters, in order."""
        return [self._poisoned[offset] for offset in sorted(self._poisoned)]

    def dead_lettered(self, offset: int) -> None:
        """Resolve a poisoned message: its dead letter is durable."""
        if self._poisoned.pop(offset, None) is not None:
            self._resolved(offset)

    @property
    def out_count(self) -> int:
        return len(self._out)

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def wakes_at_s(self) -> float | None:
        """Return when the next retry pause ends; None without a pause."""
        held = {self._out[offset].key for offset in self._retrying}
        pauses = []
        for offset in sorted(self._failed):
            record, not_before_s = self._failed[offset]
            if record.key not in held:
                pauses.append(not_before_s)
            held.add(record.key)
        return min(pauses, default=None)

    def committable(self) -> int:
        """Return the offset below which every message is done."""
        firsts = [min(held) for held in (self._out, self._failed, self._poisoned) if held]
        if self._waiting:
            firsts.append(next(iter(self._waiting)))
        return min(firsts, default=self.position)

    def checkpoint(self, *, only_one_out: bool) -> Checkpoint:
        """Return the checkpoint to save while we own the partition.

        `only_one_out` means that the whole consumer has handed out a single message.
        """
        first = self.committable()
        alone = only_one_out and first in self._out
        handed = max(first, self._handed, self._singly_below)
        return Checkpoint(first, handed, self._attempts_at(first), alone, self._member)

    def final_checkpoint(self) -> Checkpoint:
        """Return the checkpoint for an orderly release: nothing counts as handed out, so no message is blamed."""
        first = self.committable()
        return Checkpoint(first, first, self._attempts_at(first), False, self._member)

    def _attempts_at(self, offset: int) -> int:
        return self._inherited if self._inherited else self._attempts.get(offset, 0)

    def _resolved(self, offset: int) -> None:
        self._attempts.pop(offset, None)
        self._retrying.discard(offset)


def _attempts_after(found: Checkpoint) -> int:
    """Count the death of the owner as an attempt at the first message.

    A message that was out together with others is only a suspect, and suspicion alone never reaches the maximum.
    """
    if found.alone:
        return found.attempts + 1
    return max(found.attempts, min(found.attempts + 1, _DEATHS_UNTIL_SINGLY))
