"""A list of segments that the catalog keeps, and what was found out about it, for the next query that reads the same.

The index is asked for every query. As long as it names the same segments, what follows from them alone is the same too:
which of them have a service, how requests name them. Times are not part of it, so a dashboard that moves on finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

from lakerunner.model.segment import Segment
from lakerunner.model.time import TimeRange

T = TypeVar("T")
#: How much is kept of one list. A list of more segments keeps nothing: next to reading them, planning is little.
_MAX_MADE, _MAX_SEGMENTS = 32, 256


class KeptSegments(list[Segment]):
    """Segments of one org, which are never changed. Safe to share between threads."""

    __slots__ = ("_first_end_ns", "_last_start_ns", "_made")

    def __init__(self, segments: Iterable[Segment]) -> None:
        super().__init__(segments)
        self._last_start_ns = max([each.time_range.start_ns for each in self], default=0)
        self._first_end_ns = min([each.time_range.end_ns for each in self], default=0)
        self._made: dict[Hashable, Any] = {}

    def all_overlap(self, times: TimeRange) -> bool:
        return self._last_start_ns < times.end_ns and times.start_ns < self._first_end_ns

    def once(self, name: Hashable, make: Callable[[], T]) -> T:
        """What `make` makes of the segments. The name says all that it depends on besides them."""
        found: T | None = self._made.get(name)
        if found is None:
            found = make()
            if len(self) <= _MAX_SEGMENTS:
                if len(self._made) >= _MAX_MADE:
                    self._made.clear()
                self._made[name] = found
        return found
