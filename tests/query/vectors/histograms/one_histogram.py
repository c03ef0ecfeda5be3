"""Quantiles and fractions of one native histogram, in plain Python: what the kernels over columns must equal."""

from __future__ import annotations

import math

import numpy as np

from lakerunner.query.series.histograms.histogram import Floats, Histogram


def quantile(q: float, histogram: Histogram) -> float:
    """The value below which the fraction `q` of the observations lies.

    Observations are assumed to be spread evenly within a bucket: on a logarithmic scale in exponential buckets, on a
    linear scale in custom buckets and in the zero bucket.
    """
    if q < 0:
        return -math.inf
    if q > 1:
        return math.inf
    if histogram.count == 0 or math.isnan(q):
        return math.nan
    lower, upper, count = histogram.all_buckets()
    # NaN observations are counted but are in no bucket: ranks are right only from the lowest bucket upwards.
    forward = math.isnan(histogram.sum) or q < 0.5
    rank = (q if forward else 1 - q) * histogram.count
    populated = np.flatnonzero(count != 0)
    if not forward:
        populated = populated[::-1]
    if not len(populated):
        # Observations in no bucket count as zero, unless they are known to be NaN.
        return 0.0 if min(0.0, histogram.count) < rank and not math.isnan(histogram.sum) else math.nan
    running = np.cumsum(count[populated])
    reached = np.flatnonzero(running >= rank)
    at = int(reached[0]) if len(reached) else len(populated) - 1
    bucket = int(populated[at])
    low, high, number = float(lower[bucket]), float(upper[bucket]), float(count[bucket])
    total = min(float(running[at]), histogram.count)
    if not histogram.custom:
        low, high = _one_sided(histogram, low, high)
    elif low == -math.inf:
        if high <= 0:
            return high
        low = 0.0
    elif high == math.inf:
        return low
    if total < rank:
        return math.nan if math.isnan(histogram.sum) else high
    rest = (rank - (total - number)) if forward else (total - rank)
    if math.isnan(histogram.sum) and bucket < len(count) - 1:
        # As in Prometheus: its search for NaN observations ends at the last bucket, whose bounds it then uses.
        low, high, number = float(lower[-1]), float(upper[-1]), float(count[-1])
    with np.errstate(all="ignore"):
        fraction = float(np.float64(rest) / np.float64(number))
    if histogram.custom or (low <= 0 <= high):
        return low + (high - low) * fraction
    log_low, log_high = math.log2(abs(low)), math.log2(abs(high))
    if low > 0:
        return float(np.exp2(log_low + (log_high - log_low) * fraction))
    return -float(np.exp2(log_high + (log_low - log_high) * (1 - fraction)))


def _one_sided(histogram: Histogram, low: float, high: float) -> tuple[float, float]:
    """Clip the zero bucket at zero if the histogram has buckets on one side only."""
    if low < 0 < high:
        if not len(histogram.neg_index) and len(histogram.pos_index):
            return 0.0, high
        if not len(histogram.pos_index) and len(histogram.neg_index):
            return low, 0.0
    return low, high


def has_nan_observations(histogram: Histogram) -> bool:
    """NaN observations make the sum NaN and are in no bucket; infinities of both signs only make the sum NaN."""
    if not math.isnan(histogram.sum):
        return False
    return _in_buckets(histogram.all_buckets()[2]) < histogram.count


def fraction(lower: float, upper: float, histogram: Histogram) -> float:
    """The fraction of the observations between the two bounds."""
    if histogram.count == 0 or math.isnan(lower) or math.isnan(upper):
        return math.nan
    if lower >= upper:
        return 0.0
    low, high, count = histogram.all_buckets()
    total = _total(histogram, count)
    below = np.concatenate([[0.0], np.cumsum(count)])
    ranks = [_rank(bound, histogram, low, high, count, below) for bound in (lower, upper)]
    lower_rank, upper_rank = (min(rank, total) for rank in ranks)
    return (upper_rank - lower_rank) / histogram.count


def _total(histogram: Histogram, count: Floats) -> float:
    return _in_buckets(count) if math.isnan(histogram.sum) else histogram.count


def _in_buckets(count: Floats) -> float:
    """The number of observations in buckets, summed from the lowest bucket upwards."""
    return float(np.cumsum(count)[-1]) if len(count) else 0.0


def _rank(bound: float, histogram: Histogram, low: Floats, high: Floats, count: Floats, below: Floats) -> float:
    """The number of observations below the bound."""
    for i in range(len(low)):
        first, last = float(low[i]), float(high[i])
        zero_bucket = first <= 0 <= last
        # As in Prometheus, a custom bucket around zero, even one from -1 to 0, is treated as the zero bucket.
        if zero_bucket and not len(histogram.neg_index) and len(histogram.pos_index):
            first = 0.0
        elif zero_bucket and not len(histogram.pos_index) and len(histogram.neg_index):
            last = 0.0
        if first >= bound:
            return float(below[i])
        if first < bound < last:
            # Observations in an infinite bucket have no known position: none of them lies between two values.
            if first == -math.inf:
                return float(count[i])
            if histogram.custom or zero_bucket:
                share = (bound - first) / (last - first)
            else:
                share = _log_share(bound, first, last)
            return float(below[i]) + float(count[i]) * share
    return math.inf


def _log_share(bound: float, first: float, last: float) -> float:
    log_first, log_last, log_bound = math.log2(abs(first)), math.log2(abs(last)), math.log2(abs(bound))
    if bound > 0:
        return (log_bound - log_first) / (log_last - log_first)
    return 1 - (log_bound - log_last) / (log_first - log_last)
