"""Samples as Arrow record batches and back: one row a series, its samples in lists, which are the same arrays.

Labels travel with every part, packed; the receiver makes label sets only when it looks at them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakerunner.query.scan.samples.runs import Samples, offsets_of
from lakerunner.query.scan.samples.series_table import TableLabels
from lakerunner.query.series.histograms.column import HistogramColumn
from lakerunner.query.series.label_list import LabelList, packed_labels

#: Samples of one batch: what goes over the network, and may be given up, at a time.
_BATCH_SAMPLES = 1 << 19

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
SCHEMA = pa.schema(
    [
        pa.field("tid", pa.int64()),
        pa.field("labels", pa.binary()),
        pa.field("timestamps_ms", pa.list_(pa.int64())),
        pa.field("values", pa.list_(pa.float64())),
        #: Null where none is known in the whole batch.
        pa.field("start_timestamps_ms", pa.list_(pa.int64())),
        #: A null element is a float sample; null lists: all are.
        pa.field("histograms", pa.list_(HISTOGRAM)),
    ]
)


def to_batches(samples: Samples) -> Iterator[pa.RecordBatch]:
    """The samples in batches of whole runs."""
    samples = samples.tight()
    labels = samples.labels.packed() if isinstance(samples.labels, TableLabels) else packed_labels(samples.labels)
    begin = 0
    while begin < len(samples.tids):
        limit = samples.offsets[begin] + _BATCH_SAMPLES
        end = max(begin + 1, int(np.searchsorted(samples.offsets, limit, side="right")) - 1)
        yield _batch(samples, labels, begin, end)
        begin = end


def from_batch(batch: pa.RecordBatch) -> Samples:
    """The samples of one batch. Arrays are those of the message, not copies."""
    tids = batch.column("tid").to_numpy()
    offsets, times = _list(batch.column("timestamps_ms"))
    _, values = _list(batch.column("values"))
    starts, column = batch.column("start_timestamps_ms"), batch.column("histograms")
    return Samples(
        tids,
        LabelList.of_packed(batch.column("labels")),
        offsets,
        times.to_numpy(),
        values.to_numpy(),
        None if starts.null_count else _list(starts)[1].to_numpy(),
        None if column.null_count else histogram_column(_list(column)[1]),
    )


def _batch(samples: Samples, labels: pa.BinaryArray, begin: int, end: int) -> pa.RecordBatch:
    first, last = int(samples.offsets[begin]), int(samples.offsets[end])
    offsets = pa.array((samples.offsets[begin : end + 1] - first).astype(np.int32))

    def listed(array: npt.NDArray[Any] | None, kind: pa.DataType) -> pa.Array:
        if array is None:
            return pa.nulls(end - begin, kind)
        return pa.ListArray.from_arrays(offsets, pa.array(array[first:last], from_pandas=False), type=kind)

    histograms = pa.nulls(end - begin, pa.list_(HISTOGRAM))
    if samples.histograms is not None and (samples.histograms.row[first:last] >= 0).any():
        histograms = pa.ListArray.from_arrays(offsets, histogram_structs(samples.histograms, first, last))
    return pa.RecordBatch.from_arrays(
        [
            pa.array(samples.tids[begin:end]),
            labels[begin:end],
            listed(samples.timestamps_ms, pa.list_(pa.int64())),
            listed(samples.values, pa.list_(pa.float64())),
            listed(samples.start_timestamps_ms, pa.list_(pa.int64())),
            histograms,
        ],
        schema=SCHEMA,
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

    pos_offsets, pos_index = _list(fields["pos_index"])
    neg_offsets, neg_index = _list(fields["neg_index"])
    bounds_offsets, bounds = _list(fields["bounds"])
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
        pos_count=_list(fields["pos_count"])[1].to_numpy(),
        neg_offsets=neg_offsets,
        neg_index=neg_index.to_numpy(),
        neg_count=_list(fields["neg_count"])[1].to_numpy(),
        bounds_offsets=bounds_offsets,
        bounds=bounds.to_numpy(),
    )


def _list(array: pa.ListArray) -> tuple[npt.NDArray[np.int64], pa.Array]:
    offsets = array.offsets.to_numpy().astype(np.int64)
    return offsets_of(np.diff(offsets)), array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
