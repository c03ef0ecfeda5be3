"""Rows of a row group, whose columns are read on demand."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from lakerunner.query.scan.rows.conditions.decided import Condition
from lakerunner.query.scan.rows.conditions.evaluate import Ints
from lakerunner.query.scan.rows.conditions.id_runs import Ids, ids_of
from lakerunner.query.scan.rows.row_group.group import KEPT_AT_ONCE, GroupReader
from lakerunner.query.scan.rows.row_group.row_columns import compact, group_batch, without_dictionaries
from lakerunner.query.scan.rows.row_group.row_counts import RowCounts, row_counts

T = TypeVar("T")
#: Of a smaller share of the rows of a group, ids are read from their pages alone.
_FEW_OF_GROUP = 0.25
#: What it takes to remember that nothing can be made of rows.
_NOT_MADE_BYTES = 128


class ReadableRows(Protocol):
    """Rows whose columns are read on demand."""

    def batch(self, columns: Sequence[str] | None, *, apart: bool = False, edges: Ints | None = None) -> pa.RecordBatch:
        """Read these columns of the rows, None for all, with their stored types and most of their dictionaries.

        Requested columns that the file lacks are left out. The metadata of the schema names the original keys of
        attributes. With `apart`, values of the overflow stay there, and columns keep the types that they have. With
        `edges`, times may be others of the same interval (edges[j], edges[j + 1]], if nothing of the rows is kept.
        """
        ...

    def some(self, places: Ints) -> ReadableRows:
        """The rows at these places among them, ascending."""
        ...

    def one_time(self, column: str, edges: Ints) -> int | None:
        """A time in the interval (edges[j], edges[j + 1]] that has the times of all rows; None if they must be read.

        Of a row group that lies in one interval, they need not be read, unless what is made of the rows is kept.
        """
        ...

    def counts(self, time: str, columns: Sequence[str], edges: Ints) -> RowCounts | None:
        """The rows by their interval (edges[j], edges[j + 1]] and by their value in these columns.

        None: they must be read, because more than one of the columns has values, or what is made of them is kept.
        """
        ...

    def __len__(self) -> int: ...

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
class KeptForm(Generic[T]):
    """How to keep what was made of all rows of a row group that satisfy the condition of a scan.

    Later scans get it again, whatever their times: the caller leaves out what lies outside them.
    """

    #: Names all that decides what is made, beside the condition.
    what: Hashable
    #: Turns what was made into what is kept; None: it cannot be kept.
    of: Callable[[T], T | None]
    size_bytes: Callable[[T], int]


@dataclass(frozen=True, slots=True)
class GroupRows:
    """Rows of one row group, ascending."""

    group: GroupReader
    rows: Ints
    #: A condition of which these are all rows, under which what is read of a few rows is kept.
    condition: Condition | None = None
    #: Whether the condition was asked before.
    again: bool = False
    #: Whether what is made of the rows is kept for scans with other times.
    is_kept: bool = False

    def batch(self, columns: Sequence[str] | None, *, apart: bool = False, edges: Ints | None = None) -> pa.RecordBatch:
        def read(edges: Ints | None) -> pa.RecordBatch:
            return group_batch(self.group, self.rows, columns, apart=apart, edges=edges)

        if not self._is_batch_kept:
            return read(None if self.is_kept else edges)
        assert self.condition is not None
        what = "batch", self.condition.number, None if columns is None else tuple(columns), apart
        return self.group.remembered(what, lambda: compact(read(None)), lambda made: int(made.get_total_buffer_size()))

    @property
    def _is_batch_kept(self) -> bool:
        """Whether what is read of the rows is kept under their condition."""
        return self.condition is not None and (self._are_very_few or (self.again and self._are_few))

    @property
    def _are_very_few(self) -> bool:
        return len(self.rows) <= KEPT_AT_ONCE

    @property
    def _are_few(self) -> bool:
        return len(self.rows) < self.group.rows * _FEW_OF_GROUP

    def some(self, places: Ints) -> ReadableRows:
        return GroupRows(self.group, self.rows[places])

    def one_time(self, column: str, edges: Ints) -> int | None:
        bounds = self.group.bounds(column)
        if self.is_kept or bounds.low is None or bounds.nulls != 0:
            return None
        first, last = np.searchsorted(edges, (bounds.low, bounds.high))
        return int(bounds.low) if first == last and 0 < first < len(edges) else None

    def counts(self, time: str, columns: Sequence[str], edges: Ints) -> RowCounts | None:
        if self.is_kept or self._is_batch_kept:
            return None
        return row_counts(self.group, self.rows, time, columns, edges)

    def __len__(self) -> int:
        return len(self.rows)

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
    #: Whether they come before all other first rows in the order of answers.
    lead: bool = False

    def leading(self, places: Ints) -> Found:
        """The first rows in the order of answers. `places` are theirs, in ascending order."""
        if len(places) == len(self.rows):
            return self
        return Found(self.group, self.rows[places], times=self.times[places], among=self.among, lead=True)

    def chosen(self, places: Ints) -> Found:
        if len(places) == len(self.rows):
            return self
        return Found(self.group, self.rows[places], times=self.times[places], among=self.among)

    def batch(self, columns: Sequence[str] | None, *, apart: bool = False, edges: Ints | None = None) -> pa.RecordBatch:
        first = self.among
        if first is None or apart:
            # Without arguments, super() does not know a class with slots.
            return GroupRows.batch(self, columns, apart=apart, edges=edges)
        group, what = self.group, ("batch", first.name, None if columns is None else tuple(columns))
        whole = group.remembered(
            what,
            lambda: without_dictionaries(compact(group_batch(group, first.rows, columns))),
            lambda made: int(made.get_total_buffer_size()),
        )
        return whole if len(self.rows) == len(first.rows) else whole.take(self._places_in(first.rows))

    def made(
        self, what: Hashable, columns: Sequence[str] | None, make: Callable[[pa.RecordBatch], pa.RecordBatch | None]
    ) -> pa.RecordBatch | None:
        """What `make` makes of these columns of the rows, a row of each, if the rows are kept in memory: so is this.

        `what` names all that decides what is made. None: nothing is made of them, or nothing is kept. Rows that are
        among remembered first rows come in the order of answers, and others as they are.
        """
        first = self.among
        if first is not None:
            name, rows, in_order = first.name, first.rows, first.in_order
        elif self.condition is not None and self._are_very_few:
            name, rows, in_order = self.condition.number, self.rows, None
        else:
            return None
        made, _ = self.group.remembered(
            ("made", name, what), lambda: _made_of(self.group, rows, columns, make, in_order), lambda found: found[1]
        )
        return made if made is None or first is None else self._of_first(made, first)

    def _of_first(self, made: pa.RecordBatch, first: FirstRows) -> pa.RecordBatch:
        """What was made of these rows, out of what was made of the first rows in the order of answers."""
        count, in_order = len(self.rows), first.in_order
        if in_order is None:
            return made if count == len(first.rows) else made.take(self._places_in(first.rows))
        if self.lead or count == len(first.rows):
            return made.slice(0, count)
        # After a cut by rows of other groups too, they nearly always come before all others.
        if np.array_equal(np.sort(first.rows[in_order[:count]]), self.rows):
            return made.slice(0, count)
        return made.take(pa.array(np.argsort(in_order)[np.searchsorted(first.rows, self.rows)]))

    def _places_in(self, others: Ints) -> pa.Array:
        return pa.array(np.searchsorted(others, self.rows))


def _made_of(
    group: GroupReader,
    rows: Ints,
    columns: Sequence[str] | None,
    make: Callable[[pa.RecordBatch], pa.RecordBatch | None],
    in_order: Ints | None,
) -> tuple[pa.RecordBatch | None, int]:
    """What is made of the rows, if that is a row of each, and its bytes. With `in_order`, in this order."""
    made = make(group_batch(group, rows, columns))
    if made is None or made.num_rows < len(rows):
        return None, _NOT_MADE_BYTES
    made = compact(made if in_order is None else made.take(pa.array(in_order)))
    return made, int(made.get_total_buffer_size())


class Shape(Protocol):
    """Makes the rows of an answer, which have one schema and the event time."""

    def part(self, found: Found) -> pa.RecordBatch:
        """Read what the answer needs of the rows of one row group."""
        ...

    def whole(self, parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Make the rows of the answer from several parts, in their order."""
        ...


@dataclass(frozen=True, slots=True)
class FirstRows:
    """Rows of a row group that satisfy a condition: their number, and those that come first in the order of answers."""

    count: int
    rows: Ints
    times: Ints
    #: Under which they are remembered.
    name: Hashable = None
    #: The places of the rows in the order of answers; None: not known.
    in_order: Ints | None = None

    @property
    def are_all(self) -> bool:
        return self.count == len(self.rows)

    @property
    def nbytes(self) -> int:
        return int(self.rows.nbytes + self.times.nbytes + (0 if self.in_order is None else self.in_order.nbytes))
