"""Aggregates of buckets, from the columns of a tier's segment to the arrays of the evaluator."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakerunner.model.signals.tiers import COUNT, MAX, MIN, RESETS, SKETCH, SUM, SUM_LOW
from lakerunner.query.series.histograms.histogram import Floats
from lakerunner.query.series.reading import Need
from lakerunner.query.series.rollup import Rollup

_COLUMNS = {
    Need.COUNT: (),
    Need.RATE: (RESETS,),
    Need.SUM: (SUM, SUM_LOW),
    Need.MIN: (MIN,),
    Need.MAX: (MAX,),
    Need.SKETCH: (
        MIN,
        *(
            f"{SKETCH}{name}"
            for name in ("zero_count", "positive_spans", "positive_buckets", "negative_spans", "negative_buckets")
        ),
    ),
}


#: Needs that aggregates alone answer: rows that have none, and starts of samples, are not read.
AGGREGATED = (Need.COUNT, Need.SUM, Need.MIN, Need.MAX)


def columns_of(need: Need) -> list[str]:
    """The columns of a tier that the need asks for, besides those of samples."""
    return [COUNT, *_COLUMNS[need]]


def needed(need: Need, tier_s: int) -> Need | None:
    """What a read must have of a segment besides samples; None if samples are enough."""
    return need if tier_s and need in _COLUMNS else None


def with_aggregates(table: pa.Table, need: Need) -> pa.Table:
    """The rows that the need asks for. The first sample of a bucket has no aggregates of its own."""
    if need not in AGGREGATED or not table.column(COUNT).null_count:
        return table
    return table.filter(table.column(COUNT).is_valid())


def rollup_of(table: pa.Table, need: Need) -> Rollup:
    """The weights and aggregates of rows of a tier."""
    count = table.column(COUNT).fill_null(0).combine_chunks().to_numpy(zero_copy_only=False)
    aggregates = [_filled(table, name) for name in _COLUMNS[need]]
    if need is Need.RATE:
        known = table.column(RESETS).is_valid().combine_chunks().to_numpy(zero_copy_only=False)
        aggregates.append(known.astype(np.float64))
    return Rollup(need, count.astype(np.int64, copy=False), tuple(aggregates))


def _filled(table: pa.Table, name: str) -> Floats:
    values: Floats = table.column(name).fill_null(0.0).combine_chunks().to_numpy(zero_copy_only=False)
    return values
