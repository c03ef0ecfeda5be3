"""Scans one segment: finds the matching rows and reads their columns."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import OVERFLOW
from lakerunner.query.scan.rows.compare import Mask
from lakerunner.query.scan.rows.decided import Condition, Left
from lakerunner.query.scan.rows.evaluate import Ints, matching, overflow_values
from lakerunner.query.scan.rows.filters import by_bloom, by_needles
from lakerunner.query.scan.rows.group import KEPT_AT_ONCE, GroupReader
from lakerunner.query.scan.rows.group_facts import GroupFacts
from lakerunner.query.scan.rows.id_runs import Ids, concat_ids, ids_of
from lakerunner.query.scan.rows.opened import Footer, OpenedSegment
from lakerunner.query.scan.rows.page_index import Pages
from lakerunner.query.scan.rows.pieces import every_row
from lakerunner.query.scan.rows.predicate import (
    EVERYTHING,
    And,
    Column,
    Compare,
    Exists,
    In,
    Leaf,
    Not,
    Op,
    Or,
    Predicate,
    Time,
)
from lakerunner.query.scan.rows.prune import NOTHING, Bounds, Verdict, simplified, verdict_of
from lakerunner.query.scan.rows.request import RowScan, RowTally, Spend
from lakerunner.query.scan.rows.unify import fitted, output_schema
from lakerunner.store.nanos import join_nanos

T = TypeVar("T")
#: Of fewer rows, dictionaries are not worth their while.
_FEW_ROWS = 256
#: Of a smaller share of the rows of a group, ids are read from their pages alone.
_FEW_OF_GROUP = 0.25
#: Up to this limit, the first rows of each row group are remembered.
_FIRST_ROWS = 512


class ReadableRows(Protocol):
    """Rows whose columns are read on demand."""

    def batch(self, columns: Sequence[str] | None, *, apart: bool = False) -> pa.RecordBatch:
        """Read these columns of the rows, None for all, with their stored types and most of their dictionaries.

        Requested columns that the file lacks are left out. The metadata of the schema names the original keys of
        attributes. With `apart`, values of the overflow stay there, and columns keep the types that they have.
        """
        ...

    def some(self, places: Ints) -> ReadableRows:
        """The rows at these places among them, ascending."""
        ...

    @property
    def segment(self) -> Hashable:
        """What tells the segment of the rows from others."""
        ...

    def ids(self, column: str) -> Ids:
        """The ids of the rows."""
        ...

    def remembered(self, what: Hashable, make: Callable[[], T], size_bytes: Callable[[T], int]) -> T:
        """What `make` makes of the rows. If they are all rows of their group, it is kept in memory for next time."""
        ...


@dataclass(frozen=True, slots=True)
class GroupRows:
    """Rows of one row group, ascending."""

    group: GroupReader
    rows: Ints
    #: A condition of which these are all rows, under which what is read of a few rows is kept.
    condition: Condition | None = None
    #: Whether the condition was asked before.
    again: bool = False

    def batch(self, columns: Sequence[str] | None, *, apart: bool = False) -> pa.RecordBatch:
        def read() -> pa.RecordBatch:
            return group_batch(self.group, self.rows, columns, apart=apart)

        if self.condition is None or not (self._are_very_few or (self.again and self._are_few)):
            return read()
        what = "batch", self.condition.number, None if columns is None else tuple(columns), apart
        return self.group.remembered(what, lambda: _compact(read()), lambda made: int(made.get_total_buffer_size()))

    @property
    def _are_very_few(self) -> bool:
        return len(self.rows) <= KEPT_AT_ONCE

    @property
    def _are_few(self) -> bool:
        return len(self.rows) < self.group.rows * _FEW_OF_GROUP

    def some(self, places: Ints) -> ReadableRows:
        return GroupRows(self.group, self.rows[places])

    @property
    def segment(self) -> Hashable:
        return self.group.opened.segment.segment_id

    def ids(self, column: str) -> Ids:
        group = self.group
        runs = group.kept_id_runs(column) if self._are_few else group.id_runs(column)
        return ids_of(group.column(column, self.rows))[0] if runs is None else runs.ids_at(self.rows)

    def remembered(self, what: Hashable, make: Callable[[], T], size_bytes: Callable[[T], int]) -> T:
        if len(self.rows) < self.group.rows:
            return make()
        return self.group.remembered(what, make, size_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found(GroupRows):
    """The matching rows of one row group, and their times in nanoseconds."""

    times: Ints
    #: Remembered first rows that these are among: what is read of them is kept too.
    among: FirstRows | None = None

    def chosen(self, places: Ints) -> Found:
        if len(places) == len(self.rows):
            return self
        return Found(self.group, self.rows[places], times=self.times[places], among=self.among)

    def batch(self, columns: Sequence[str] | None, *, apart: bool = False) -> pa.RecordBatch:
        first = self.among
        if first is None or apart:
            # Without arguments, super() does not know a class with slots.
            return GroupRows.batch(self, columns, apart=apart)
        group, what = self.group, ("batch", first.name, None if columns is None else tuple(columns))
        whole = group.remembered(
            what,
            lambda: _without_dictionaries(_compact(group_batch(group, first.rows, columns))),
            lambda made: int(made.get_total_buffer_size()),
        )
        if len(self.rows) == len(first.rows):
            return whole
        return whole.take(pa.array(np.searchsorted(first.rows, self.rows)))


class Shape(Protocol):
    """Makes the rows of an answer, which have one schema and the event time."""

    def part(self, found: Found) -> pa.RecordBatch:
        """Read what the answer needs of the rows of one row group."""
        ...

    def whole(self, parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Make the rows of the answer from several parts, in their order."""
        ...


