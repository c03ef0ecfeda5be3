"""The series of a window: described once, and counted by a HyperLogLog per metric that merges across windows."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from datasketches import hll_sketch, hll_union

from lakerunner.model.signals.metrics import SERIES
from lakerunner.model.signals.tiers import SERIES_SKETCH
from lakerunner.pipeline.ordering import sorted_table, take, whole
from lakerunner.pipeline.series_sketch import LG_REGISTERS, series_sketches


def distinct_series(files: Iterable[pa.NativeFile]) -> pa.Table:
    """The series of all files, each as the first file describes it."""
    seen = np.empty(0, np.int64)
    kept: list[pa.Table] = []
    names = [column.name for column in SERIES.columns]
    for file in files:
        table = pq.read_table(file, columns=names)
        tids = whole(table.column("tid")).to_numpy()
        new = np.flatnonzero(~np.isin(tids, seen))
        if len(new):
            kept.append(take(table, new) if len(new) < len(tids) else table)
            seen = np.union1d(seen, tids)
    return pa.concat_tables(kept) if kept else SERIES.schema().empty_table()


def series_of(samples: pa.Table, series: pa.Table) -> pa.Table:
    """The series that the samples have, in order, each metric's sketch in its first row."""
    tids = pc.unique(samples.column("tid"))
    chosen = sorted_table(series.filter(pc.is_in(series.column("tid"), tids)), SERIES.sort_key)
    return chosen.append_column(SERIES_SKETCH.field(), series_sketches(chosen))


def count_series(tables: Iterable[pa.Table]) -> dict[str, float]:
    """How many series each metric has in all these series objects of tiers together, within about 2%.

    >>> count_series([])
    {}
    """
    unions: dict[str, hll_union] = {}
    for table in tables:
        found = table.select(["metric_name", SERIES_SKETCH.name]).filter(pc.field(SERIES_SKETCH.name).is_valid())
        for name, sketch in zip(*(column.to_pylist() for column in found.columns), strict=True):
            unions.setdefault(name, hll_union(LG_REGISTERS)).update(hll_sketch.deserialize(sketch))
    return {name: union.get_estimate() for name, union in unions.items()}
