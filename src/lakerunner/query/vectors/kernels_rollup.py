"""Compiled loops over rows of tiers, alone or mixed with raw samples: what the loops over raw samples would give.

`count[j]` is the number of samples that row j stands for: 1 for a raw sample; for a row of a tier, the samples of its
bucket if it is the bucket's last one, else 0. Windows consist of whole buckets.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from lakerunner.model.samples import is_start_reset, neumaier
from lakerunner.query.vectors.kernels_rate import window_factor

COUNT, SUM, AVG, MIN, MAX = range(5)
#: Functions that need the aggregates of buckets.
FOLDS = {
    "count_over_time": COUNT,
    "sum_over_time": SUM,
    "avg_over_time": AVG,
    "min_over_time": MIN,
    "max_over_time": MAX,
}


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _is_inside(count, known, p, j):  # type: ignore[no-untyped-def]
    """Whether rows p and j are of one bucket, and the bucket's own correction covers what happened between them."""
    return count[p] == 0 and known[j] != 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def _corrections(begin, stop, ts, values, starts, count, resets, known):  # type: ignore[no-untyped-def]
    """What each row adds to the increase since the row before it, because the counter was reset in between."""
    out = np.zeros(stop - begin)
    for j in range(begin + 1, stop):
        p = j - 1
        if _is_inside(count, known, p, j):
            out[j - begin] = resets[j]
        elif values[j] < values[p] or is_start_reset(starts[p], ts[p], starts[j], ts[j]):
            out[j - begin] = values[p]
    return out


@njit(cache=True, nogil=True, error_model="numpy")
def extrapolated(  # type: ignore[no-untyped-def]
    offsets, ts, values, starts, count, resets, known, after, until, counter, per_second, range_s, out, ok, overlap
):
    """rate (counter, per_second), increase (counter) and delta over the windows (after[s], until[s]], which ascend.

    `resets[j]` are the corrections for resets inside row j's bucket, where `known[j]` is not 0.
    """
    for i in range(len(offsets) - 1):
        begin, stop = offsets[i], offsets[i + 1]
        added = _corrections(begin, stop, ts, values, starts, count, resets, known)
        lo, hi = begin, begin
        number = 0
        latest_reset, latest_overlap = -1, -1
        for s in range(len(after)):
            while hi < stop and ts[hi] <= until[s]:
                number += count[hi]
                if counter and hi > begin:
                    p = hi - 1
                    if added[hi - begin] != 0.0:
                        latest_reset = hi
                    overlaps = starts[hi] != 0 and starts[hi] < ts[p] and starts[hi] != starts[p]
                    if overlaps and not _is_inside(count, known, p, hi):
                        latest_overlap = hi
                hi += 1
            while lo < hi and ts[lo] <= after[s]:
                number -= count[lo]
                lo += 1
            if lo >= hi:
                continue
            first, last = lo, hi - 1
            result = values[last] - values[first]
            if latest_overlap > first:
                overlap[i] += 1
            if latest_reset > first:
                for j in range(first + 1, hi):
                    if added[j - begin] != 0.0:
                        result += added[j - begin]
            known_start = counter and starts[first] != 0 and starts[first] > after[s] and starts[first] < ts[first]
            if last == first and not known_start:
                continue
            start = starts[first] if known_start else 0
            if known_start:
                result += values[first]
            factor = window_factor(
                ts[first], ts[last], number - 1, start, after[s], until[s], counter, result, values[first]
            )
            if per_second:
                factor /= range_s
            out[i, s] = result * factor
            ok[i, s] = True


@njit(cache=True, nogil=True, error_model="numpy")
def fold(mode, begin, end, count, first, second, out, ok):  # type: ignore[no-untyped-def]
    """Fold the aggregates of the rows of every window. For sums, `second` is what rounding `first` lost."""
    for i in range(begin.shape[0]):
        for s in range(begin.shape[1]):
            number = 0
            total, error = 0.0, 0.0
            for j in range(begin[i, s], end[i, s]):
                if count[j] == 0:
                    continue
                if mode in (SUM, AVG):
                    total, error = neumaier(first[j], total, error)
                    error += second[j]
                elif mode != COUNT:
                    better = first[j] > total if mode == MAX else first[j] < total
                    if number == 0 or better or math.isnan(total):
                        total = first[j]
                number += count[j]
            ok[i, s] = number > 0
            if number == 0:
                continue
            if mode == COUNT:
                out[i, s] = number
            elif mode == SUM:
                out[i, s] = total if math.isinf(total) else total + error
            elif mode == AVG:
                out[i, s] = total / number + error / number
            else:
                out[i, s] = total


@njit(cache=True, nogil=True, error_model="numpy")
def weighted_quantile(begin, end, values, count, q, out, ok):  # type: ignore[no-untyped-def]
    """quantile_over_time over values that each stand for `count` samples. Ranks are interpolated as over samples."""
    for i in range(begin.shape[0]):
        for s in range(begin.shape[1]):
            lo, hi = begin[i, s], end[i, s]
            total = 0
            for j in range(lo, hi):
                total += count[j]
            ok[i, s] = total > 0
            if total == 0:
                continue
            if math.isnan(q[s]):
                out[i, s] = math.nan
            elif q[s] < 0:
                out[i, s] = -math.inf
            elif q[s] > 1:
                out[i, s] = math.inf
            else:
                # NaN sorts before everything else, as in Prometheus.
                order = np.argsort(np.where(np.isnan(values[lo:hi]), -np.inf, values[lo:hi]), kind="mergesort")
                rank = q[s] * (total - 1)
                lower = math.floor(rank)
                upper = min(lower + 1, total - 1)
                weight = rank - lower
                reached = 0
                first, second = math.nan, math.nan
                for place in order:
                    before = reached
                    reached += count[lo + place]
                    if before <= lower < reached:
                        first = values[lo + place]
                    if before <= upper < reached:
                        second = values[lo + place]
                        break
                # As in Prometheus, NaN if an infinite value has a weight of zero.
                out[i, s] = first * (1 - weight) + second * weight
