"""Compiled loops over native histograms laid out as rows of one matrix: count, sum, zero count, then buckets."""

from __future__ import annotations

import numpy as np
from numba import njit

from lakerunner.query.promql.eval.kernels_fold import neumaier
from lakerunner.query.promql.eval.kernels_rate import is_start_reset

#: Columns of the matrix before the buckets.
COUNT, SUM, ZERO, BUCKETS = range(4)


@njit(cache=True, nogil=True, error_model="numpy")
def find_resets(rows, hints, ts, starts, counter, reset, overlap):  # type: ignore[no-untyped-def]
    """reset[i]: the counter began anew between rows i - 1 and i. The sum may fall without a reset."""
    for i in range(1, len(rows)):
        p = i - 1
        if not counter:
            continue
        if starts[i] != 0 and starts[i] < ts[p] and starts[i] != starts[p]:
            overlap[i] = True
        if is_start_reset(starts[p], ts[p], starts[i], ts[i]) or hints[i] == 1:
            reset[i] = True
        elif hints[i] != 2:
            for k in range(rows.shape[1]):
                if k != SUM and rows[i, k] < rows[p, k]:
                    reset[i] = True
                    break


@njit(cache=True, nogil=True, error_model="numpy")
def extrapolated_rows(  # type: ignore[no-untyped-def]
    rows, reset, begin, end, ts, starts, after, until, counter, per_second, range_s, out, ok
):
    """rate, increase and delta of one series of histograms, window by window."""
    width = rows.shape[1]
    for s in range(len(begin)):
        lo, hi = begin[s], end[s]
        if lo >= hi:
            continue
        first, last = lo, hi - 1
        known_start = counter and starts[first] != 0 and starts[first] > after[s] and starts[first] < ts[first]
        if first == last and not known_start:
            continue
        for k in range(width):
            out[s, k] = 0.0
        if last > first:
            # What came before a reset right at the beginning does not count at all.
            bare = reset[first + 1]
            for k in range(width):
                out[s, k] = rows[last, k] if bare else rows[last, k] - rows[first, k]
            for j in range(first + 2, hi):
                if reset[j]:
                    for k in range(width):
                        out[s, k] += rows[j - 1, k]
        to_start = (ts[first] - after[s]) / 1000
        to_end = (until[s] - ts[last]) / 1000
        sampled = (ts[last] - ts[first]) / 1000
        between = sampled / (last - first) if last > first else 0.0
        threshold = between * 1.1
        if known_start:
            to_start = 0.0
            sampled = (ts[last] - starts[first]) / 1000
            for k in range(width):
                out[s, k] += rows[first, k]
        else:
            if to_start >= threshold:
                to_start = between / 2
            if counter and out[s, COUNT] > 0 and rows[first, COUNT] >= 0:
                to_zero = sampled * (rows[first, COUNT] / out[s, COUNT])
                if to_zero < to_start:
                    to_start = to_zero
        if to_end >= threshold:
            to_end = between / 2
        factor = 1.0
        if sampled != 0:
            factor = (sampled + to_start + to_end) / sampled
        if per_second:
            factor /= range_s
        for k in range(width):
            out[s, k] *= factor
        ok[s] = True


@njit(cache=True, nogil=True, error_model="numpy")
def column_sums(rows, total, error):  # type: ignore[no-untyped-def]
    """The compensated sum of every column, in the order of the rows."""
    for k in range(rows.shape[1]):
        total[k], error[k] = rows[0, k], 0.0
        for i in range(1, rows.shape[0]):
            total[k], error[k] = neumaier(rows[i, k], total[k], error[k])


def sums(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    total, error = np.empty(rows.shape[1]), np.empty(rows.shape[1])
    column_sums(rows, total, error)
    return total, error
