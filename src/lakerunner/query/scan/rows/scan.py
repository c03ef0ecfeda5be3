"""Scans rows of one or many segments in one process, and stops at the limit.

A small limit uses late materialization: the scan first reads only the time and the columns of the predicate. The best
rows so far decide which segments, row groups and pages can still contribute. Finally the other columns are read, only
for the rows of the answer. Without a small limit, segments are scanned one after another and merged by time, in slices
of time where they are too large (`time_slices.py`). Rows that may come in any order are read faster (`unordered.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from lakerunner.model.errors import BadInput, Bug, LakeError, LimitHit
from lakerunner.query.scan.rows.ahead import Gathered, GatheredAhead
from lakerunner.query.scan.rows.answer_rows import answer_schema, rows_of, segment_schema
from lakerunner.query.scan.rows.best import BestRows
from lakerunner.query.scan.rows.conditions.evaluate import Ints
from lakerunner.query.scan.rows.conditions.predicate import EVERYTHING
from lakerunner.query.scan.rows.failures import Failures, OnError, raise_error
from lakerunner.query.scan.rows.merge import TimedStream, merge_ordered
from lakerunner.query.scan.rows.opened import BadSegment, OpenedSegment, RowsOpener
from lakerunner.query.scan.rows.request import RowScan, RowSegment, RowTally, Spend
from lakerunner.query.scan.rows.row_group.rows import Found, Shape
from lakerunner.query.scan.rows.segment import find_rows
from lakerunner.query.scan.rows.time_slices import TooLarge, bytes_at_once, can_be_cut, slices_of
from lakerunner.query.scan.rows.unify import conform
from lakerunner.query.scan.rows.unordered import scan_unordered

T = TypeVar("T")
#: Gathers the rows of a segment that a scan wants.
_Gather: TypeAlias = Callable[[RowScan, RowSegment, RowTally, Spend], Gathered]
#: Up to this limit, the other columns are read late, only for the rows of the answer.
LATE_ROWS = 20_000
#: Rows of a batch: few enough that a reader can stop early.
BATCH_ROWS = 16_384


def scan_segments(
    opener: RowsOpener,
    segments: Sequence[RowSegment],
    scan: RowScan,
    spend: Spend,
    tally: RowTally,
    on_error: OnError = raise_error,
    pool: Executor | None = None,
    shape: Shape | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of all segments, in the order of the scan. Without rows there is no batch.

    Ordered batches have the same schema. A scan in any order reads several row groups at once on the pool's threads.
    In an ordered scan, `shape` may read the columns that it wants, and may leave rows out: fewer than the limit then.
    """
    sign = -1 if scan.newest_first else 1
    chosen = filter(scan.may_hold, segments)
    ordered = sorted(chosen, key=lambda segment: (sign * _first_ns(segment, scan), segment.segment_id))
    if scan.limit == 0:
        return
    for batch in (
        _Scan(opener, scan, spend, tally, on_error, shape, pool).batches(ordered)
        if scan.ordered
        else scan_unordered(opener, ordered, scan, spend, tally, on_error, pool)
    ):
        tally.rows += batch.num_rows
        yield batch


def row_schema(
    opener: RowsOpener,
    segments: Sequence[RowSegment],
    scan: RowScan,
    spend: Spend,
    tally: RowTally,
    on_error: OnError = raise_error,
) -> pa.Schema:
    """The schema of a scan of these segments."""
    schemas = [schema for _, schema in _Scan(opener, scan, spend, tally, on_error).schemas(segments)]
    return answer_schema(schemas, scan)


def merged_rows(parts: Sequence[pa.RecordBatch], scan: RowScan) -> Iterator[pa.RecordBatch]:
    """Merge several answers to the same scan into one, up to its limit. Equal times stay in the order of the parts."""
    schema = answer_schema([part.schema for part in parts], scan)
    whole = one_batch([conform(part, schema) for part in parts])
    times = whole.column(scan.signal.time_column).cast(pa.int64()).to_numpy()
    order = np.argsort(-times if scan.newest_first else times, kind="stable")[: scan.limit]
    for start in range(0, len(order), BATCH_ROWS):
        yield whole.take(pa.array(order[start : start + BATCH_ROWS]))


def _first_ns(segment: RowSegment, scan: RowScan) -> int:
    """The first time a row may have, in the order of the answer."""
    if scan.newest_first:
        return min(segment.end_ns, scan.end_ns) - 1
    return max(segment.start_ns, scan.start_ns)