def find_rows(
    opened: OpenedSegment, scan: RowScan, last_ns: Callable[[], int | None], spend: Spend, tally: RowTally
) -> Iterator[Found]:
    """The matching rows of each row group. Groups that come first in the order of the answer are read first.

    `last_ns` is called before each group, and returns the time after which rows are no longer wanted.
    """
    time, condition = scan.signal.time_column, opened.opener.condition_of(scan, opened.segment)
    times = () if scan.covers(opened.segment) else scan.times
    for number in _in_order(opened, scan, spend, tally):
        # A new reader per group, so that its decoded pages are freed with it.
        group = GroupReader(opened, number, spend, tally)
        spend(0)
        tally.groups += 1
        left = undecided(group, _until(scan, times, last_ns()), condition, tally)
        if left.is_nothing:
            continue
        known = first = _known_first(group, scan, left)
        if first is None:
            rows = matching_rows(group, left, tally)
            if not len(rows):
                continue
            found = GroupRows(group, rows, left.exact).batch((time,))
            first = _first(group, scan, left, rows, found.column(0).view(pa.int64()).to_numpy())
        tally.rows_found += first.count
        # Of the first rows alone, nothing may be kept as that of all rows of the condition.
        yield Found(group, first.rows, left.exact if first.are_all else None, times=first.times, among=known)


@dataclass(frozen=True, slots=True)
class FirstRows:
    """Rows of a row group that satisfy a condition: their number, and those that come first in the order of answers."""

    count: int
    rows: Ints
    times: Ints
    #: Under which they are remembered.
    name: Hashable = None

    @property
    def are_all(self) -> bool:
        return self.count == len(self.rows)

    @property
    def nbytes(self) -> int:
        return int(self.rows.nbytes + self.times.nbytes)


def _known_first(group: GroupReader, scan: RowScan, left: Undecided) -> FirstRows | None:
    """The first rows of the condition, if all times of the group are wanted, and an earlier scan has found them."""
    if scan.limit is None or scan.limit > _FIRST_ROWS or left.times or left.is_nothing:
        return None
    found: FirstRows | None = group.kept_first(left.condition, newest=scan.newest_first)
    return found


def _first(group: GroupReader, scan: RowScan, left: Undecided, rows: Ints, times: Ints) -> FirstRows:
    """The rows that may be in the answer. If the limit is small, those that any small limit needs are remembered."""
    found = FirstRows(len(rows), rows, times)
    if scan.limit is None or scan.limit > _FIRST_ROWS or left.times or len(rows) <= _FIRST_ROWS:
        return found
    order = np.sort(np.lexsort((rows, -times if scan.newest_first else times))[:_FIRST_ROWS])
    name = "first", left.condition.number, scan.newest_first
    found = FirstRows(len(rows), rows[order], times[order], name)
    group.keep_first(left.condition, found, newest=scan.newest_first)
    return found


