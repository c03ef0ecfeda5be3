"""Samples as Arrow record batches and back. One row per series; its samples are lists that share the arrays.

Every part carries its labels, packed. The receiver makes label sets only on access.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakerunner.query.scan.samples.runs import Samples
from lakerunner.query.scan.samples.series_table import TableLabels
from lakerunner.query.series.histograms.arrow import HISTOGRAM, histogram_column, histogram_structs, list_parts
from lakerunner.query.series.label_list import LabelList, packed_labels

#: Maximum number of samples of one batch. Cancellation is checked between batches.
_BATCH_SAMPLES = 1 << 19

SCHEMA = pa.schema(
    [
        pa.field("tid", pa.int64()),
        pa.field("labels", pa.binary()),
        pa.field("timestamps_ms", pa.list_(pa.int64())),
        pa.field("values", pa.list_(pa.float64())),
        #: Null if no start is known in the whole batch.
        pa.field("start_timestamps_ms", pa.list_(pa.int64())),
        #: A null element is a float sample. Null lists: all samples are floats.
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
    """The samples of one batch. The arrays are views of the message."""
    tids = batch.column("tid").to_numpy()
    offsets, times = list_parts(batch.column("timestamps_ms"))
    _, values = list_parts(batch.column("values"))
    starts, column = batch.column("start_timestamps_ms"), batch.column("histograms")
    return Samples(
        tids,
        LabelList.of_packed(batch.column("labels")),
        offsets,
        times.to_numpy(),
        values.to_numpy(),
        None if starts.null_count else list_parts(starts)[1].to_numpy(),
        None if column.null_count else histogram_column(list_parts(column)[1]),
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
