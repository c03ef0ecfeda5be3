"""HyperLogLogs of the series of each metric, which tier segments carry."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasketches import hll_sketch, tgt_hll_type

from lakerunner.model.signals.tiers import SERIES_SKETCH
from lakerunner.pipeline.ordering import whole

#: 2,048 registers: a standard error of 2.3%, and at most a kilobyte per metric. Small sets are exact.
LG_REGISTERS = 11


def series_sketches(series: pa.Table) -> pa.Array:
    """Each metric's sketch in its first row. The series are in order."""
    column: list[bytes | None] = [None] * series.num_rows
    for first, tids in _by_metric(series):
        sketch = hll_sketch(LG_REGISTERS, tgt_hll_type.HLL_4)
        for tid in tids.tolist():
            sketch.update(tid)
        column[first] = sketch.serialize_compact()
    return pa.array(column, SERIES_SKETCH.type)


def _by_metric(series: pa.Table) -> Iterator[tuple[int, np.ndarray]]:
    """The first row and the ids of each metric."""
    if not series.num_rows:
        return
    names = whole(series.column("metric_name"))
    changes = pc.not_equal(names[1:], names[:-1]).to_numpy(zero_copy_only=False)
    bounds = np.concatenate([[0], np.flatnonzero(changes) + 1, [len(names)]])
    tids = whole(series.column("tid")).to_numpy()
    for first, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        yield first, tids[first:stop]