def _in_order(opened: OpenedSegment, scan: RowScan, spend: Spend, tally: RowTally) -> list[int]:
    """The row groups, those with the first rows in the order of the answer first."""
    kept, key = opened.footer.kept, ("order", scan.newest_first)
    found: list[int] | None = kept.get(key)
    if found is None:
        time = scan.signal.time_column
        first_times = [
            (_first_time(GroupReader(opened, number, spend, tally), time, newest=scan.newest_first), number)
            for number in range(opened.footer.metadata.num_row_groups)
        ]
        found = kept[key] = [number for _, number in sorted(first_times)]
    return found


def stored_columns(footer: Footer, scan: RowScan) -> list[str]:
    """The columns of the file that the answer needs."""
    return _stored(footer, None if scan.columns is None else (scan.signal.time_column, *scan.columns))


def _stored(footer: Footer, columns: Sequence[str] | None) -> list[str]:
    if columns is None:
        return footer.names
    return [name for name in dict.fromkeys(columns) if name in footer.fields and not footer.is_remainder(name)]


def segment_schema(footer: Footer, scan: RowScan) -> pa.Schema:
    """The segment's contribution to the schema of the answer."""
    fields = {name: footer.fields[name] for name in stored_columns(footer, scan)}
    schema = pa.schema([pa.field(name, field.type) for name, field in fields.items()])
    for name in scan.columns or ():
        # A value that is a number in another segment may be text in the overflow of this one.
        if footer.may_overflow(name):
            at = schema.get_field_index(name)
            text = pa.field(name, pa.string())
            schema = schema.append(text) if at < 0 else schema.set(at, text)
    return schema


def rows_of(found: Found, scan: RowScan, schema: pa.Schema) -> pa.RecordBatch:
    """Read the found rows with the columns of the answer's schema, in the order of the file."""
    group, rows = found.group, found.rows
    footer = group.opened.footer
    stored = stored_columns(footer, scan)
    overflowing = {name for name in scan.columns or () if footer.may_overflow(name)}
    arrays = group.columns([*stored, *([OVERFLOW] if overflowing and OVERFLOW not in stored else [])], rows)
    columns = []
    for field in schema:
        array = arrays.get(field.name)
        if field.name in overflowing:
            array = _with_overflow(array, arrays[OVERFLOW], field.name)
        columns.append(_output(array, field, len(rows)))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def group_batch(
    group: GroupReader, rows: Ints, columns: Sequence[str] | None, *, apart: bool = False
) -> pa.RecordBatch:
    """Read the rows with their stored types, and with dictionaries where these are smaller than the rows are many.

    Requested columns that the file lacks are left out.
    """
    footer = group.opened.footer
    stored = _stored(footer, columns)
    overflowing = [] if apart else [name for name in columns or () if footer.may_overflow(name, group.number)]
    arrays = group.columns([*stored, *([OVERFLOW] if overflowing and OVERFLOW not in stored else [])], rows)
    for name in overflowing:
        arrays[name] = _with_overflow(arrays.get(name), arrays[OVERFLOW], name)
    names = [*stored, *(name for name in overflowing if name not in stored)]
    values = [_without_large_dictionary(arrays[name]) for name in names]
    fields = [pa.field(name, array.type) for name, array in zip(names, values, strict=True)]
    schema = pa.schema(fields, metadata=footer.attribute_keys)
    return pa.RecordBatch.from_arrays(values, schema=schema)


