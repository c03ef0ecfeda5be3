"""A segment: one immutable, sorted piece of a signal, as the index describes it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakerunner.model.errors import BadInput
from lakerunner.model.hidden import HiddenRows
from lakerunner.model.time import NS_PER_DAY, TimeRange, dateint, hour_of_day

#: Distinct values of a pruning column kept in the index; above this, the segment matches every value.
MAX_PRUNING_VALUES = 1_000

#: The tier of samples as they were sent. Coarser tiers are named by their width in seconds.
RAW_TIER_S = 0

#: The day under which the index stores a segment that is wide or far from the present.
UNDATED = 0
#: How far from the present a day may lie to have a place of its own in the index: three years back, a month ahead.
#: So whatever times are sent, the index has some forty partitions (docs/decisions/0013-late-rows.md).
_DATED_PAST_NS, _DATED_FUTURE_NS = 1_096 * NS_PER_DAY, 31 * NS_PER_DAY


@dataclass(frozen=True, slots=True)
class Pruning:
    """Statistics that let a query skip a segment without opening it."""

    #: Column -> its sorted distinct values. A column with too many values is absent, and so matches everything.
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: Column -> (smallest, largest).
    bounds: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "values": {name: list(values) for name, values in self.values.items()},
            "bounds": {name: list(bounds) for name, bounds in self.bounds.items()},
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Pruning:
        return cls(
            values={name: tuple(values) for name, values in document.get("values", {}).items()},
            bounds={name: (low, high) for name, (low, high) in document.get("bounds", {}).items()},
        )


@dataclass(frozen=True, slots=True)
class Segment:
    """One row of the index. `time_range` covers the event times of all rows."""

    segment_id: uuid.UUID
    org_id: uuid.UUID
    collector: str
    signal: str
    time_range: TimeRange
    row_count: int
    size_bytes: int
    tier_s: int = RAW_TIER_S
    #: The number of compactions that led to this segment.
    level: int = 0
    #: Version of the layout, so that later releases know how to read it.
    format_version: int = 1
    pruning: Pruning = field(default_factory=Pruning)
    #: False when the index stores it apart from its day. A segment that is wider than a day never has one.
    is_dated: bool = True
    #: The version of the catalog of rules with which its rows were evaluated. Backfill raises it, so that a description
    #: that is kept for long may have an earlier one.
    rules_version: int = field(default=0, compare=False)
    #: A filter of the ids in the segment (`id_filter.py`), set when the segment is made; lookups do not read it.
    id_filter: bytes = field(default=b"", repr=False, compare=False)
    #: Rows that a deletion under way hides. Known to lookups for queries only.
    hidden: tuple[HiddenRows, ...] = ()

    def __post_init__(self) -> None:
        if self.time_range.start_ns == self.time_range.end_ns or self.row_count <= 0:
            raise BadInput(f"cannot describe segment {self.segment_id}: it has no rows or no time")
        if self.size_bytes < 0 or self.level < 0 or self.tier_s < 0:
            raise BadInput(f"cannot describe segment {self.segment_id}: a size, level or tier is negative")
        if self.time_range.end_ns - self.time_range.start_ns > NS_PER_DAY:
            object.__setattr__(self, "is_dated", False)

    @property
    def dateint(self) -> int:
        """The day of its first row, which is part of its key."""
        return dateint(self.time_range.start_ns)

    @property
    def index_day(self) -> int:
        """The day under which the index stores it. Lookups rely on it: under a day stands nothing wider than a day."""
        return self.dateint if self.is_dated else UNDATED

    @property
    def hour(self) -> int:
        return hour_of_day(self.time_range.start_ns)


def is_dated(time_range: TimeRange, now_ns: int) -> bool:
    """Whether the range is near enough to the present to be stored under its day."""
    return now_ns - _DATED_PAST_NS <= time_range.start_ns and time_range.end_ns <= now_ns + _DATED_FUTURE_NS
