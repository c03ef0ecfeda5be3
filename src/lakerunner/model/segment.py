"""A segment: one immutable, sorted piece of a signal, as the index describes it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakerunner.model.errors import BadInput
from lakerunner.model.time import TimeRange, dateint, hour_of_day

#: Distinct values of a pruning column kept in the index; above this, the segment matches every value.
MAX_PRUNING_VALUES = 1_000

#: The tier of samples as they were sent. Coarser tiers are named by their width in seconds.
RAW_TIER_S = 0


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

    def __post_init__(self) -> None:
        if self.time_range.start_ns == self.time_range.end_ns or self.row_count <= 0:
            raise BadInput(f"cannot describe segment {self.segment_id}: it has no rows or no time")
        if self.size_bytes < 0 or self.level < 0 or self.tier_s < 0:
            raise BadInput(f"cannot describe segment {self.segment_id}: a size, level or tier is negative")

    @property
    def dateint(self) -> int:
        """The day of its partition, which is the day of its first row."""
        return dateint(self.time_range.start_ns)

    @property
    def hour(self) -> int:
        return hour_of_day(self.time_range.start_ns)
