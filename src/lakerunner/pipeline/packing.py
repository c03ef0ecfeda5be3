"""Packing things that arrive into bundles: by size, count and age, in the order of arrival as far as they fit.

Pure: times and weights are given, nothing is read or sent.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")

#: Bundles of one group that stay open side by side, so that a large thing does not close a bundle that small ones fill.
OPEN_BUNDLES = 3
#: A bundle this full is closed: waiting for the thing that fits exactly would only make it late.
_FULL = 0.9


@dataclass(frozen=True, slots=True)
class PackLimits:
    max_weight: int
    max_count: int
    #: While the stage is idle, an almost empty bundle is closed at this age and a fuller one sooner.
    idle_age_s: float
    #: And in any case when its oldest thing has waited this long, in this process or before.
    max_age_s: float


@dataclass(slots=True)
class Bundle(Generic[T]):
    """Things of one group that become one work item."""

    group: Hashable
    opened_s: float
    #: Since when the oldest of its things waits.
    waits_since_s: float
    things: list[T] = field(default_factory=list)
    weight: int = 0

    def fits(self, weight: int, limits: PackLimits) -> bool:
        return self.weight + weight <= limits.max_weight and len(self.things) < limits.max_count

    def is_full(self, limits: PackLimits) -> bool:
        return self.weight >= _FULL * limits.max_weight or len(self.things) >= limits.max_count

    def due_s(self, limits: PackLimits, *, idle: bool) -> float:
        """When to close it. The emptier the bundle, the longer it is worth waiting for more."""
        missing = max(0.0, 1.0 - self.weight / limits.max_weight)
        soon_s = self.opened_s + min(limits.idle_age_s, limits.max_age_s) * missing
        # Not before that: when a backlog arrives, everything in it is old, and more follows at once.
        return soon_s if idle else max(soon_s, self.waits_since_s + limits.max_age_s)


class Packer(Generic[T]):
    """Open bundles by group. Closed bundles belong to the caller; what is still open is counted in `held`."""

    def __init__(self, limits: PackLimits, max_held: int) -> None:
        self.limits = limits
        #: Things held in all groups together; above this the heaviest bundle is closed whatever its age.
        self.max_held = max_held
        self.held = 0
        self._open: dict[Hashable, list[Bundle[T]]] = {}

    def add(self, group: Hashable, thing: T, weight: int, now_s: float, waited_s: float = 0.0) -> list[Bundle[T]]:
        """Put it in the first open bundle that has room; return what this closed. It waited for `waited_s` before."""
        bundles = self._open.setdefault(group, [])
        bundle = next((b for b in bundles if b.fits(weight, self.limits)), None)
        if bundle is None:
            bundle = Bundle(group, now_s, now_s)
            bundles.append(bundle)
        bundle.waits_since_s = min(bundle.waits_since_s, now_s - waited_s)
        bundle.things.append(thing)
        bundle.weight += weight
        self.held += 1
        closed = [self._close(bundle)] if bundle.is_full(self.limits) else []
        if len(bundles) > OPEN_BUNDLES:
            closed.append(self._close(max(bundles, key=_weight)))
        while self.held > self.max_held:
            closed.append(self._close(max(self._all(), key=_count)))
        return closed

    def due(self, now_s: float, *, idle: bool, at_once: bool = False) -> list[Bundle[T]]:
        """Close and return what is old enough, or everything."""
        old = [bundle for bundle in self._all() if at_once or bundle.due_s(self.limits, idle=idle) <= now_s]
        return [self._close(bundle) for bundle in old]

    def next_due_s(self, *, idle: bool) -> float | None:
        """When the first open bundle is due."""
        return min((bundle.due_s(self.limits, idle=idle) for bundle in self._all()), default=None)

    def _all(self) -> Iterator[Bundle[T]]:
        return (bundle for bundles in self._open.values() for bundle in bundles)

    def _close(self, bundle: Bundle[T]) -> Bundle[T]:
        bundles = self._open[bundle.group]
        bundles.remove(bundle)
        if not bundles:
            del self._open[bundle.group]
        self.held -= len(bundle.things)
        return bundle


def _weight(bundle: Bundle[T]) -> int:
    return bundle.weight


def _count(bundle: Bundle[T]) -> int:
    return len(bundle.things)


def estimated_bytes(key: str, size_bytes: int, expansion: float) -> int:
    """How large the telemetry in a raw object is assumed to be, uncompressed.

    >>> estimated_bytes("otel-raw/o/c/logs_1.binpb.gz", 1_000, 8.0), estimated_bytes("a/logs.json", 1_000, 8.0)
    (8000, 1000)
    """
    packed = key.lower().endswith((".gz", ".zst", ".zstd", ".bz2", ".lz4", ".snappy", ".parquet"))
    return max(1, round(size_bytes * expansion) if packed else size_bytes)
