"""Keeps which parts of a query rules could answer, for the next time the query is asked.

Dashboards ask the same texts of the same rules again, at later times. Which guard refuses which rule, and what is asked
of the series of the others, follows from the text, the rules, the distance of the steps and where these lie in buckets.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from lakerunner.query.language import StepPlan
from lakerunner.query.rules.rule import BUCKET_NS, RuleVersion
from lakerunner.query.series.times import QueryTimes

T = TypeVar("T")
#: Shapes that are kept, at a few kilobytes each.
_MAX_SHAPES = 1_024

Key = tuple[int, int, bool, int, int, int]


@dataclass(frozen=True, slots=True)
class _Entry(Generic[T]):
    #: Compared by identity, and held so that no other object gets the same one.
    expr: object
    versions: Sequence[RuleVersion]
    shape: T


class KeptShapes(Generic[T]):
    """The shapes of recent queries. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[Key, _Entry[T]] = OrderedDict()

    def find(self, plan: StepPlan, expr: object, versions: tuple[RuleVersion, ...]) -> T | None:
        key = _key(plan, expr, versions)
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry.shape

    def keep(self, plan: StepPlan, expr: object, versions: tuple[RuleVersion, ...], shape: T) -> None:
        with self._lock:
            self._entries[_key(plan, expr, versions)] = _Entry(expr, versions, shape)
            while len(self._entries) > _MAX_SHAPES:
                self._entries.popitem(last=False)


def _key(plan: StepPlan, expr: object, versions: tuple[RuleVersion, ...]) -> Key:
    """Identifies the tree and the rules by object identity, because parts of a query are known by their nodes."""
    times: QueryTimes = plan.times
    return (
        id(expr),
        id(versions),
        plan.options.approximate,
        times.step_ms,
        times.range_ms,
        times.start_ns % BUCKET_NS,
    )