def _compact(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows without the rest of the pages that they are slices of."""
    if batch.get_total_buffer_size() <= 2 * batch.nbytes:
        return batch
    return batch.take(pa.array(np.arange(batch.num_rows)))


def _without_dictionaries(batch: pa.RecordBatch) -> pa.RecordBatch:
    arrays = [each.dictionary_decode() if pa.types.is_dictionary(each.type) else each for each in batch.columns]
    fields = [pa.field(name, array.type) for name, array in zip(batch.schema.names, arrays, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, metadata=batch.schema.metadata))


def _without_large_dictionary(array: pa.Array) -> pa.Array:
    """Few rows are decoded: work on each distinct value of the row group would take longer."""
    if pa.types.is_dictionary(array.type) and len(array) < max(_FEW_ROWS, len(array.dictionary)):
        return array.dictionary_decode()
    return array


def answer_schema(schemas: Sequence[pa.Schema], scan: RowScan) -> pa.Schema:
    """The schema of the answer, from the schemas of segments or of several workers' answers."""
    return output_schema(scan.signal, scan.columns, schemas)


def _until(scan: RowScan, times: tuple[Compare, ...], last_ns: int | None) -> tuple[Compare, ...]:
    if last_ns is None:
        return times
    op = Op.GREATER_EQUAL if scan.newest_first else Op.LESS_EQUAL
    return (Compare(Column(scan.signal.time_column), op, Time(last_ns)), *times)


def _first_time(group: GroupReader, time: str, *, newest: bool) -> int:
    """The sort key of a group: its first time in the order of the answer. A group without bounds goes first."""
    times = group.times(time)
    if times is None:
        return -(1 << 70)
    return -times[1] if newest else times[0]


@dataclass(frozen=True, slots=True)
class Undecided:
    """What statistics and filters do not decide of a scan in a row group: of its times, and of its condition."""

    times: tuple[Predicate, ...]
    predicate: Predicate
    condition: Condition

    @property
    def is_nothing(self) -> bool:
        return self.predicate == NOTHING

    @property
    def exact(self) -> Condition | None:
        """The condition, if the rows that satisfy it are the rows of the scan, and are remembered."""
        return None if self.times or self.condition.number is None or self.predicate == EVERYTHING else self.condition


def undecided(group: GroupReader, times: Sequence[Compare], condition: Condition, tally: RowTally) -> Undecided:
    """The times and the condition without what statistics and filters decide."""
    in_time = simplified(And(tuple(times)), lambda leaf: verdict_of(leaf, group.bounds_of)) if times else EVERYTHING
    if in_time == NOTHING:
        tally.pruned_by_statistics += 1
        return Undecided((), NOTHING, condition)
    conditions, place = group.opened.opener.conditions, group.place
    left = conditions.get(place, condition)
    if left is None:
        left = left_of(group, condition.predicate)
        conditions.put(place, condition, left)
    if left.excluded_by:
        setattr(tally, left.excluded_by, getattr(tally, left.excluded_by) + 1)
    return Undecided(() if in_time == EVERYTHING else (in_time,), left.predicate, condition)


def left_of(group: GroupFacts, predicate: Predicate) -> Left:
    """What statistics and filters leave of the predicate."""
    left = simplified(predicate, lambda leaf: verdict_of(leaf, group.bounds_of))
    if left == NOTHING:
        return Left(NOTHING, "pruned_by_statistics")
    left = simplified(left, lambda leaf: by_bloom(group, leaf))
    if left == NOTHING:
        return Left(NOTHING, "pruned_by_bloom")
    left = simplified(left, lambda leaf: by_needles(group, leaf))
    return Left(NOTHING, "pruned_by_needles") if left == NOTHING else Left(left)


def known_rows(group: GroupReader, left: Undecided, ids: tuple[str, Ids] | None) -> Ints | None:
    """The rows with one of the ids in the column, or that satisfy the condition, if that is known without reading."""
    if ids is not None:
        runs = group.kept_id_runs(ids[0])
        return None if runs is None else runs.rows_of(ids[1])
    return None if left.is_nothing or left.predicate == EVERYTHING else group.known_rows(left.condition)


def rows_of_ids(
    group: GroupReader, left: Undecided, ids: tuple[str, Ids], tally: RowTally, known: Ints | None = None
) -> Ints:
    """The rows with one of the ids in the column that satisfy what `undecided` left."""
    column, wanted = ids
    if known is not None:
        rows = known
    elif (runs := group.id_runs(column)) is not None:
        rows = runs.rows_of(wanted)
    else:
        of_rows, _ = ids_of(group.column(column, every_row(group.rows)))
        numbers, _ = concat_ids([wanted, of_rows]).numbered()
        rows = np.flatnonzero(np.isin(numbers[len(wanted) :], numbers[: len(wanted)]))
    if not len(rows):
        tally.pruned_by_ids += 1
        return rows
    parts = (*left.times, *(() if left.predicate == EVERYTHING else (left.predicate,)))
    return rows[matching(And(parts), group, rows)] if parts else rows


def matching_rows(group: GroupReader, left: Undecided, tally: RowTally, known: Ints | None = None) -> Ints:
    """The rows that satisfy what `undecided` left."""
    if left.is_nothing:
        return np.zeros(0, np.int64)
    if left.predicate == EVERYTHING:
        return _searched(group, And(left.times), tally) if left.times else every_row(group.rows)
    known = group.known_rows(left.condition) if known is None else known
    if known is None:
        parts = left.predicate.parts if isinstance(left.predicate, And) else (left.predicate,)
        found = _searched(group, And((*left.times, *parts)), tally)
        if not left.times:
            group.know_rows(left.condition, found)
        return found
    return known[matching(And(left.times), group, known)] if left.times and len(known) else known


def _searched(group: GroupReader, predicate: Predicate, tally: RowTally) -> Ints:
    rows = _rows_of_pages(predicate, group)
    if not len(rows):
        tally.pruned_by_pages += 1
        return rows
    return rows[matching(predicate, group, rows)]


def _rows_of_pages(predicate: Predicate, group: GroupReader) -> Ints:
    """The rows that page bounds do not exclude."""
    may, _ = _by_pages(predicate, group)
    return every_row(group.rows) if may is None else np.flatnonzero(may)


def _by_pages(predicate: Predicate, group: GroupReader) -> tuple[Mask | None, Mask | None]:
    """For each row: whether it may satisfy the predicate, and whether it may fail. None means that all rows may."""
    match predicate:
        case And(parts):
            pairs = [_by_pages(part, group) for part in parts]
            return _all_of([may for may, _ in pairs]), _any_of([fail for _, fail in pairs])
        case Or(parts):
            pairs = [_by_pages(part, group) for part in parts]
            return _any_of([may for may, _ in pairs]), _all_of([fail for _, fail in pairs])
        case Not(part):
            may, fail = _by_pages(part, group)
            return fail, may
        case _:
            return _leaf_by_pages(predicate, group)


def _leaf_by_pages(leaf: Leaf, group: GroupReader) -> tuple[Mask | None, Mask | None]:
    holders = group.bounds_of(leaf.ref)
    names = [name for name in leaf.ref.names() if name in group.opened.footer.fields]
    # Only conditions that bounds can decide, on a value that only one column can hold.
    if len(holders) != 1 or len(names) != 1 or not isinstance(leaf, Compare | In | Exists):
        return None, None
    found = group.page_bounds(names[0])
    if found is None:
        return None, None
    layout, bounds = found
    verdicts = [_verdict(leaf, of_page) for of_page in bounds]
    return (
        _spread(layout, [verdict.may for verdict in verdicts]),
        _spread(layout, [verdict.fail for verdict in verdicts]),
    )


def _verdict(leaf: Leaf, bounds: Bounds) -> Verdict:
    return verdict_of(leaf, lambda _: [bounds])


def _spread(layout: Pages, flags: list[bool]) -> Mask | None:
    if all(flags):
        return None
    spread: Mask = np.repeat(np.array(flags, np.bool_), np.diff(layout.first_rows))
    return spread


def _all_of(masks: list[Mask | None]) -> Mask | None:
    known = [mask for mask in masks if mask is not None]
    if not known:
        return None
    combined: Mask = np.logical_and.reduce(known)
    return combined


def _any_of(masks: list[Mask | None]) -> Mask | None:
    if not masks or any(mask is None for mask in masks):
        return None
    combined: Mask = np.logical_or.reduce([mask for mask in masks if mask is not None])
    return combined


def _with_overflow(array: pa.Array | None, maps: pa.Array, name: str) -> pa.Array:
    """The column, with nulls replaced by the overflow's text."""
    texts = overflow_values(maps, name)
    if array is None:
        return texts
    if texts.null_count == len(texts):
        return array
    own = fitted(array, pa.string())
    return pc.coalesce(own, texts)


def _output(array: pa.Array | None, field: pa.Field, rows: int) -> pa.Array:
    if array is None:
        return pa.nulls(rows, field.type)
    if pa.types.is_list(array.type):
        # Times within events have their own remainder of nanoseconds.
        joined = join_nanos(pa.table([array], schema=pa.schema([pa.field(field.name, array.type)])))
        array = joined.column(0).combine_chunks()
    return fitted(array, field.type)
