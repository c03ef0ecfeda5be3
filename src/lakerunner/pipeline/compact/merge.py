"""Merge sorted inputs batch by batch: memory depends on the number of inputs and the size of a batch, not on theirs.

Of every input a few thousand rows are in memory. Rows that sort before the end of every input's batch can be no longer
preceded by a row that was not read yet, so they are put in order and handed on. Equal keys stay together, in the order
of the inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import total_ordering
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakerunner.pipeline.ordering import Codes, sort_order, take, whole

#: Equal keys are kept together up to this many rows. Beyond, they are handed on in several chunks.
MAX_EQUAL_ROWS = 1 << 18


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Key:
    """The sort key of a row. Null sorts last."""

    values: tuple[Any, ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.values == other.values

    def __lt__(self, other: Key) -> bool:
        for mine, theirs in zip(self.values, other.values, strict=True):
            if mine != theirs:
                return theirs is None or (mine is not None and mine < theirs)
        return False

    def __hash__(self) -> int:
        return hash(self.values)


class SortedInput:
    """One input: what was read of it and not handed on yet."""

    def __init__(
        self, batches: Iterator[pa.Table], row_count: int, sort_key: Sequence[str], enough_rows: int = 1
    ) -> None:
        self._batches = batches
        #: Read more while there are fewer rows. If inputs ran empty one by one, each would hold up all others.
        self._enough_rows = enough_rows
        self._left = row_count
        self._sort_key = sort_key
        self._rows: pa.Table | None = None
        self._columns: list[pa.Array] = []

    def __len__(self) -> int:
        return 0 if self._rows is None else int(self._rows.num_rows)

    @property
    def is_read(self) -> bool:
        """Whether no further rows follow those in memory."""
        return self._left == 0

    def fill(self) -> bool:
        """Read until there are enough rows; return whether there are any."""
        while len(self) < self._enough_rows and not self.is_read:
            self.read_more()
        return len(self) > 0

    def read_more(self) -> None:
        batch = next(self._batches, None)
        if batch is None:
            raise pa.ArrowInvalid(f"the file ends {self._left} rows before the count in its footer")
        self._left -= batch.num_rows
        self._keep(batch if not len(self) else pa.concat_tables([self._rows, batch]))

    def first(self) -> Key:
        return self._key(0)

    def last(self) -> Key:
        return self._key(len(self) - 1)

    def count_below(self, key: Key) -> int:
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self._key(middle) < key:
                low = middle + 1
            else:
                high = middle
        return low

    def count_up_to(self, key: Key) -> int:
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if key < self._key(middle):
                high = middle
            else:
                low = middle + 1
        return low

    def hand_on(self, rows: int) -> pa.Table:
        """Give the first rows away."""
        assert self._rows is not None
        given = self._rows.slice(0, rows)
        self._keep(self._rows.slice(rows))
        return given

    def _key(self, row: int) -> Key:
        return Key(tuple(column[row].as_py() for column in self._columns))

    def _keep(self, rows: pa.Table) -> None:
        self._rows = rows
        self._columns = [_comparable(rows.column(name)) for name in self._sort_key]


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Numbers for times: nanoseconds are no Python object, and timestamps are slow ones."""
    return column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows in order, and the number of the input that each comes from."""

    rows: pa.Table
    origin: npt.NDArray[np.int32]


def merged(
    inputs: Sequence[SortedInput], sort_key: Sequence[str], check: Callable[[], None] = lambda: None
) -> Iterator[Chunk]:  # fmt: skip
    """Yield the rows of all inputs in order of the key. Rows of equal keys come in one chunk, if they are not too many.

    `check` is called between chunks and raises when the rows are no longer wanted.
    """
    while True:
        check()
        active = [number for number, each in enumerate(inputs) if each.fill()]
        if not active:
            return
        unread = [each for each in (inputs[number] for number in active) if not each.is_read]
        if not unread:
            yield _chunk(inputs, {number: len(inputs[number]) for number in active}, sort_key)
            continue
        end = min(each.last() for each in unread)
        counts = {number: inputs[number].count_below(end) for number in active}
        if any(counts.values()):
            yield _chunk(inputs, counts, sort_key)
            continue
        # Every row in memory sorts at the end of some input's batch, or behind it: rows of that key may follow.
        if sum(len(each) for each in unread) <= MAX_EQUAL_ROWS:
            for each in unread:
                if each.last() == end:
                    each.read_more()
        else:
            yield from _run_of(inputs, active, end, sort_key)


def _run_of(inputs: Sequence[SortedInput], active: Sequence[int], key: Key, sort_key: Sequence[str]) -> Iterator[Chunk]:
    """Yield all rows of one key, input after input."""
    for number in active:
        one = inputs[number]
        while one.fill() and (count := one.count_up_to(key)):
            yield _chunk(inputs, {number: count}, sort_key)


def _chunk(inputs: Sequence[SortedInput], counts: dict[int, int], sort_key: Sequence[str]) -> Chunk:
    given = {number: count for number, count in counts.items() if count}
    parts = [inputs[number].hand_on(count) for number, count in given.items()]
    origin = np.repeat(np.array(list(given), np.int32), list(given.values()))
    if len(parts) == 1:
        return Chunk(one_piece(parts[0]), origin)
    rows = pa.concat_tables(parts)
    order: Codes | None = sort_order(rows, sort_key)
    if order is None:
        return Chunk(one_piece(rows), origin)
    return Chunk(take(rows, order), origin[order])


def one_piece(table: pa.Table) -> pa.Table:
    """Return the table with one array per column."""
    if all(column.num_chunks == 1 for column in table.columns):
        return table
    return pa.Table.from_arrays([whole(column) for column in table.columns], schema=table.schema)
