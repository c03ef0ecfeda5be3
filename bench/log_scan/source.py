"""The segments of the benchmark as what queries read from, as a worker has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from lakerunner.model.errors import LakeError
from lakerunner.query.scan.rows.opened import RowsOpener
from lakerunner.query.scan.rows.request import RowScan, RowSegment, RowTally
from lakerunner.query.scan.rows.row_group.rows import KeptForm, ReadableRows, Shape
from lakerunner.query.scan.rows.scan import row_schema, scan_segments
from lakerunner.query.scan.rows.unordered import map_groups

T = TypeVar("T")


@dataclass(frozen=True)
class Segments:
    """A `RowSource` without limits."""

    opener: RowsOpener
    segments: Sequence[RowSegment]
    tally: RowTally
    pool: Executor

    def rows(self, scan: RowScan, shape: Shape | None = None) -> Iterator[pa.RecordBatch]:
        return scan_segments(self.opener, self.segments, scan, _spend, self.tally, _fail, self.pool, shape)

    def mapped(self, scan: RowScan, make: Callable[[ReadableRows], T], form: KeptForm[T] | None = None) -> Iterator[T]:
        return map_groups(self.opener, self.segments, scan, _spend, self.tally, _fail, make, self.pool, form=form)

    def row_schema(self, scan: RowScan) -> pa.Schema:
        return row_schema(self.opener, self.segments, scan, _spend, self.tally, _fail)


def _spend(held_bytes: int) -> None:
    """A benchmark may hold what it wants."""


def _fail(segment: RowSegment, error: LakeError) -> None:
    raise error