class _Scan:
    def __init__(
        self,
        opener: RowsOpener,
        scan: RowScan,
        spend: Spend,
        tally: RowTally,
        on_error: OnError,
        shape: Shape | None = None,
        pool: Executor | None = None,
    ) -> None:
        self._opener = opener
        self._scan = scan
        self._shape = shape
        # What a limit cuts off, or what a shape reads in an order of its own, is not read ahead.
        self._pool = pool if shape is None and scan.limit is None else None
        self._spend = spend
        self._tally = tally
        self._failures = Failures(opener, tally, on_error)

    def batches(self, segments: Sequence[RowSegment]) -> Iterator[pa.RecordBatch]:
        late = self._scan.limit is not None and self._scan.limit <= LATE_ROWS
        return self.late(segments) if late else self.merged(segments)

    # -- a small limit -------------------------------------------------------------------------------------------

    def late(self, segments: Sequence[RowSegment]) -> Iterator[pa.RecordBatch]:
        left = list(segments)
        while True:
            best = BestRows(self._scan)
            left = self._find_all(left, best)
            try:
                whole = self._materialized(best)
                break
            except BadSegment as bad:
                # With fresh bytes, or without the segment, other rows may be the best: the scan starts over.
                if not self._failures.refreshed(bad):
                    left.remove(bad.segment)
        if whole is not None:
            for start in range(0, whole.num_rows, BATCH_ROWS):
                yield whole.slice(start, BATCH_ROWS)

    def _find_all(self, segments: Sequence[RowSegment], best: BestRows) -> list[RowSegment]:
        """Fill the best rows. Returns the segments without those that could not be read."""
        readable: list[RowSegment] = []
        for place, segment in enumerate(segments):
            self._spend(best.held_bytes)
            if best.is_beyond(_first_ns(segment, self._scan)):
                self._tally.segments_passed += len(segments) - place
                return [*readable, *segments[place:]]

            def find(segment: RowSegment = segment, place: int = place) -> bool:
                best.without(place)
                return self._find(segment, place, best)

            if self._read(segment, find):
                readable.append(segment)
            else:
                best.without(place)
        return readable

    def _find(self, segment: RowSegment, place: int, best: BestRows) -> bool:
        with closing(self._opener.open(segment, self._tally)) as opened:
            for found in find_rows(opened, self._scan, lambda: best.last_ns, self._spend, self._tally):
                best.add(place, found)
        return True

    def _materialized(self, best: BestRows) -> pa.RecordBatch | None:
        if not best.found:
            return None
        shape = self._shape or self._unified({id(each.group.opened): each.group.opened for _, each in best.found})
        parts: list[pa.RecordBatch] = []
        for _, found in sorted(best.found, key=lambda each: (each[0], each[1].group.number)):
            self._spend(best.held_bytes + sum(part.nbytes for part in parts))
            with closing(found.group.opened):
                parts.append(shape.part(found))
                found.group.settle(found.rows[:0])
        whole = shape.whole(parts)
        order = self._order(whole)
        return whole if order is None else whole.take(pa.array(order))

    def _unified(self, opened: Mapping[int, OpenedSegment]) -> Shape:
        """Rows as they are stored, in the schema of all segments."""
        schema = answer_schema([segment_schema(each.footer, self._scan) for each in opened.values()], self._scan)
        return _Unified(self._scan, schema)

    # -- all rows ------------------------------------------------------------------------------------------------

    def merged(self, segments: Sequence[RowSegment]) -> Iterator[pa.RecordBatch]:
        readable, shape = segments, self._shape
        if shape is None:
            found = list(self.schemas(segments))
            readable = [segment for segment, _ in found]
            shape = _Unified(self._scan, answer_schema([schema for _, schema in found], self._scan))
        gather = functools.partial(self._gathered, shape, bytes_at_once(readable))
        with closing(GatheredAhead(self._pool, readable, functools.partial(gather, self._scan), self._spend)) as ahead:

            def stream(segment: RowSegment) -> TimedStream:
                return TimedStream(_first_ns(segment, self._scan), lambda: self._all_rows(segment, ahead, gather))

            for batch in merge_ordered(
                [stream(segment) for segment in readable],
                self._scan.signal.time_column,
                newest_first=self._scan.newest_first,
                limit=self._scan.limit,
            ):
                for start in range(0, batch.num_rows, BATCH_ROWS):
                    ahead.spend(0)
                    yield batch.slice(start, BATCH_ROWS)

    def schemas(self, segments: Sequence[RowSegment]) -> Iterator[tuple[RowSegment, pa.Schema]]:
        """The readable segments, each with its contribution to the schema of the answer."""
        for segment in segments:
            self._spend(0)
            schema = self._read(segment, functools.partial(self._schema, segment))
            if schema is not None:
                yield segment, schema

    def _open(self, segment: RowSegment, tally: RowTally) -> OpenedSegment:
        whole = self._scan.columns is None and self._scan.limit is None and self._scan.predicate == EVERYTHING
        return self._opener.open(segment, tally, whole=whole)

    def _schema(self, segment: RowSegment) -> pa.Schema:
        with closing(self._open(segment, self._tally)) as opened:
            self._tally.segments_opened -= 1  # Counted when its rows are read.
            return segment_schema(opened.footer, self._scan)

    def _all_rows(self, segment: RowSegment, ahead: GatheredAhead, gather: _Gather) -> Iterator[pa.RecordBatch]:
        """Yield the matching rows of a segment in order. They are gathered first: a segment is not ordered by time."""
        gathered = self._read(segment, lambda: ahead.take(segment, self._tally))
        yield from self._ordered(gathered, self._scan, segment, ahead, gather)

    def _ordered(
        self, gathered: Gathered, scan: RowScan, segment: RowSegment, ahead: GatheredAhead, gather: _Gather
    ) -> Iterator[pa.RecordBatch]:
        """Yield gathered rows in order. If they were too large, gather and yield them slice by slice."""
        if isinstance(gathered, TooLarge):
            for part in slices_of(scan, segment, gathered.slices):
                read = functools.partial(gather, part, segment, self._tally, ahead.spend)
                yield from self._ordered(self._read(segment, read), part, segment, ahead, gather)
                if segment.segment_id in self._tally.failed:
                    return
        elif gathered is not None and gathered.num_rows:
            order = self._order(gathered)
            if order is None:
                yield gathered
                return
            for start in range(0, len(order), BATCH_ROWS):
                ahead.spend(gathered.nbytes)
                yield gathered.take(pa.array(order[start : start + BATCH_ROWS]))

    def _order(self, rows: pa.RecordBatch) -> Ints | None:
        """The order of the answer, in which rows of equal times stay as they are; None: they are in order."""
        times = rows.column(self._scan.signal.time_column).view(pa.int64()).to_numpy()
        earlier, later = (times[1:], times[:-1]) if self._scan.newest_first else (times[:-1], times[1:])
        if (earlier <= later).all():
            return None
        order: Ints = np.argsort(-times if self._scan.newest_first else times, kind="stable")
        return order

    def _gathered(
        self, shape: Shape, most_bytes: int, scan: RowScan, segment: RowSegment, tally: RowTally, spend: Spend
    ) -> Gathered:
        """Gather all matching rows of a segment, up to `most_bytes`. Several threads may gather several segments."""
        parts: dict[int, pa.RecordBatch] = {}
        held_bytes, groups = 0, tally.groups

        def spend_beside_parts(more_bytes: int) -> None:
            spend(held_bytes + more_bytes)

        with closing(self._open(segment, tally)) as opened:
            if scan is not self._scan:
                tally.segments_opened -= 1  # Counted with its first slice.
            for found in find_rows(opened, scan, lambda: None, spend_beside_parts, tally):
                part = parts[found.group.number] = shape.part(found)
                held_bytes += part.nbytes
                found.group.settle(found.rows[:0])
                if held_bytes > most_bytes and can_be_cut(scan, segment):
                    share = (tally.groups - groups) / opened.footer.metadata.num_row_groups
                    return TooLarge.of(held_bytes, share, most_bytes)
        return shape.whole([parts[number] for number in sorted(parts)]) if parts else None

    # -- bad bytes -----------------------------------------------------------------------------------------------

    def _read(self, segment: RowSegment, read: Callable[[], T]) -> T | None:
        """Call `read`, and once more with fresh bytes if they are bad. None if the segment is left out."""
        try:
            try:
                return read()
            except BadSegment as bad:
                return read() if self._failures.refreshed(bad) else None
        except (BadInput, Bug, LimitHit):
            # The query's or our own fault.
            raise
        except LakeError as error:
            # If the caller has ended the scan, this raises: the segment is not to blame.
            self._spend(0)
            self._failures.leave_out(segment, error)
            return None


@dataclass(frozen=True, slots=True)
class _Unified:
    """Rows as they are stored, in one schema."""

    scan: RowScan
    schema: pa.Schema

    def part(self, found: Found) -> pa.RecordBatch:
        return rows_of(found, self.scan, self.schema)

    def whole(self, parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        return one_batch(parts)


def one_batch(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Batches of one schema, of which there is at least one, as one batch."""
    filled = [part for part in parts if part.num_rows]
    if len(filled) < 2:
        return (filled or parts)[0]
    return pa.Table.from_batches(filled).combine_chunks().to_batches()[0]
