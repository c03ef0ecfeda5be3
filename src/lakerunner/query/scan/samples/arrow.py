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
from lakerunner.query.series.reading import Need
from lakerunner.query.series.rollup import Rollup

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
        #: What rows of a tier stand for. Null if the samples stand for themselves.
        pa.field("need", pa.string()),
        pa.field("derivable", pa.bool_()),
        pa.field("counts", pa.list_(pa.int64())),
        pa.field("first_aggregates", pa.list_(pa.float64())),
        pa.field("second_aggregates", pa.list_(pa.float64())),
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
        rollup=_rollup(batch),
    )


def _rollup(batch: pa.RecordBatch) -> Rollup | None:
    if batch.column("need").null_count:
        return None
    columns = [batch.column(name) for name in ("first_aggregates", "second_aggregates")]
    return Rollup(
        Need(batch.column("need")[0].as_py()),
        list_parts(batch.column("counts"))[1].to_numpy(),
        tuple(list_parts(column)[1].to_numpy() for column in columns if not column.null_count),
        bool(batch.column("derivable")[0].as_py()),
    )


def _batch(samples: Samples, labels: pa.BinaryArray, begin: int, end: int) -> pa.RecordBatch:
    first, last = int(samples.offsets[begin]), int(samples.offsets[end])
    offsets = pa.array((samples.offsets[begin : end + 1] - first).astype(np.int32))

    def listed(array: npt.NDArray[Any] | None, kind: pa.DataType) -> pa.Array:
        if array is None:
            return pa.nulls(end - begin, kind)
        return pa.ListArray.from_arrays(offsets, pa.array(array[first:last], from_pandas=False), type=kind)

    rollup = samples.rollup
    aggregates = [*(() if rollup is None else rollup.aggregates), None, None]
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
            pa.array([None if rollup is None else rollup.need.value] * (end - begin), pa.string()),
            pa.array([None if rollup is None else rollup.derivable] * (end - begin), pa.bool_()),
            listed(None if rollup is None else rollup.count, pa.list_(pa.int64())),
            listed(aggregates[0], pa.list_(pa.float64())),
            listed(aggregates[1], pa.list_(pa.float64())),
        ],
        schema=SCHEMA,
    )
