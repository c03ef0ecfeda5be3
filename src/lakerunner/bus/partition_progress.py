"""One partition in the hands of one consumer: what is waiting, out, failed, given up; how far it may be committed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from lakerunner.bus.contract import Record
from lakerunner.runtime.retry import Backoff

#: Deaths over the same messages after which they are handed out one by one, to learn which of them kills. One death is
#: mostly a deployment or a lost machine, and going one by one is slow.
_DEATHS_UNTIL_SINGLY = 2


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    max_attempts: int
    backoff: Backoff


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What is kept with the committed offset, so that the next owner knows how this one ended."""

    #: Everything below is done.
    committed: int = 0
    #: Everything below was handed out. Above `committed`, and the owner gone: it died over these.
    handed: int = 0
    #: Failed attempts at the first message that is not done.
    attempts: int = 0
    #: That message was the only one the owner had in hand, so a death is its fault.
    alone: bool = False
    member: str = ""


@dataclass(frozen=True, slots=True)
class PoisonMessage:
    """A message that goes to the dead letters."""

    record: Record
    attempts: int
    code: str
    reason: str


class PartitionProgress:
    """Pure bookkeeping: times are given, nothing is sent.

    A failed message holds back all that come after it in its partition, except those already handed out: so the
    messages of one key are tried in order.
    """

    def __init__(self, found: Checkpoint, member: str, policy: RetryPolicy) -> None:
        self._member = member
        self._policy = policy
        self._committed = found.committed
        #: The offset to fetch from.
        self.position = found.committed
        #: Set when the partition is to go to another member: nothing more is handed out.
        self.leaving = False
        self._waiting: deque[Record] = deque()
        self._out: dict[int, Record] = {}
        self._failed: dict[int, tuple[Record, float]] = {}
        self._poisoned: dict[int, PoisonMessage] = {}
        self._attempts: dict[int, int] = {}
        self._retrying: int | None = None
        self._handed = found.committed
        # A member that lost its connection and came back did not die.
        died = found.handed > found.committed and found.member != member
        self._inherited = _attempts_after(found) if died else found.attempts
        self._killer = died and found.alone and self._inherited >= policy.max_attempts
        suspect = died and (found.alone or self._inherited >= min(_DEATHS_UNTIL_SINGLY, policy.max_attempts))
        self._singly_below = found.handed if suspect else found.committed

    def fetched(self, records: Iterable[Record]) -> None:
        """Messages from the broker, in order of offset; ones that are already here are passed over."""
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
            self._waiting.append(record)

    def ready(self, now_s: float) -> Record | None:
        """The message that `hand_out` would give."""
        if self.leaving or self._poisoned or self._retrying is not None:
            return None
        if self._failed:
            record, not_before_s = self._failed[min(self._failed)]
            return record if not_before_s <= now_s else None
        return self._waiting[0] if self._waiting else None

    def hand_out(self, now_s: float) -> Record:
        record = self.ready(now_s)
        assert record is not None
        if self._failed:
            del self._failed[record.offset]
            self._retrying = record.offset
        else:
            self._waiting.popleft()
        self._out[record.offset] = record
        self._handed = max(self._handed, record.offset + 1)
        return record

    def take_back(self, offset: int, now_s: float) -> None:
        """Undo `hand_out`: the message never reached a worker."""
        record = self._out.pop(offset, None)
        if record is None:
            return
        if self._retrying == offset:
            self._retrying = None
            self._failed[offset] = (record, now_s)
        else:
            self._waiting.appendleft(record)

    def goes_alone(self, record: Record) -> bool:
        return record.offset < self._singly_below

    def suspect_is_out(self) -> bool:
        return any(offset < self._singly_below for offset in self._out)

    def attempt(self, offset: int) -> int:
        """Which attempt at it this is, from 1."""
        return self._attempts.get(offset, 0) + 1

    def done(self, offset: int) -> None:
        """Of a message that is not out, a word that comes late: it will be, or was, handled again."""
        if self._out.pop(offset, None) is not None:
            self._resolved(offset)

    def fail(self, offset: int, code: str, reason: str, *, retryable: bool, now_s: float) -> None:
        record = self._out.pop(offset, None)
        if record is None:
            return
        attempts = self._attempts[offset] = self.attempt(offset)
        self._retrying = None if self._retrying == offset else self._retrying
        if retryable and attempts < self._policy.max_attempts:
            self._failed[offset] = (record, now_s + self._policy.backoff.delay_s(attempts))
        else:
            self._poisoned[offset] = PoisonMessage(record, attempts, code, reason)

    def poisoned(self) -> list[PoisonMessage]:
        """What waits to be dead_lettered, in order."""
        return [self._poisoned[offset] for offset in sorted(self._poisoned)]

    def dead_lettered(self, offset: int) -> None:
        """Its dead letter is durable."""
        if self._poisoned.pop(offset, None) is not None:
            self._resolved(offset)

    @property
    def out_count(self) -> int:
        return len(self._out)

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def wakes_at_s(self) -> float | None:
        """When a pause ends, if one is on."""
        return self._failed[min(self._failed)][1] if self._failed and self._retrying is None else None

    def committable(self) -> int:
        """The end of the contiguous prefix that is done."""
        firsts = [min(held) for held in (self._out, self._failed, self._poisoned) if held]
        if self._waiting:
            firsts.append(self._waiting[0].offset)
        return min(firsts, default=self.position)

    def checkpoint(self, *, only_one_out: bool) -> Checkpoint:
        """What to keep while we hold the partition. `only_one_out`: the whole consumer has one message in hand."""
        first = self.committable()
        alone = only_one_out and first in self._out
        handed = max(first, self._handed, self._singly_below)
        return Checkpoint(first, handed, self._attempts_at(first), alone, self._member)

    def final_checkpoint(self) -> Checkpoint:
        """What to keep when we let go in good order: nothing is out, so no death can be blamed on anything."""
        first = self.committable()
        return Checkpoint(first, first, self._attempts_at(first), False, self._member)

    def _attempts_at(self, offset: int) -> int:
        return self._inherited if self._inherited else self._attempts.get(offset, 0)

    def _resolved(self, offset: int) -> None:
        self._attempts.pop(offset, None)
        if self._retrying == offset:
            self._retrying = None


def _attempts_after(found: Checkpoint) -> int:
    """Attempts at the first message, its owner having died. Beside others it is only suspected, which never adds up."""
    if found.alone:
        return found.attempts + 1
    return max(found.attempts, min(found.attempts + 1, _DEATHS_UNTIL_SINGLY))
