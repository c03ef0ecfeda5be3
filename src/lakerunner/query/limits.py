"""What one query may cost, the meter that refuses what costs more, and how much it took the last time."""

from __future__ import annotations

import enum
import threading
import uuid
from dataclasses import dataclass

from lakerunner.model.errors import LimitHit
from lakerunner.query.plan.leaf import LeafPlan

#: Time, value and start: what a sample weighs while it is held. A histogram weighs more, but there are fewer.
_BYTES_PER_SAMPLE = 24


class Size(enum.Enum):
    """What a query took the last time."""

    #: Not known, or much.
    LARGE = enum.auto()
    #: Too little to be cut: each part would cost nearly as much.
    WHOLE = enum.auto()
    #: So little that threads would cost more than they save.
    SMALL = enum.auto()


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """What one query may cost, and whether it may answer without segments that cannot be read."""

    timeout_s: float = 120.0
    #: Bytes of segments that are read, each segment counted once.
    max_bytes: int = 1 << 62
    max_series: int = 1_000_000
    max_samples: int = 89_000_000
    #: True: an answer may miss segments, and says so. False: a segment that cannot be read is an error.
    partial: bool = True

    @property
    def held_bytes(self) -> int:
        """Bytes of samples that may be held at a time."""
        return self.max_samples * _BYTES_PER_SAMPLE


class CostMeter:
    """Adds up what one query reads and holds, on all of its threads, and raises LimitHit beyond its limits."""

    def __init__(self, limits: QueryLimits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._held_bytes = 0
        self._segment_bytes: dict[uuid.UUID, int] = {}

    def check_plan(self, plan: LeafPlan) -> None:
        """Refuse a read that is known to be too large before any of it is read."""
        with self._lock:
            self._segment_bytes |= {segment.segment_id: segment.size_bytes for segment in plan.segments}
            read_bytes = sum(self._segment_bytes.values())
        self.check_bytes(read_bytes)
        limit = self._limits.max_samples
        if plan.certain_rows > limit:
            raise LimitHit(
                f"cannot answer the query: a selector has {plan.certain_rows:,} samples, more than {limit:,} "
                "(api.max_samples)",
                hint="narrow the selectors or shorten the range",
            )

    def check_bytes(self, read_bytes: int) -> None:
        """Refuse to read more bytes of segments than the limit."""
        limit = self._limits.max_bytes
        if read_bytes > limit:
            raise LimitHit(
                f"cannot answer the query: it reads {read_bytes:,} bytes of segments, more than {limit:,} "
                "(api.max_bytes)",
                hint="narrow the selectors or shorten the range",
            )

    def hold(self, size_bytes: int) -> None:
        """Count samples that arrived. Each worker keeps the limit for itself; together they may still exceed it."""
        limit = self._limits.held_bytes
        with self._lock:
            self._held_bytes += size_bytes
            held_bytes = self._held_bytes
        if held_bytes > limit:
            raise LimitHit(
                f"cannot hold the rows of the query: more than {limit:,} bytes "
                "(api.max_samples, or query.max_scan_bytes)",
                hint="narrow the selectors or the time range",
            )
