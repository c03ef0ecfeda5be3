"""Native histograms, from the columns of a segment to the arrays of the evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.query.series.arrays import offsets_of
from lakerunner.query.series.histograms.column import HistogramColumn, stacked, with_rows
from lakerunner.query.series.histograms.histogram import Floats, Ints

#: The columns of a histogram.
COLUMNS = (
    "h_schema",
    "h_zero_threshold",
    "h_zero_count",
    "h_count",
    "h_sum",
    "h_positive_spans",
    "h_positive_buckets",
    "h_negative_spans",
    "h_negative_buckets",
    "h_custom_values",
    "h_reset_hint",
)


def column_of(table: pa.Table) -> tuple[HistogramColumn, npt.NDArray[np.bool_]]:
    """The histograms of some samples, and a mask of those that were sent without a sum."""
    valid = table.column("h_schema").is_valid().combine_chunks()
    is_histogram = valid.to_numpy(zero_copy_only=False)
    row = np.where(is_histogram, np.cumsum(is_histogram) - 1, -1).astype(np.int64)
    columns = table.select(COLUMNS)
    # The filter copies all buckets. A metric with nothing but histograms does not need it.
    columns = (columns if is_histogram.all() else columns.filter(valid)).combine_chunks()
    arrays = {name: _only(columns, name) for name in COLUMNS}
    pos_offsets, pos_index, pos_count = _buckets(arrays["h_positive_spans"], arrays["h_positive_buckets"])
    neg_offsets, neg_index, neg_count = _buckets(arrays["h_negative_spans"], arrays["h_negative_buckets"])
    bounds_offsets, bounds = _lists(arrays["h_custom_values"])
    column = HistogramColumn(
        row=row,
        schema=_numbers(arrays["h_schema"], np.int8),
        hint=_numbers(arrays["h_reset_hint"], np.int8),
        count=_numbers(arrays["h_count"], np.float64),
        sum=_numbers(arrays["h_sum"], np.float64),
        zero_threshold=_numbers(arrays["h_zero_threshold"], np.float64),
        zero_count=_numbers(arrays["h_zero_count"], np.float64),
        pos_offsets=pos_offsets,
        pos_index=pos_index,
        pos_count=pos_count,
        neg_offsets=neg_offsets,
        neg_index=neg_index,
        neg_count=neg_count,
        bounds_offsets=bounds_offsets,
        bounds=bounds.to_numpy(zero_copy_only=False).astype(np.float64),
    )
    return column, arrays["h_sum"].is_null().to_numpy(zero_copy_only=False)


def concatenated(columns: Sequence[HistogramColumn | None], lengths: Sequence[int]) -> HistogramColumn:
    """The histograms of several parts, one after another. A part of None stands for `length` float samples."""
    present = [column for column in columns if column is not None]
    rows, base = [], 0
    for column, length in zip(columns, lengths, strict=True):
        if column is None:
            rows.append(np.full(length, -1, np.int64))
        else:
            rows.append(np.where(column.row < 0, -1, column.row + base))
            base += len(column)
    return with_rows(stacked(present), np.concatenate([np.zeros(0, np.int64), *rows]))


def _only(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays([pa.array([], column.type), *column.chunks])


def _numbers(array: pa.Array, kind: type) -> npt.NDArray[Any]:
    # fill_null instead of to_numpy's own NaN: the bits of a stale marker must not change.
    filled = array.fill_null(0) if array.null_count else array
    numbers: npt.NDArray[Any] = filled.to_numpy(zero_copy_only=False).astype(kind, copy=False)
    return numbers


def _lists(array: pa.Array) -> tuple[Ints, pa.Array]:
    """Offsets and flat values of lists. A null list counts as empty."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return offsets_of(lengths), array.flatten()


def bucket_arrays(table: pa.Table, spans: str, counts: str) -> tuple[Ints, Ints, Floats]:
    """The buckets of two columns: the offsets of each row's buckets, the index of each bucket, and its count."""
    return _buckets(_only(table, spans), _only(table, counts))


def _buckets(spans: pa.Array, counts: pa.Array) -> tuple[Ints, Ints, Floats]:
    """The offsets of each histogram's buckets, the index of each bucket, and its count."""
    span_offsets, flat = _lists(spans)
    count_offsets, values = _lists(counts)
    skip = flat.field("offset").to_numpy(zero_copy_only=False).astype(np.int64)
    length = flat.field("length").to_numpy(zero_copy_only=False).astype(np.int64)
    # The index of a span's first bucket is the number of buckets skipped and filled before it in the same histogram.
    reached = np.cumsum(skip + length)
    first = reached - length
    before = np.concatenate([[0], reached])[span_offsets[:-1]]
    first -= np.repeat(before, np.diff(span_offsets))
    starts = np.cumsum(length) - length
    index = np.arange(int(length.sum())) - np.repeat(starts, length) + np.repeat(first, length)
    return count_offsets, index, values.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
