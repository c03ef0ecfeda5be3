"""Compiled loops over groups of series: aggregations, and quantiles of classic histograms."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from lakerunner.model.samples import neumaier
from lakerunner.query.vectors.kernels_fold import nan_first, sorted_quantile

SUM, AVG, MIN, MAX, COUNT, GROUP, STDVAR, STDDEV = range(8)

#: Smaller relative differences between neighbouring buckets are rounding errors, not observations.
SMALL_DELTA = 1e-12
_SMALLEST_NORMAL = 2.2250738585072014e-308


@njit(cache=True, nogil=True, error_model="numpy")
def _finish_groups(mode, out, number, error, mean, incremental):  # type: ignore[no-untyped-def]
    """Turn the running sums into results."""
    for g in range(out.shape[0]):
        for s in range(out.shape[1]):
            n = number[g, s]
            if n == 0:
                continue
            if mode == SUM:
                out[g, s] += error[g, s]
            elif mode == AVG:
                out[g, s] = mean[g, s] + error[g, s] if incremental[g, s] else out[g, s] / n + error[g, s] / n
            elif mode == COUNT:
                out[g, s] = n
            elif mode == GROUP:
                out[g, s] = 1.0
            elif mode == STDVAR:
                out[g, s] /= n
            elif mode == STDDEV:
                out[g, s] = math.sqrt(out[g, s] / n)


@njit(cache=True, nogil=True, error_model="numpy")
def fold_groups(mode, values, valid, group, out, number):  # type: ignore[no-untyped-def]
    """Fold the series of each group, step by step. `number` counts the samples of each result; 0: no result."""
    groups, steps = out.shape
    error = np.zeros((groups, steps))
    mean = np.zeros((groups, steps))
    incremental = np.zeros((groups, steps), dtype=np.bool_)
    for i in range(values.shape[0]):
        g = group[i]
        for s in range(steps):
            if not valid[i, s]:
                continue
            f = values[i, s]
            n = number[g, s]
            number[g, s] = n + 1
            if n == 0:
                out[g, s] = f
                if mode in (STDVAR, STDDEV):
                    mean[g, s] = f
                    out[g, s] = 0.0 if math.isfinite(f) else math.nan
                continue
            if mode == SUM:
                out[g, s], error[g, s] = neumaier(f, out[g, s], error[g, s])
            elif mode == AVG:
                count = float(n + 1)
                if not incremental[g, s]:
                    new, new_error = neumaier(f, out[g, s], error[g, s])
                    if not math.isinf(new):
                        out[g, s], error[g, s] = new, new_error
                        continue
                    incremental[g, s] = True
                    mean[g, s] = out[g, s] / (count - 1)
                    error[g, s] /= count - 1
                q = (count - 1) / count
                mean[g, s], error[g, s] = neumaier(f / count, q * mean[g, s], q * error[g, s])
            elif mode == MIN:
                if f < out[g, s] or math.isnan(out[g, s]):
                    out[g, s] = f
            elif mode == MAX:
                if f > out[g, s] or math.isnan(out[g, s]):
                    out[g, s] = f
            elif mode in (STDVAR, STDDEV):
                delta = f - mean[g, s]
                mean[g, s] += delta / (n + 1)
                out[g, s] += delta * (f - mean[g, s])
    _finish_groups(mode, out, number, error, mean, incremental)


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _is_ahead(one, other, largest):  # type: ignore[no-untyped-def]
    """Whether one value ranks before another. NaN comes after all numbers."""
    if math.isnan(one):
        return False
    return math.isnan(other) or (one > other if largest else one < other)


@njit(cache=True, nogil=True, error_model="numpy")
def choose_groups(offsets, rows, values, present, limit, largest, keep, order):  # type: ignore[no-untyped-def]
    """Mark the `limit[s]` largest or smallest values of each group at every step; of equal ones, the first rows.

    Group g has the rows `rows[offsets[g]:offsets[g + 1]]`. `order` is where a row stands at the first step.
    """
    steps = values.shape[1]
    most = limit.max()
    best = np.empty((steps, most), np.int64)
    found = np.empty(steps, np.int64)
    for g in range(len(offsets) - 1):
        found[:] = 0
        for at in range(offsets[g], offsets[g + 1]):
            row = rows[at]
            order[row] = offsets[g + 1]
            for s in range(steps):
                if not present[row, s] or limit[s] == 0:
                    continue
                value = values[row, s]
                n = found[s]
                if n == limit[s]:
                    if not _is_ahead(value, values[best[s, n - 1], s], largest):
                        continue
                    n -= 1
                while n > 0 and _is_ahead(value, values[best[s, n - 1], s], largest):
                    best[s, n] = best[s, n - 1]
                    n -= 1
                best[s, n] = row
                found[s] = min(found[s] + 1, limit[s])
        for s in range(steps):
            for n in range(found[s]):
                keep[best[s, n], s] = True
        for n in range(found[0]):
            order[best[0, n]] = offsets[g] + n


@njit(cache=True, nogil=True, error_model="numpy")
def quantile_groups(offsets, rows, values, valid, q, out, ok):  # type: ignore[no-untyped-def]
    """The quantile over the series of each group. Group g has the rows `rows[offsets[g]:offsets[g + 1]]`."""
    for g in range(len(offsets) - 1):
        buffer = np.empty(offsets[g + 1] - offsets[g])
        for s in range(values.shape[1]):
            n = 0
            for k in range(offsets[g], offsets[g + 1]):
                if valid[rows[k], s]:
                    buffer[n] = values[rows[k], s]
                    n += 1
            ok[g, s] = n > 0
            if n:
                out[g, s] = sorted_quantile(q[s], nan_first(buffer[:n]))


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _almost_equal(a, b, tolerance):  # type: ignore[no-untyped-def]
    if a == b:
        return True
    total = abs(a) + abs(b)
    difference = abs(a - b)
    if a == 0 or b == 0 or total < _SMALLEST_NORMAL:
        return difference < tolerance * _SMALLEST_NORMAL
    return difference / total < tolerance


@njit(cache=True, nogil=True, error_model="numpy")
def _gather(offsets, rows, bound, values, valid, g, s, upper, count):  # type: ignore[no-untyped-def]
    """Collect the buckets of group g at step s, adding up equal bounds. Rows are sorted by bound."""
    n = 0
    for k in range(offsets[g], offsets[g + 1]):
        row = rows[k]
        if not valid[row, s]:
            continue
        if n and upper[n - 1] == bound[row]:
            count[n - 1] += values[row, s]
        else:
            upper[n] = bound[row]
            count[n] = values[row, s]
            n += 1
    return n


@njit(cache=True, nogil=True, error_model="numpy")
def _make_monotonic(upper, count, n):  # type: ignore[no-untyped-def]
    """Raise counts that fall below the one before. Tiny differences are levelled without being reported.

    Returns the first and the last bound that was raised, and the largest difference.
    """
    first, last, worst = 0.0, 0.0, 0.0
    previous = count[0]
    for k in range(1, n):
        current = count[k]
        if current == previous:
            continue
        if _almost_equal(previous, current, SMALL_DELTA):
            count[k] = previous
        elif current < previous:
            first = first if worst > 0 else upper[k]
            last = upper[k]
            worst = max(worst, previous - current)
            count[k] = previous
        else:
            previous = current
    return first, last, worst


@njit(cache=True, nogil=True, error_model="numpy")
def _quantile_of(q, upper, count, n):  # type: ignore[no-untyped-def]
    """Interpolate linearly within the bucket. The last bucket is infinite: its lower bound is the result."""
    rank = q * count[n - 1]
    # Binary search, as in Prometheus: NaN counts have no order, so that the result depends on the search.
    b, end = 0, n - 1
    while b < end:
        middle = (b + end) // 2
        if count[middle] >= rank:
            end = middle
        else:
            b = middle + 1
    if b == n - 1:
        return upper[n - 2]
    if b == 0 and upper[0] <= 0:
        return upper[0]
    start = upper[b - 1] if b else 0.0
    below = count[b - 1] if b else 0.0
    return start + (upper[b] - start) * ((rank - below) / (count[b] - below))


@njit(cache=True, nogil=True, error_model="numpy")
def bucket_quantiles(  # type: ignore[no-untyped-def]
    offsets, rows, bound, values, valid, q, out, ok, forced, lowest, highest, difference
):
    """Quantiles of classic histograms. `forced` marks where counts had to be made monotonic."""
    for g in range(len(offsets) - 1):
        size = offsets[g + 1] - offsets[g]
        upper, count = np.empty(size), np.empty(size)
        for s in range(values.shape[1]):
            n = _gather(offsets, rows, bound, values, valid, g, s, upper, count)
            ok[g, s] = n > 0
            if n == 0:
                continue
            out[g, s] = math.nan
            if math.isnan(q[s]):
                continue
            if q[s] < 0 or q[s] > 1:
                out[g, s] = -math.inf if q[s] < 0 else math.inf
                continue
            if upper[n - 1] != math.inf:
                continue
            first, last, worst = _make_monotonic(upper, count, n)
            if worst > 0:
                forced[g, s] = True
                lowest[g, s], highest[g, s], difference[g, s] = first, last, worst
            if n >= 2 and count[n - 1] != 0:
                out[g, s] = _quantile_of(q[s], upper, count, n)


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _rank_of(value, upper, count, n):  # type: ignore[no-untyped-def]
    """The number of observations of a classic histogram below a value."""
    below = 0.0
    for k in range(n):
        low = upper[k - 1] if k else (0.0 if upper[0] > 0 else -math.inf)
        if low >= value:
            return below
        if upper[k] > value:
            # Observations in an infinite bucket have no known position: none of them lies between two values.
            if math.isinf(low):
                return count[k]
            if math.isinf(upper[k]):
                return below
            return below + (count[k] - below) * (value - low) / (upper[k] - low)
        below = count[k]
    return count[n - 1]


@njit(cache=True, nogil=True, error_model="numpy")
def bucket_fractions(offsets, rows, bound, values, valid, lower, upper_limit, out, ok):  # type: ignore[no-untyped-def]
    """The fraction of the observations of classic histograms between two values."""
    for g in range(len(offsets) - 1):
        size = offsets[g + 1] - offsets[g]
        upper, count = np.empty(size), np.empty(size)
        for s in range(values.shape[1]):
            n = _gather(offsets, rows, bound, values, valid, g, s, upper, count)
            ok[g, s] = n > 0
            if n == 0:
                continue
            out[g, s] = math.nan
            total = count[n - 1]
            if upper[n - 1] != math.inf or total == 0 or math.isnan(lower[s]) or math.isnan(upper_limit[s]):
                continue
            if lower[s] >= upper_limit[s]:
                out[g, s] = 0.0
                continue
            first = min(_rank_of(lower[s], upper, count, n), total)
            last = min(_rank_of(upper_limit[s], upper, count, n), total)
            out[g, s] = (last - first) / total
