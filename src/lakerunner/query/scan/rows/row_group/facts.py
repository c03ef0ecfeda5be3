"""What is known about a row group without its values: bounds of columns, and bytes of filters."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from lakerunner.query.scan.rows.byte_source import Range
from lakerunner.query.scan.rows.conditions.predicate import Ref
from lakerunner.query.scan.rows.conditions.prune import Bounds
from lakerunner.query.scan.rows.opened import BAD_BYTES, BadSegment, Footer
from lakerunner.query.scan.rows.parquet.page_file import Chunk
from lakerunner.query.scan.rows.request import RowSegment
from lakerunner.store.nanos import SUFFIX
from lakerunner.store.runs import Runs


class GroupFacts(abc.ABC):
    def __init__(self, segment: RowSegment, footer: Footer, number: int) -> None:
        self.segment = segment
        self.footer = footer
        self.number = number
        self._group = footer.metadata.row_group(number)
        self.rows: int = self._group.num_rows

    @abc.abstractmethod
    def read(self, ranges: Sequence[Range]) -> list[bytes]:
        """Bytes of the object."""

    def bounds_of(self, ref: Ref) -> list[Bounds | None]:
        """The bounds of each column that may hold the reference's value, in order of precedence; None: the overflow."""
        found: list[Bounds | None] = []
        for name in ref.names():
            if name in self.footer.fields and not self.footer.is_remainder(name):
                found.append(self.bounds(name))
            if self.footer.may_overflow(name, self.number):
                found.append(None)
        return found

    def bounds(self, name: str) -> Bounds:
        kept, key = self.footer.kept, ("bounds", self.number, name)
        found: Bounds | None = kept.get(key)
        if found is None:
            found = kept[key] = self._bounds(name)
        return found

    def times(self, name: str) -> tuple[int, int] | None:
        """Bounds of a time column in nanoseconds, both included."""
        bounds = self.bounds(name)
        return None if bounds.low is None else (bounds.low, bounds.high)

    @property
    def runs(self) -> Runs | None:
        """Where the rows of each value of the first sort column lie, if the file says it."""
        return self.footer.runs[self.number]

    def chunk(self, name: str) -> Chunk:
        """What the footer says about the first leaf of a column."""
        return self.leaf_chunk(self.footer.leaves[name][0])

    def leaf_chunk(self, leaf: int) -> Chunk:
        """What the footer says about a leaf. It is read once: pyarrow makes new objects for every question."""
        kept, key = self.footer.kept, ("chunk", self.number, leaf)
        found: Chunk | None = kept.get(key)
        if found is None:
            found = kept[key] = Chunk.of(self._group.column(leaf))
        return found

    def _bounds(self, name: str) -> Bounds:
        kind = plain(self.footer.fields[name].type)
        if len(self.footer.leaves[name]) != 1 or pa.types.is_nested(kind):
            return Bounds(kind, self.rows)
        statistics = self._group.column(self.footer.leaves[name][0]).statistics
        if statistics is None:
            return Bounds(kind, self.rows)
        nulls = statistics.null_count if statistics.has_null_count else None
        if not statistics.has_min_max:
            return Bounds(kind, self.rows, nulls)
        low, high = statistics.min, statistics.max
        if pa.types.is_string(kind):
            return Bounds(kind, self.rows, nulls, low.encode(), high.encode())
        if pa.types.is_timestamp(kind):
            low, high = statistics.min_raw, statistics.max_raw
        return Bounds(kind, self.rows, nulls, *self.whole_times(name, kind, low, high))

    def whole_times(self, name: str, kind: pa.DataType, low: Any, high: Any) -> tuple[Any, Any]:
        if not pa.types.is_timestamp(kind):
            return low, high
        unit_ns = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[kind.unit]
        rest = unit_ns - 1 if name + SUFFIX in self.footer.fields else 0
        return low * unit_ns, high * unit_ns + rest

    def guarded(self, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except BAD_BYTES as reason:
            raise BadSegment(self.segment, reason) from reason


def plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind
