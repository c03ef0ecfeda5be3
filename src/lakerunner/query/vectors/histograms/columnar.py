"""Rates and sums of native histograms as columns, where layouts agree. Callers do the others one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lakerunner.query.series.arrays import allocated
from lakerunner.query.series.block import Bools
from lakerunner.query.series.histograms.column import HistogramColumn, gather_lists
from lakerunner.query.series.histograms.grid import HistogramGrid
from lakerunner.query.series.histograms.histogram import Floats, Ints
from lakerunner.query.vectors.histograms import kernels as kernels

if TYPE_CHECKING:
    from lakerunner.query.vectors.ranges import RangeVector

KernelArrays = tuple[Floats, Ints, Ints, Ints, Ints, Floats, Ints, Ints, Floats]


def _column(source: HistogramColumn, arrays: KernelArrays) -> HistogramColumn:
    """The column of a kernel's results. `layout_row` names the source histogram whose layout each result has."""
    head, hint, layout_row, pos_offsets, pos_index, pos_count, neg_offsets, neg_index, neg_count = arrays
    bounds_offsets, bounds = gather_lists(source.bounds_offsets, source.bounds, layout_row)
    return HistogramColumn(
        row=np.arange(len(layout_row), dtype=np.int64),
        schema=source.schema[layout_row],
        hint=hint.astype(np.int8, copy=False),
        count=head[:, kernels.COUNT],
        sum=head[:, kernels.SUM],
        zero_threshold=source.zero_threshold[layout_row],
        zero_count=head[:, kernels.ZERO],
        pos_offsets=pos_offsets,
        pos_index=pos_index,
        pos_count=pos_count,
        neg_offsets=neg_offsets,
        neg_index=neg_index,
        neg_count=neg_count,
        bounds_offsets=bounds_offsets,
        bounds=bounds,
    )


@dataclass(slots=True)
class Rates:
    grid: HistogramGrid
    #: Series that were left out: their layouts differ, or they call for a warning.
    skipped: Bools
    #: Per series: the number of windows in which a start timestamp overlaps with the sample before.
    overlapping: Ints


def rates(vector: RangeVector, function: str, begin: Ints, end: Ints, skipped: Bools) -> Rates:
    """rate, increase or delta of the series that are not in `skipped`."""
    points, hists = vector.samples.hist_points, vector.samples.hists
    row = np.full(begin.shape, -1, dtype=np.int64)
    overlapping = np.zeros(len(skipped), dtype=np.int64)
    # An estimate: as many buckets per cell as the samples have on average.
    size = int((begin.size / max(1, len(hists.column)) + 0.5) * len(hists.column.pos_index))
    rollup = vector.samples.hist_rollup
    # The number of samples up to each row.
    counted = np.zeros(0, np.int64) if rollup is None else np.cumsum(rollup.count)
    arrays = kernels.rates(
        hists.column.arrays(), hists.rows, points.offsets, points.ts, points.starts, counted, begin, end,
        vector.after, vector.until, function != "delta", function == "rate", vector.range_ms / 1000,
        skipped, overlapping, row, allocated(size, np.int64), allocated(size, np.float64),
    )  # fmt: skip
    return Rates(HistogramGrid(_column(hists.column, arrays), row), skipped, overlapping)


@dataclass(slots=True)
class Sums:
    column: HistogramColumn
    #: The row of every list's result, or -1.
    row: Ints
    #: Lists that were left out: their layouts differ, or the sum overflowed.
    skipped: Bools
    #: Lists with contradicting hints.
    collision: Bools


def sums(column: HistogramColumn, rows: Ints, begin: Ints, end: Ints, mean: bool, excluded: Bools) -> Sums:
    """Sums or means of the lists of histograms that are not excluded. List i is `rows[begin[i]:end[i]]`."""
    row = np.full(len(excluded), -1, dtype=np.int64)
    skipped, collision = excluded.copy(), np.zeros(len(excluded), dtype=bool)
    arrays = kernels.sums(column.arrays(), rows, begin, end, mean, skipped, collision, row)
    return Sums(_column(column, arrays), row, skipped & ~excluded, collision)
