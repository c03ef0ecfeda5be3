"""A column of native histograms as an Arrow struct array and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakerunner.query.series.arrays import offsets_of
from lakerunner.query.series.histograms.column import HistogramColumn

HISTOGRAM = pa.struct(
    [
        pa.field("schema", pa.int8()),
        pa.field("hint", pa.int8()),
        pa.field("count", pa.float64()),
        pa.field("sum", pa.float64()),
        pa.field("zero_threshold", pa.float64()),
        pa.field("zero_count", pa.float64()),
        pa.field("pos_index", pa.list_(pa.int64())),
        pa.field("pos_count", pa.list_(pa.float64())),
        pa.field("neg_index", pa.list_(pa.int64())),
        pa.field("neg_count", pa.list_(pa.float64())),
        pa.field("bounds", pa.list_(pa.float64())),
    ]
)


def histogram_structs(column: HistogramColumn, first: int, last: int) -> pa.Array:
    """The histogram of each sample, null where it is a float."""
    lists = {
        "pos_index": (column.pos_offsets, column.pos_index),
        "pos_count": (column.pos_offsets, column.pos_count),
        "neg_index": (column.neg_offsets, column.neg_index),
        "neg_count": (column.neg_offsets, column.neg_count),
        "bounds": (column.bounds_offsets, column.bounds),
    }
    arrays = []
    for kind in HISTOGRAM:
        if kind.name in lists:
            offsets, flat = lists[kind.name]
            arrays.append(pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(flat), type=kind.type))
        else:
            arrays.append(pa.array(getattr(column, kind.name), kind.type, from_pandas=False))
    row = column.row[first:last]
    whole = pa.StructArray.from_arrays(arrays, fields=list(HISTOGRAM))
    return whole.take(pa.array(np.maximum(row, 0), mask=row < 0))


def histogram_column(structs: pa.StructArray) -> HistogramColumn:
    """What `histogram_structs` was made of."""
    held = structs.is_valid().to_numpy(zero_copy_only=False)
    only = structs.filter(pa.array(held))
    fields = {kind.name: only.field(kind.name) for kind in HISTOGRAM}

    def numbers(name: str) -> npt.NDArray[Any]:
        array: npt.NDArray[Any] = fields[name].to_numpy(zero_copy_only=False)
        return array

    pos_offsets, pos_index = list_parts(fields["pos_index"])
    neg_offsets, neg_index = list_parts(fields["neg_index"])
    bounds_offsets, bounds = list_parts(fields["bounds"])
    return HistogramColumn(
        row=np.where(held, np.cumsum(held) - 1, -1).astype(np.int64),
        schema=numbers("schema"),
        hint=numbers("hint"),
        count=numbers("count"),
        sum=numbers("sum"),
        zero_threshold=numbers("zero_threshold"),
        zero_count=numbers("zero_count"),
        pos_offsets=pos_offsets,
        pos_index=pos_index.to_numpy(),
        pos_count=list_parts(fields["pos_count"])[1].to_numpy(),
        neg_offsets=neg_offsets,
        neg_index=neg_index.to_numpy(),
        neg_count=list_parts(fields["neg_count"])[1].to_numpy(),
        bounds_offsets=bounds_offsets,
        bounds=bounds.to_numpy(),
    )


def list_parts(array: pa.ListArray) -> tuple[npt.NDArray[np.int64], pa.Array]:
    offsets = array.offsets.to_numpy().astype(np.int64)
    return offsets_of(np.diff(offsets)), array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
