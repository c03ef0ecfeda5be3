"""Compiled loops over native histograms laid out as rows of one matrix: count, sum, zero count, then buckets."""

from __future__ import annotations

import numpy as np
from numba import njit

from lakerunner.query.promql.eval.kernels_fold import neumaier
from lakerunner.query.promql.eval.kernels_rate import is_start_reset, window_factor

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
        start = starts[first] if known_start else 0
        if known_start:
            for k in range(width):
                out[s, k] += rows[first, k]
        factor = window_factor(
            ts[first], ts[last], last - first, start, after[s], until[s], counter, out[s, COUNT], rows[first, COUNT]
        )
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
