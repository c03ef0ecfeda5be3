"""Compiled loops for quantiles and fractions of native histograms. `c` is always a column's `Arrays`.

Results equal those of `series.histograms.quantile`, which takes one histogram, to the last bit.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from lakerunner.query.series.histograms.histogram import CUSTOM_SCHEMA, MAX_SCHEMA, fractions

_LARGEST = float(np.finfo(np.float64).max)
#: The bucket bounds between 0.5 and 1, by schema.
FRACTIONS = np.zeros((MAX_SCHEMA + 1, 1 << MAX_SCHEMA))
for _schema in range(MAX_SCHEMA + 1):
    FRACTIONS[_schema, : 1 << _schema] = fractions(_schema)


@njit(cache=True, nogil=True, error_model="numpy")
def _bound(index, schema, fractions):  # type: ignore[no-untyped-def]
    """The upper bound of an exponential bucket."""
    if schema < 0:
        exponent = index << -schema
        return _LARGEST if exponent == 1024 else math.ldexp(1.0, min(max(exponent, -1100), 1100))
    place = index & ((1 << schema) - 1)
    fraction = fractions[schema, place] if schema <= MAX_SCHEMA else 2.0 ** (place / (1 << schema)) / 2
    exponent = (index >> schema) + 1
    if fraction == 0.5 and exponent == 1025:
        return _LARGEST
    return math.ldexp(fraction, min(max(exponent, -1100), 1100))


@njit(cache=True, nogil=True, error_model="numpy")
def _number(c, row):  # type: ignore[no-untyped-def]
    """The number of buckets: negative ones, the zero bucket, positive ones."""
    return c.neg_offsets[row + 1] - c.neg_offsets[row] + 1 + c.pos_offsets[row + 1] - c.pos_offsets[row]


@njit(cache=True, nogil=True, error_model="numpy")
def _count(c, row, at):  # type: ignore[no-untyped-def]
    """The count of bucket `at`, numbered from the lowest upwards. The zero bucket always has a number."""
    negative = c.neg_offsets[row + 1] - c.neg_offsets[row]
    if at < negative:
        return c.neg_count[c.neg_offsets[row + 1] - 1 - at]
    if at == negative:
        return c.zero_count[row] if c.zero_count[row] > 0 and c.schema[row] != CUSTOM_SCHEMA else 0.0
    return c.pos_count[c.pos_offsets[row] + at - negative - 1]


@njit(cache=True, nogil=True, error_model="numpy")
def _last(c, row):  # type: ignore[no-untyped-def]
    """The highest bucket. An empty zero bucket does not count as one."""
    last = _number(c, row) - 1
    zero_at = c.neg_offsets[row + 1] - c.neg_offsets[row]
    return last - 1 if last == zero_at and _count(c, row, last) == 0 else last


@njit(cache=True, nogil=True, error_model="numpy")
def _bounds(c, row, at, fractions):  # type: ignore[no-untyped-def]
    """The bounds of bucket `at`, numbered as for `_count` and clipped at the zero bucket."""
    negative = c.neg_offsets[row + 1] - c.neg_offsets[row]
    schema, width = c.schema[row], c.zero_threshold[row]
    if at < negative:
        index = c.neg_index[c.neg_offsets[row + 1] - 1 - at]
        upper = -_bound(index - 1, schema, fractions)
        return -_bound(index, schema, fractions), -width if -width < upper < 0 else upper
    if at == negative:
        return -width, width
    index = c.pos_index[c.pos_offsets[row] + at - negative - 1]
    if schema == CUSTOM_SCHEMA:
        first, last = c.bounds_offsets[row], c.bounds_offsets[row + 1]
        lower = -math.inf if index == 0 else c.bounds[first + index - 1]
        return lower, math.inf if first + index >= last else c.bounds[first + index]
    lower = _bound(index - 1, schema, fractions)
    return width if 0 < lower < width else lower, _bound(index, schema, fractions)


@njit(cache=True, nogil=True, error_model="numpy")
def _total(c, row):  # type: ignore[no-untyped-def]
    total = 0.0
    for at in range(_number(c, row)):
        total += _count(c, row, at)
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _reached(c, row, rank, forward):  # type: ignore[no-untyped-def]
    """The bucket that reaches the rank, or else the last populated one; and the sum of the counts up to it."""
    found, running = -1, 0.0
    number = _number(c, row)
    for k in range(number):
        at = k if forward else number - 1 - k
        count = _count(c, row, at)
        if count != 0:
            found = at
            running += count
            if running >= rank:
                break
    return found, running


@njit(cache=True, nogil=True, error_model="numpy")
def _quantile(q, c, row, fractions):  # type: ignore[no-untyped-def]
    """A value v and a mode: the quantile is v (mode 0), 2 ** v (mode 1) or -(2 ** v) (mode -1)."""
    count, unknown = c.observations[row], math.isnan(c.sum[row])
    if q < 0 or q > 1:
        return (-math.inf if q < 0 else math.inf), 0
    if count == 0 or math.isnan(q):
        return math.nan, 0
    # NaN observations are counted but are in no bucket: ranks are right only from the lowest bucket upwards.
    forward = unknown or q < 0.5
    rank = (q if forward else 1 - q) * count
    at, running = _reached(c, row, rank, forward)
    if at < 0:
        # Observations in no bucket count as zero, unless they are known to be NaN.
        return (0.0 if (count if count < 0 else 0.0) < rank and not unknown else math.nan), 0
    custom = c.schema[row] == CUSTOM_SCHEMA
    low, high = _bounds(c, row, at, fractions)
    negative, positive = c.neg_offsets[row + 1] > c.neg_offsets[row], c.pos_offsets[row + 1] > c.pos_offsets[row]
    if custom and low == -math.inf:
        if high <= 0:
            return high, 0
        low = 0.0
    elif custom and high == math.inf:
        return low, 0
    elif not custom and low < 0 < high and negative != positive:
        # Clip the zero bucket at zero if the histogram has buckets on one side only.
        low, high = (0.0, high) if positive else (low, 0.0)
    total = count if count < running else running
    if total < rank:
        return (math.nan if unknown else high), 0
    number = _count(c, row, at)
    rest = (rank - (total - number)) if forward else (total - rank)
    last = _last(c, row)
    if unknown and at < last:
        # As in Prometheus: its search for NaN observations ends at the last bucket, whose bounds it then uses.
        low, high = _bounds(c, row, last, fractions)
        number = _count(c, row, last)
    share = rest / number
    if custom or (low <= 0 <= high):
        return low + (high - low) * share, 0
    log_low, log_high = math.log2(abs(low)), math.log2(abs(high))
    if low > 0:
        return log_low + (log_high - log_low) * share, 1
    return log_high + (log_low - log_high) * (1 - share), -1


@njit(cache=True, nogil=True, error_model="numpy")
def quantiles(c, rows, q, fractions, out, power, unplaced):  # type: ignore[no-untyped-def]
    """Quantile `q[i]` of histogram `rows[i]`. `unplaced[i]`: the histogram has NaN observations, in no bucket."""
    for i in range(len(rows)):
        row = rows[i]
        out[i], power[i] = _quantile(q[i], c, row, fractions)
        unplaced[i] = math.isnan(c.sum[row]) and _total(c, row) < c.observations[row]


@njit(cache=True, nogil=True, error_model="numpy")
def _rank(bound, c, row, fractions):  # type: ignore[no-untyped-def]
    """The number of observations below the bound."""
    custom = c.schema[row] == CUSTOM_SCHEMA
    negative, positive = c.neg_offsets[row + 1] > c.neg_offsets[row], c.pos_offsets[row + 1] > c.pos_offsets[row]
    zero_at = c.neg_offsets[row + 1] - c.neg_offsets[row]
    below = 0.0
    for at in range(_number(c, row)):
        count = _count(c, row, at)
        if at == zero_at and count == 0:
            continue
        first, last = _bounds(c, row, at, fractions)
        zero_bucket = first <= 0 <= last
        # As in Prometheus, a custom bucket around zero, even one from -1 to 0, is treated as the zero bucket.
        if zero_bucket and negative != positive:
            first, last = (0.0, last) if positive else (first, 0.0)
        if first >= bound:
            return below
        if first < bound < last:
            # Observations in an infinite bucket have no known position: none of them lies between two values.
            if first == -math.inf:
                return count
            if custom or zero_bucket:
                share = (bound - first) / (last - first)
            else:
                log_first, log_last, log_bound = math.log2(abs(first)), math.log2(abs(last)), math.log2(abs(bound))
                share = (log_bound - log_first) / (log_last - log_first)
                if bound <= 0:
                    share = 1 - (log_bound - log_last) / (log_first - log_last)
            return below + count * share
        below += count
    return math.inf


@njit(cache=True, nogil=True, error_model="numpy")
def fractions_between(c, rows, lower, upper, fractions, out, unplaced):  # type: ignore[no-untyped-def]
    """The fraction of the observations of histogram `rows[i]` between two bounds. `unplaced` as in `quantiles`."""
    for i in range(len(rows)):
        row = rows[i]
        unknown = math.isnan(c.sum[row])
        unplaced[i] = unknown and _total(c, row) < c.observations[row]
        if c.observations[row] == 0 or math.isnan(lower[i]) or math.isnan(upper[i]):
            out[i] = math.nan
        elif lower[i] >= upper[i]:
            out[i] = 0.0
        else:
            total = _total(c, row) if unknown else c.observations[row]
            first, last = _rank(lower[i], c, row, fractions), _rank(upper[i], c, row, fractions)
            # Not min(): a NaN rank must stay NaN.
            first, last = total if total < first else first, total if total < last else last
            out[i] = (last - first) / c.observations[row]
