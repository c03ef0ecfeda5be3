"""When a group is evaluated: multiples of its interval, each group shifted by an offset of its own."""

from __future__ import annotations

from dataclasses import dataclass

from lakerunner.index.rule_groups import GroupKey
from lakerunner.model.ids import hashed_id


@dataclass(frozen=True, slots=True)
class Due:
    """The next time to evaluate at, and how many before it were skipped."""

    at_ms: int
    missed: int = 0


#: Width of the buckets in which materialization rules count rows.
_BUCKET_MS = 10_000


def offset_ms(key: GroupKey, interval_ms: int, *, whole_buckets: bool = False) -> int:
    """Where within its interval a group is evaluated: always the same, and different between groups.

    With `whole_buckets`, at a multiple of ten seconds if its interval is one: only there can a materialization rule
    answer what is asked of rows.
    """
    parts = (key.org_id.bytes, key.namespace.encode(), key.name.encode())
    shift_ms = int.from_bytes(hashed_id(*parts).bytes[:6], "big") % interval_ms
    return shift_ms - shift_ms % _BUCKET_MS if whole_buckets and interval_ms % _BUCKET_MS == 0 else shift_ms


def next_due(evaluated_ms: int | None, frontier_ms: int, interval_ms: int, shift_ms: int, catch_up: int) -> Due | None:
    """The next scheduled time up to the frontier that was not evaluated yet.

    Of more than `catch_up` + 1 such times the oldest are missed. A group that was never evaluated begins at the latest.

    >>> next_due(10, 45, 10, 0, 10), next_due(10, 95, 10, 0, 2), next_due(None, 45, 10, 3, 5)
    (Due(at_ms=20, missed=0), Due(at_ms=70, missed=5), Due(at_ms=43, missed=0))
    """
    last = (frontier_ms - shift_ms) // interval_ms
    if evaluated_ms is None:
        return Due(last * interval_ms + shift_ms)
    first = (evaluated_ms - shift_ms) // interval_ms + 1
    if first > last:
        return None
    start = max(first, last - catch_up)
    return Due(start * interval_ms + shift_ms, start - first)


def frontier_ms(now_ms: int, waiting_since_ms: int | None, arrival_ms: int, max_wait_ms: int) -> int:
    """The time up to which telemetry has arrived and can be queried, as far as the ledger knows.

    A raw object that waits holds telemetry from before its arrival. It is waited for, but not forever.

    >>> frontier_ms(100, None, 10, 60), frontier_ms(100, 80, 10, 60), frontier_ms(100, 5, 10, 60)
    (90, 70, 30)
    """
    known_ms = now_ms if waiting_since_ms is None else min(now_ms, waiting_since_ms)
    return max(known_ms - arrival_ms, now_ms - arrival_ms - max_wait_ms)
