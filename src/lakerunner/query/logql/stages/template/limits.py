"""Limits on what templates may produce: a few words of a query must not fill the memory of a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lakerunner.model.errors import LimitHit

#: Bytes that one template may give for one entry, and that one function may return.
MAX_ENTRY_BYTES = 16 << 20
#: Bytes that one template may give for all entries of a batch.
MAX_BATCH_BYTES = 512 << 20
#: Nodes that one template may execute for one entry: loops in loops, and templates that invoke each other.
MAX_STEPS = 100_000
#: Templates that may be active at once, each invoked by the one before.
MAX_INVOCATIONS = 50

#: Nodes or calls between two checks. Each takes a few microseconds.
_STEPS_PER_CHECK = 4096
#: Characters of an argument that take as long as a step.
_BYTES_PER_STEP = 64
_HINT = "make the template shorter"


def check_entry(size: int) -> None:
    """Refuse a text for one entry before it is made."""
    if size > MAX_ENTRY_BYTES:
        raise LimitHit(
            f"cannot format an entry: its template gives more than {MAX_ENTRY_BYTES:,} bytes (fixed)", hint=_HINT
        )


def check_batch(size: int) -> None:
    if size > MAX_BATCH_BYTES:
        raise LimitHit(
            f"cannot format entries: the template gives more than {MAX_BATCH_BYTES:,} bytes for one batch (fixed)",
            hint=_HINT,
        )


def check_steps(steps: int) -> None:
    if steps > MAX_STEPS:
        raise LimitHit(
            f"cannot format an entry: its template executes more than {MAX_STEPS:,} nodes (fixed)", hint=_HINT
        )


class Meter:
    """Counts the work of many calls, and calls the check whenever it may have taken some milliseconds."""

    def __init__(self, check: Callable[[], object]) -> None:
        self._check = check
        self._spent = 0

    def spend(self, steps: int) -> None:
        self._spent += steps
        if self._spent >= _STEPS_PER_CHECK:
            self._spent = 0
            self._check()

    def spend_on(self, arguments: Iterable[object]) -> None:
        """A call with arguments: most functions take time in proportion to their texts."""
        self.spend(1 + sum(len(each) for each in arguments if isinstance(each, str)) // _BYTES_PER_STEP)
