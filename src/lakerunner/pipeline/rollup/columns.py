"""Columns of a table of samples as flat numpy arrays. A column that is missing counts as one that is all null."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.signals.metrics import SPAN
from lakerunner.pipeline.rollup.kernels import Floats, Ints


def bucket_indexes(table: pa.Table, spans_name: str, counts_name: str) -> tuple[Ints, Ints, Floats]:
    """The offsets of each row's buckets, the index of each bucket, and its count."""
    span_offsets, spans = _flat(table, spans_name, SPAN)
    offsets, counts = _flat(table, counts_name, pa.float64())
    skip = spans.field("offset").to_numpy(zero_copy_only=False).astype(np.int64)
    length = spans.field("length").to_numpy(zero_copy_only=False).astype(np.int64)
    reached = np.cumsum(skip + length)
    first = reached - length - np.repeat(np.concatenate([[0], reached])[span_offsets[:-1]], np.diff(span_offsets))
    begins = np.cumsum(length) - length
    index = np.arange(int(length.sum())) - np.repeat(begins, length) + np.repeat(first, length)
    return offsets, index, counts.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)


def list_offsets(table: pa.Table, name: str) -> tuple[Ints, Floats]:
    """The offsets and the flat values of a column of lists of numbers. A null list counts as empty."""
    offsets, values = _flat(table, name, pa.float64())
    return offsets, values.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)


def _flat(table: pa.Table, name: str, kind: pa.DataType) -> tuple[Ints, pa.Array]:
    if name not in table.column_names:
        return np.zeros(table.num_rows + 1, np.int64), pa.array([], kind)
    array = _whole(table, name)
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets, array.flatten()


def numbers(table: pa.Table, name: str) -> npt.NDArray[Any]:
    """A column of numbers, 0 where it is null. The bits of a stale marker stay."""
    if name not in table.column_names:
        return np.zeros(table.num_rows)
    array = _whole(table, name)
    if array.null_count == len(array):
        return np.zeros(table.num_rows, np.int64 if pa.types.is_timestamp(array.type) else array.type.to_pandas_dtype())
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    if array.null_count:
        array = array.fill_null(0)
    found: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return found


def is_valid(table: pa.Table, name: str) -> npt.NDArray[np.bool_]:
    if name not in table.column_names:
        return np.zeros(table.num_rows, np.bool_)
    array = _whole(table, name)
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    found: npt.NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return found


def _whole(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays([pa.array([], column.type), *column.chunks])
