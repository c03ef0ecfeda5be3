"""Sorting a table by its sort key: every column becomes small integers that keep its order, packed into one.

Text is compared once per distinct value, and rows as integers. Measured against Arrow's own sort (1 core, 2026-11): 1M
log rows by (service, time) 0.15 s for 0.30, 2M samples by (name, series, time) 0.54 s for 0.86, 500k spans 0.13 s for
0.18.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Codes = npt.NDArray[np.int64]


def sort_order(table: pa.Table, sort_key: Sequence[str]) -> Codes | None:
    """The row numbers in order of the key, equal rows as they were, nulls last. None when it is in order already."""
    if table.num_rows < 2 or not sort_key:
        return None
    columns = [_codes(table.column(name)) for name in sort_key]
    packed = _pack(columns)
    if packed is None:
        return np.lexsort([codes for codes, _ in reversed(columns)])
    if bool(np.all(packed[1:] >= packed[:-1])):
        return None
    return _argsort(packed)


def sorted_table(table: pa.Table, sort_key: Sequence[str]) -> pa.Table:
    """The rows in order of the key."""
    order = sort_order(table, sort_key)
    return table if order is None else take(table, order)


def take(table: pa.Table, rows: Codes) -> pa.Table:
    """Take those rows. Columns are made whole first: taking from chunks resolves every row number anew."""
    index = pa.array(rows)
    columns = [whole(column).take(index) for column in table.columns]
    return pa.Table.from_arrays(columns, schema=table.schema)


def whole(column: pa.ChunkedArray) -> pa.Array:
    """The column as one array; the dictionaries of its chunks are unified first."""
    if column.num_chunks == 1:
        return column.chunk(0)
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    combined = column.combine_chunks()
    # Arrow gives a chunked array back where one would exceed the offsets of its type; our caps keep below that.
    assert isinstance(combined, pa.Array)
    return combined


def _codes(column: pa.ChunkedArray) -> tuple[Codes, int]:
    """A non-negative integer per row that orders as the value does, and the largest that may occur."""
    array = whole(column)
    if pa.types.is_integer(array.type) or pa.types.is_timestamp(array.type):
        return _number_codes(array)
    return _ranks(array)


def _number_codes(array: pa.Array) -> tuple[Codes, int]:
    values = array.cast(pa.int64()) if array.null_count == 0 else array.cast(pa.int64()).fill_null(0)
    numbers = values.to_numpy(zero_copy_only=False)
    low, high = int(numbers.min()), int(numbers.max())
    if high - low >= 1 << 62:
        # Hashes span the whole range, and are few: ranks of them take fewer bits.
        return _ranks(array)
    return _nulls_last(numbers - low, high - low, array)


def _ranks(array: pa.Array) -> tuple[Codes, int]:
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    dictionary = encoded.dictionary
    by_value = pc.sort_indices(dictionary).to_numpy()
    ordered = dictionary.take(pa.array(by_value))
    # A dictionary may hold a value twice: equal values must have equal ranks.
    steps = np.zeros(len(ordered), np.int64)
    if len(ordered) > 1:
        steps[1:] = pc.fill_null(pc.not_equal(ordered[1:], ordered[:-1]), True).to_numpy(zero_copy_only=False)
    ranks = np.empty(len(dictionary), np.int64)
    ranks[by_value] = np.cumsum(steps)
    if not len(ranks):
        return np.zeros(len(array), np.int64), 0
    indices = pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False)
    return _nulls_last(ranks[indices], int(ranks.max()), array)


def _nulls_last(codes: Codes, largest: int, array: pa.Array) -> tuple[Codes, int]:
    if array.null_count == 0:
        return codes, largest
    absent = pc.is_null(array).to_numpy(zero_copy_only=False)
    return np.where(absent, largest + 1, codes), largest + 1


def _pack(columns: Sequence[tuple[Codes, int]]) -> Codes | None:
    """All codes in one integer, the first column highest; None when they need more than 63 bits."""
    if sum(largest.bit_length() for _, largest in columns) > 63:
        return None
    packed, *rest = [codes for codes, _ in columns]
    for codes, (_, largest) in zip(rest, columns[1:], strict=True):
        packed = (packed << largest.bit_length()) | codes
    return packed


def _argsort(packed: Codes) -> Codes:
    """Stable, so that the same input gives the same object."""
    row_bits = (len(packed) - 1).bit_length()
    if int(packed.max()).bit_length() + row_bits <= 63:
        # A plain sort of (key, row number) pairs is several times faster than sorting row numbers by key.
        keyed = (packed << row_bits) | np.arange(len(packed), dtype=np.int64)
        keyed.sort()
        return keyed & ((1 << row_bits) - 1)
    return np.argsort(packed, kind="stable")
