"""Counts rows by the interval of their time and by the value of one column.

A log volume asks for nothing else. Of a few thousand rows of a row group, making times and labels of each takes longer
than reading them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

from lakerunner.query.scan.rows.conditions.evaluate import Ints
from lakerunner.query.scan.rows.row_group.group import GroupReader
from lakerunner.store.nanos import SUFFIX

#: Dictionaries that are larger have many words, and each row group has others: then rows are looked at one by one.
_MOST_DICTIONARY_BYTES = 4 << 10
#: Numbers of a row group, by word and interval.
_MOST_CELLS = 1 << 16
_US, _NANOS = pa.timestamp("us", "UTC"), pa.int16()
_NO_CODES, _NO_BITS, _NO_REST = np.zeros(0, np.int32), np.zeros(0, np.uint8), np.zeros(0, np.int16)
for _empty in (_NO_CODES, _NO_BITS, _NO_REST):
    # Like the memory of Arrow, so that the kernel is compiled once.
    _empty.flags.writeable = False
#: What a time in microseconds lacks at most.
_LACKING_NS = 999


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Numbers of rows: `counts[n, j]` have the value n, and lie in the interval `first` + j."""

    #: The column with the values; None: the rows have a value in none of the wanted columns.
    column: str | None
    #: The values that rows have. None: no value.
    values: tuple[str | None, ...]
    counts: Ints
    first: int
    #: The original keys of attributes, as the metadata of a schema has them.
    keys: Mapping[bytes, bytes]


def row_counts(group: GroupReader, rows: Ints, time: str, columns: Sequence[str], edges: Ints) -> RowCounts | None:
    """The rows by their interval (edges[j], edges[j + 1]] and by the one of the columns that has values.

    None: several columns have values, or it is not faster than reading the rows.
    """
    footer, number = group.footer, group.number
    begin, end = int(rows[0]), int(rows[-1]) + 1
    if end - begin != len(rows) or any(footer.may_overflow(name, number) for name in columns):
        return None
    present = [name for name in columns if name in footer.fields and not group.bounds(name).all_null]
    bounds = group.bounds(time)
    if len(present) > 1 or not all(map(group.is_coded_text, present)) or footer.fields[time].type != _US:
        return None
    if any(group.dictionary_bytes(name) > _MOST_DICTIONARY_BYTES for name in present):
        return None
    if bounds.low is None or bounds.nulls != 0:
        return None
    # Rows before the first edge and behind the last one lie in no interval.
    first = max(int(edges.searchsorted(bounds.low)) - 1, 0)
    last = min(int(edges.searchsorted(bounds.high)), len(edges) - 1)
    read = group.cold_span([time, *present], begin, end) if first < last <= first + _MOST_CELLS else None
    if read is None:
        return None
    words, codes, bits = _coded(read[1]) if present else (None, _NO_CODES, _NO_BITS)
    length = 0 if words is None else len(words)
    if (length + 1) * (last - first) > _MOST_CELLS:
        return None
    counts = np.zeros((length + 1, last - first), np.int64)
    times, near = np.frombuffer(read[0].buffers()[1], np.int64), edges[first : last + 1]
    lacking_ns = _LACKING_NS if time + SUFFIX in footer.fields else 0
    seen = _count(times, _NO_REST, codes, bits, near, lacking_ns, counts)
    if seen < 0:
        # A time is in the microsecond of an edge.
        rest = group.cold_span([time + SUFFIX], begin, end)
        if rest is None or rest[0].null_count or rest[0].type != _NANOS:
            return None
        counts[:] = 0
        seen = _count(times, np.frombuffer(rest[0].buffers()[1], np.int16), codes, bits, near, 0, counts)
    values: tuple[str | None, ...] = (*(() if words is None else words.to_pylist()), None)
    if seen < len(values):
        used = np.asarray(counts.any(axis=1))
        values, counts = tuple(value for value, is_used in zip(values, used, strict=True) if is_used), counts[used]
    return RowCounts(present[0] if present else None, values, counts, first, footer.attribute_keys)


def _coded(array: pa.DictionaryArray) -> tuple[pa.Array, npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """The words, the code of each row, and the bits of rows that have one; no bits: all have."""
    bits, codes = array.indices.buffers()
    return array.dictionary, np.frombuffer(codes, np.int32), _NO_BITS if bits is None else np.frombuffer(bits, np.uint8)


@njit(cache=True, nogil=True)
def _count(times, rest, codes, bits, edges, lacking_ns, counts):  # type: ignore[no-untyped-def]
    """Count rows with times in microseconds, and `rest` nanoseconds beyond them if these are known.

    Rows without a value are in the last row of `counts`. Returns how many rows of it are used; -1: nanoseconds decide.
    """
    nowhere, at, seen = len(counts) - 1, 0, 0
    used = np.zeros(len(counts), np.bool_)
    for row in range(len(times)):
        t = times[row] * 1_000
        if len(rest):
            t += rest[row]
        # The number of edges before the time. Neighbours are mostly between the same edges.
        if (at > 0 and edges[at - 1] >= t) or (at < len(edges) and edges[at] < t):
            low, high = 0, len(edges)
            while low < high:
                middle = (low + high) >> 1
                if edges[middle] < t:
                    low = middle + 1
                else:
                    high = middle
            at = low
        if at < len(edges) and edges[at] <= t + lacking_ns and lacking_ns:
            return -1
        if at == 0 or at == len(edges):
            continue
        value = nowhere
        if len(codes) and (not len(bits) or (bits[row >> 3] >> np.uint8(row & 7)) & np.uint8(1)):
            value = codes[row]
        counts[value, at - 1] += 1
        if not used[value]:
            used[value] = True
            seen += 1
    return seen


def warm() -> None:
    empty = np.frombuffer(b"", np.int64)
    _count(empty, _NO_REST, _NO_CODES, _NO_BITS, np.zeros(2, np.int64), 0, np.zeros((1, 1), np.int64))
