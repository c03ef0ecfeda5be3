"""The request of a row scan, the segments that it reads, and its counters."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

from lakerunner.model.errors import BadInput, Bug
from lakerunner.model.hidden import HiddenRows
from lakerunner.model.segment import Segment
from lakerunner.model.signal import Signal
from lakerunner.model.signals import signal_named
from lakerunner.query.scan.hidden import hidden_predicates
from lakerunner.query.scan.rows.conditions.id_runs import Ids
from lakerunner.query.scan.rows.conditions.predicate import (
    EVERYTHING,
    And,
    Column,
    Compare,
    Not,
    Op,
    Predicate,
    Time,
    from_json,
    to_json,
)
from lakerunner.store import keys

#: Given the bytes that the scan holds; raises when they are too many or the answer is no longer wanted.
Spend: TypeAlias = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class RowScan:
    """Asks for the rows of one signal that satisfy the predicate, ordered by time or in any order.

    In order, rows of equal times are ordered by segment, then by position in the segment. All batches have one schema.
    In any order, each batch holds the rows of one row group and has its own schema (`unordered.py`). The event time is
    always among the output columns.
    """

    signal: Signal
    predicate: Predicate = EVERYTHING
    #: Stored names of the output columns; None means all.
    columns: tuple[str, ...] | None = None
    #: The time range, half-open: `start_ns` is included, `end_ns` is not.
    start_ns: int = -(1 << 63)
    end_ns: int = (1 << 63) - 1
    newest_first: bool = True
    limit: int | None = None
    ordered: bool = True
    #: Ids, ascending: only rows with one of them in the signal's column of ids. For scans in any order, and it does not
    #: travel.
    ids: Ids | None = None

    def __post_init__(self) -> None:
        if not self.signal.rows.attributes:
            raise BadInput(f"cannot scan rows of {self.signal.name}: it has samples, not rows")
        if self.limit is not None and self.limit < 0:
            raise BadInput(f"cannot scan rows: the limit {self.limit} is negative")
        if self.ids is not None and (self.ordered or not self.signal.id_column):
            raise Bug(f"cannot scan rows of {self.signal.name} by ids: they have none, or are read in order")

    def may_hold(self, segment: RowSegment) -> bool:
        """Whether the segment has rows of the time range."""
        return segment.start_ns < self.end_ns and self.start_ns < segment.end_ns

    def covers(self, segment: RowSegment) -> bool:
        """Whether all rows of the segment are of the time range, as the index knows it."""
        return self.start_ns <= segment.start_ns < segment.end_ns <= self.end_ns

    def of_segment(self, segment: RowSegment) -> Predicate:
        """What the rows of a segment must satisfy at any time: the predicate, and not to be hidden."""
        if not segment.hidden:
            return self.predicate
        return And((self.predicate, *map(Not, hidden_predicates(segment.hidden, self.signal))))

    @property
    def times(self) -> tuple[Compare, ...]:
        """The time range as conditions."""
        time = Column(self.signal.time_column)
        return (
            Compare(time, Op.GREATER_EQUAL, Time(self.start_ns)),
            Compare(time, Op.LESS, Time(self.end_ns)),
        )

    def to_json(self) -> dict[str, Any]:
        if self.ids is not None:
            raise Bug("cannot send a scan by ids")
        return {
            "signal": self.signal.name,
            "predicate": to_json(self.predicate),
            "columns": None if self.columns is None else list(self.columns),
            "start_ns": self.start_ns,
            "end_ns": self.end_ns,
            "newest_first": self.newest_first,
            "limit": self.limit,
            "ordered": self.ordered,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> RowScan:
        try:
            columns, limit = document["columns"], document["limit"]
            return cls(
                signal_named(document["signal"]),
                from_json(document["predicate"]),
                None if columns is None else tuple(map(str, columns)),
                int(document["start_ns"]),
                int(document["end_ns"]),
                bool(document["newest_first"]),
                None if limit is None else int(limit),
                bool(document["ordered"]),
            )
        except (KeyError, TypeError, ValueError) as reason:
            raise BadInput(f"cannot read a row scan: {reason!r}") from None


@dataclass(frozen=True, slots=True)
class RowSegment:
    """A segment as the scan reads it: its object and the half-open time range of its rows."""

    segment_id: uuid.UUID
    key: str
    size_bytes: int
    start_ns: int
    end_ns: int
    #: Rows of it that must not be seen.
    hidden: tuple[HiddenRows, ...] = ()

    @classmethod
    def of(cls, segment: Segment) -> RowSegment:
        (key,) = keys.segment_keys(segment)
        times = segment.time_range
        return cls(segment.segment_id, key, segment.size_bytes, times.start_ns, times.end_ns, segment.hidden)

    def to_json(self) -> list[Any]:
        hidden = [each.to_json() for each in self.hidden]
        return [str(self.segment_id), self.key, self.size_bytes, self.start_ns, self.end_ns, hidden]

    @classmethod
    def from_json(cls, document: Sequence[Any]) -> RowSegment:
        try:
            segment_id, key, size_bytes, start_ns, end_ns, hidden = document
            rows = tuple(map(HiddenRows.from_json, hidden))
            return cls(uuid.UUID(segment_id), str(key), int(size_bytes), int(start_ns), int(end_ns), rows)
        except (TypeError, ValueError) as reason:
            raise BadInput(f"cannot read a segment of a row scan: {reason!r}") from None


@dataclass(slots=True)
class RowTally:
    """Counters of a row scan."""

    #: Rows of the answer.
    rows: int = 0
    #: Rows that satisfied the predicate. The reader may have left some of them out.
    rows_found: int = 0
    #: Bytes read from the store or the local copy: footers, indexes, filters, pages. Hits in memory do not count.
    read_bytes: int = 0
    #: Objects and ranges found on the disk or in memory, and those fetched from the store.
    hits: int = 0
    misses: int = 0
    fetch_s: float = 0.0
    #: CPU time of the threads that helped the caller's.
    cpu_s: float = 0.0
    #: Columns of row groups that were decoded, and those found decoded in memory.
    decoded: int = 0
    decoded_hits: int = 0
    segments_opened: int = 0
    #: Segments not opened, because enough earlier rows were found.
    segments_passed: int = 0
    #: Row groups considered, and those of them that statistics, bloom and needle filters, page bounds and ids excluded.
    groups: int = 0
    pruned_by_statistics: int = 0
    pruned_by_bloom: int = 0
    pruned_by_needles: int = 0
    pruned_by_pages: int = 0
    pruned_by_ids: int = 0
    #: Segment that could not be read -> why.
    failed: dict[uuid.UUID, str] = field(default_factory=dict)

    def add(self, other: RowTally) -> None:
        """Add the counts of a part of the scan."""
        for name in _COUNTS:
            count = getattr(other, name)
            if count:
                setattr(self, name, getattr(self, name) + count)
        self.failed |= other.failed

    def to_json(self) -> dict[str, Any]:
        plain: dict[str, Any] = {name: getattr(self, name) for name in _COUNTS}
        plain["failed"] = {str(segment): reason for segment, reason in self.failed.items()}
        return plain


_COUNTS = tuple(each.name for each in fields(RowTally) if each.name != "failed")
#: The counts that EXPLAIN shows.
SCAN_COUNTS = ("groups", "segments_passed", *(name for name in _COUNTS if name.startswith("pruned_by_")))
