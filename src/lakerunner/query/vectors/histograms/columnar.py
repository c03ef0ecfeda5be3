"""Rates and sums of native histograms as columns: at once where layouts agree; the rest is left to be done singly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lakerunner.query.series.arrays import allocated
from lakerunner.query.series.block import Bools
from lakerunner.query.series.histograms.column import HistogramColumn, taken
from lakerunner.query.series.histograms.grid import HistogramGrid
from lakerunner.query.series.histograms.histogram import Floats, Ints
from lakerunner.query.vectors.histograms import kernels as kernels

if TYPE_CHECKING:
    from lakerunner.query.vectors.ranges import RangeVector

Made = tuple[Floats, Ints, Ints, Ints, Ints, Floats, Ints, Ints, Floats]


def _column(source: HistogramColumn, made: Made) -> HistogramColumn:
    """What a kernel made of the histograms of a column."""
    head, hint, like, pos_offsets, pos_index, pos_count, neg_offsets, neg_index, neg_count = made
    bounds_offsets, bounds = taken(source.bounds_offsets, source.bounds, like)
    return HistogramColumn(
        row=np.arange(len(like), dtype=np.int64),
        schema=source.schema[like],
        hint=hint.astype(np.int8, copy=False),
        count=head[:, kernels.COUNT],
        sum=head[:, kernels.SUM],
        zero_threshold=source.zero_threshold[like],
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
    #: Series that need care: mixed layouts, or kinds that ask for a warning.
    careful: Bools
    #: In how many windows of every series a start timestamp overlaps with the sample before.
    overlapping: Ints


def rates(vector: RangeVector, function: str, begin: Ints, end: Ints, careful: Bools) -> Rates:
    """rate, increase or delta of the series that are not marked already."""
    points, hists = vector.samples.hist_points, vector.samples.hists
    row = np.full(begin.shape, -1, dtype=np.int64)
    overlapping = np.zeros(len(careful), dtype=np.int64)
    # About as many as the samples have, for every cell.
    size = int((begin.size / max(1, len(hists.column)) + 0.5) * len(hists.column.pos_index))
    made = kernels.rates(
        hists.column.arrays(), hists.rows, points.offsets, points.ts, points.starts, begin, end,
        vector.after, vector.until, function != "delta", function == "rate", vector.range_ms / 1000,
        careful, overlapping, row, allocated(size, np.int64), allocated(size, np.float64),
    )  # fmt: skip
    return Rates(HistogramGrid(_column(hists.column, made), row), careful, overlapping)


@dataclass(slots=True)
class Sums:
    column: HistogramColumn
    #: The histogram of every list, or -1.
    row: Ints
    #: Lists that need care: mixed layouts, or an overflow on the way.
    careful: Bools
    #: Lists in which hints contradict each other.
    collision: Bools


def sums(column: HistogramColumn, rows: Ints, begin: Ints, end: Ints, mean: bool, skipped: Bools) -> Sums:
    """Sums or means of lists of histograms, those to be skipped aside. List i is `rows[begin[i]:end[i]]`."""
    row = np.full(len(skipped), -1, dtype=np.int64)
    careful, collision = skipped.copy(), np.zeros(len(skipped), dtype=bool)
    made = kernels.sums(column.arrays(), rows, begin, end, mean, careful, collision, row)
    return Sums(_column(column, made), row, careful & ~skipped, collision)
