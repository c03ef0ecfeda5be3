"""Parquet's page indexes: the offsets of a column chunk's pages, their rows, and the bounds of their values.

pyarrow does not expose page indexes, so they are read here, from the offsets in the footer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from lakerunner.query.scan.rows.parquet.thrift import Bytes, field_head, list_head, signed, skip, varint

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Pages:
    """One entry per data page of a column chunk. `first_rows` has one more at its end: the group's row count."""

    offsets: Ints
    sizes: Ints
    first_rows: Ints

    def __len__(self) -> int:
        return len(self.offsets)

    def of_rows(self, rows: Ints) -> Ints:
        """The pages that hold these rows, which must ascend."""
        if len(rows) == self.first_rows[-1]:
            return np.arange(len(self))
        if len(rows) and rows[-1] - rows[0] + 1 == len(rows):
            first, last = np.searchsorted(self.first_rows, rows[[0, -1]], side="right") - 1
            return np.arange(first, last + 1)
        found: Ints = np.flatnonzero(np.diff(np.searchsorted(rows, self.first_rows)))
        return found


@dataclass(frozen=True, slots=True)
class PageBounds:
    """For each page: whether it is all null, its number of nulls, and its smallest and largest value."""

    all_null: list[bool]
    null_counts: list[int] | None
    low: list[bytes]
    high: list[bytes]


@njit(cache=True, nogil=True, boundscheck=True)
def index_places(footer: Bytes, groups: int, columns: int) -> Ints:
    """Offset and length of every chunk's offset index, then of its column index; 0 if there is none."""
    found = np.zeros((groups, columns, 4), np.int64)
    at, last = 0, 0
    while True:
        last, kind, at = field_head(footer, at, last)
        if kind == 0:
            return found
        if last != 4:
            at = skip(footer, at, kind)
            continue
        count, _, at = list_head(footer, at)
        for group in range(count):
            inner_last = 0
            while True:
                inner_last, kind, at = field_head(footer, at, inner_last)
                if kind == 0:
                    break
                if inner_last != 1:
                    at = skip(footer, at, kind)
                    continue
                chunks, _, at = list_head(footer, at)
                for chunk in range(chunks):
                    chunk_last = 0
                    while True:
                        chunk_last, kind, at = field_head(footer, at, chunk_last)
                        if kind == 0:
                            break
                        if 4 <= chunk_last <= 7:
                            found[group, chunk, chunk_last - 4], at = signed(footer, at)
                        else:
                            at = skip(footer, at, kind)


def read_pages(body: bytes, group_rows: int) -> Pages:
    """Parse an OffsetIndex: a list of (offset, compressed size with the page's header, first row)."""
    buffer = np.frombuffer(body, np.uint8)
    values = page_locations(buffer)
    first_rows = np.append(values[:, 2], group_rows)
    if len(values) == 0 or values[0, 2] != 0 or (np.diff(first_rows) <= 0).any():
        raise ValueError("cannot read a page index: its pages do not follow each other")
    return Pages(values[:, 0], values[:, 1], first_rows)


@njit(cache=True, nogil=True, boundscheck=True)
def page_locations(buffer: Bytes) -> Ints:
    """Offset, size and first row of every page in an OffsetIndex."""
    found = np.zeros((0, 3), np.int64)
    at, last = 0, 0
    while True:
        last, kind, at = field_head(buffer, at, last)
        if kind == 0:
            return found
        if last != 1:
            at = skip(buffer, at, kind)
            continue
        count, _, at = list_head(buffer, at)
        if count > len(buffer):
            raise ValueError("too many pages")
        found = np.zeros((count, 3), np.int64)
        for page in range(count):
            inner = 0
            while True:
                inner, kind, at = field_head(buffer, at, inner)
                if kind == 0:
                    break
                found[page, inner - 1], at = signed(buffer, at)


def read_bounds(body: bytes) -> PageBounds:
    """Parse a ColumnIndex."""
    buffer = np.frombuffer(body, np.uint8)
    lists: dict[int, list[Any]] = {}
    at, last = 0, 0
    while True:
        last, kind, at = field_head(buffer, at, last)
        if kind == 0:
            break
        reader = _LISTS.get(last)
        if reader is None:
            at = skip(buffer, at, kind)
            continue
        count, _, at = list_head(buffer, at)
        values = lists[last] = []
        for _ in range(count):
            value, at = reader(buffer, body, at)
            values.append(value)
    bounds = PageBounds(lists.get(1, []), lists.get(5), lists.get(2, []), lists.get(3, []))
    counts = {len(each) for each in (bounds.all_null, bounds.low, bounds.high, bounds.null_counts or bounds.low)}
    if len(counts) != 1:
        raise ValueError("cannot read a page index: its lists differ in length")
    return bounds


def _flag(buffer: Bytes, body: bytes, at: int) -> tuple[bool, int]:
    return body[at] == 1, at + 1


def _binary(buffer: Bytes, body: bytes, at: int) -> tuple[bytes, int]:
    length, at = varint(buffer, at)
    return body[at : at + length], at + length


def _number(buffer: Bytes, body: bytes, at: int) -> tuple[int, int]:
    value, at = signed(buffer, at)
    return int(value), at


_LISTS: dict[int, Callable[[Bytes, bytes, int], tuple[Any, int]]] = {1: _flag, 2: _binary, 3: _binary, 5: _number}
