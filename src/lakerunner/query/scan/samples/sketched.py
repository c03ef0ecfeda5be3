"""The sketches of a tier as samples with weights: one per bucket of the sketch, with a value of its middle.

A bucket of time has at least as many milliseconds up to its last sample as it has distinct values. So its samples get
the milliseconds before the last one, ascending by value: they stay in their bucket of time, and none shares a time.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from lakerunner.model.signals.tiers import COUNT, MIN, SKETCH, SKETCH_SCHEMA
from lakerunner.query.scan.samples.histograms import bucket_arrays
from lakerunner.query.scan.samples.runs import Samples
from lakerunner.query.series.arrays import offsets_of
from lakerunner.query.series.histograms.histogram import Floats, Ints
from lakerunner.query.series.reading import Need
from lakerunner.query.series.rollup import Rollup

_PER_DOUBLING = 1 << SKETCH_SCHEMA
#: The index of infinity follows that of the largest double.
_INFINITE = 1_024 * _PER_DOUBLING + 1


def sketched(table: pa.Table) -> Samples:
    """The weighted samples of rows of a tier. Rows that stand for no number are left out."""
    is_number = pc.and_(table.column(COUNT).is_valid(), table.column(MIN).is_valid())
    table = table.filter(is_number).combine_chunks()
    if not table.num_rows:
        return Samples.none()
    tids = table.column("tid").to_numpy()
    times = table.column("timestamp").cast(pa.int64()).to_numpy()
    zeros = table.column(f"{SKETCH}zero_count").fill_null(0.0).to_numpy()
    neg_offsets, neg_index, neg_count = bucket_arrays(table, f"{SKETCH}negative_spans", f"{SKETCH}negative_buckets")
    pos_offsets, pos_index, pos_count = bucket_arrays(table, f"{SKETCH}positive_spans", f"{SKETCH}positive_buckets")
    # A sketch has no NaN: what it does not count is NaN.
    nans = table.column(COUNT).to_numpy() - (zeros + _sums(neg_offsets, neg_count) + _sums(pos_offsets, pos_count))
    lengths = np.diff(neg_offsets) + np.diff(pos_offsets) + (zeros > 0) + (nans > 0)
    offsets = offsets_of(lengths)
    total = int(offsets[-1])
    at, values, weights = np.empty(total, np.int64), np.empty(total), np.empty(total, np.int64)
    _expand(
        offsets, times, nans, zeros, neg_offsets, neg_index, neg_count, pos_offsets, pos_index, pos_count, at, values,
        weights,
    )  # fmt: skip
    of_row = np.repeat(tids, lengths)
    begins = np.append(0, np.flatnonzero(of_row[1:] != of_row[:-1]) + 1) if total else np.zeros(0, np.int64)
    return Samples(
        of_row[begins],
        [],
        np.append(begins, total),
        at,
        values,
        may_be_stale=False,
        rollup=Rollup(Need.SKETCH, weights, ()),
    )


def _sums(offsets: Ints, counts: Floats) -> Floats:
    """The sum of each row's counts."""
    reached: Floats = np.concatenate([np.zeros(1), np.cumsum(counts)])
    return reached[offsets[1:]] - reached[offsets[:-1]]


@njit(cache=True, nogil=True, error_model="numpy")
def middle_of(index):  # type: ignore[no-untyped-def]
    """The middle of a bucket of the sketch, which is within 0.55% of every value in it."""
    if index >= _INFINITE:
        return math.inf
    low = 2.0 ** ((index - 1) / _PER_DOUBLING)
    high = 2.0 ** (index / _PER_DOUBLING)
    return low if math.isinf(high) else low + (high - low) / 2


@njit(cache=True, nogil=True, error_model="numpy")
def _expand(  # type: ignore[no-untyped-def]
    offsets, times, nans, zeros, neg_offsets, neg_index, neg_count, pos_offsets, pos_index, pos_count, at, values,
    weights,
):  # fmt: skip
    for row in range(len(offsets) - 1):
        place, last = offsets[row], offsets[row + 1] - 1
        if nans[row] > 0:
            values[place], weights[place] = math.nan, int(nans[row])
            place += 1
        for i in range(neg_offsets[row + 1] - 1, neg_offsets[row] - 1, -1):
            values[place], weights[place] = -middle_of(neg_index[i]), int(neg_count[i])
            place += 1
        if zeros[row] > 0:
            values[place], weights[place] = 0.0, int(zeros[row])
            place += 1
        for i in range(pos_offsets[row], pos_offsets[row + 1]):
            values[place], weights[place] = middle_of(pos_index[i]), int(pos_count[i])
            place += 1
        for place in range(offsets[row], last + 1):
            at[place] = times[row] - (last - place)
