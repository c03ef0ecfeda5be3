"""Limits on what templates may produce: a few words of a query must not fill the memory of a worker."""

from __future__ import annotations

from lakerunner.model.errors import LimitHit

#: Bytes that one template may give for one entry, and that one function may return.
MAX_ENTRY_BYTES = 16 << 20
#: Bytes that one template may give for all entries of a batch.
MAX_BATCH_BYTES = 512 << 20
#: Nodes that one template may execute for one entry: loops in loops, and templates that invoke each other.
MAX_STEPS = 100_000
#: Templates that may be active at once, each invoked by the one before.
MAX_INVOCATIONS = 50

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
