"""The trim operators: a histogram without the observations above (`</`) or below (`>/`) a value."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from lakerunner.query.series.histograms.histogram import Floats, Histogram


def trim(histogram: Histogram, limit: float, upper: bool) -> Histogram:
    """`upper` keeps observations of at most `limit`, otherwise those of at least `limit`.

    A bucket that the limit cuts is interpolated. The sum is estimated from the middles of the remaining intervals,
    since the removed observations are not known; if nothing was removed, the sum stays.
    """
    trimmer = _Trimmer(histogram.custom, limit, upper)
    pos = trimmer.side(*histogram.positive_bounds(), histogram.pos_count, positive=True)
    neg = trimmer.side(*histogram.negative_bounds(), histogram.neg_count, positive=False)
    zero = histogram.zero_count
    if zero > 0:
        has_positive, has_negative = bool(histogram.pos_count.any()), bool(histogram.neg_count.any())
        zero = trimmer.zero_bucket(histogram.zero_threshold, zero, has_positive, has_negative)
    if not trimmer.changed:
        return histogram
    out = replace(histogram, pos_count=pos, neg_count=neg, zero_count=zero, count=trimmer.count, sum=trimmer.sum)
    return out.compact()


@dataclass(slots=True)
class _Trimmer:
    linear: bool
    limit: float
    upper: bool
    count: float = 0.0
    sum: float = 0.0
    changed: bool = False

    def side(self, lower: Floats, upper: Floats, count: Floats, *, positive: bool) -> Floats:
        out = count.copy()
        for i, (low, high, number) in enumerate(zip(lower.tolist(), upper.tolist(), count.tolist(), strict=True)):
            if number:
                out[i] = self._bucket(low, high, number, positive)
        return out

    def _bucket(self, low: float, high: float, number: float, positive: bool) -> float:
        limit = self.limit
        if high <= limit if self.upper else low >= limit:
            return self._keep(number, number, self._middle(low, high, positive))
        if not (low < limit if self.upper else high > limit):
            return self._keep(number, 0.0, 0.0)
        if math.isinf(low) or math.isinf(high):
            return self._keep(number, *self._infinite(low, high, number))
        below = _below(limit, low, high, number, positive=positive, linear=self.linear)
        if self.upper:
            return self._keep(number, below, self._middle(low, limit, positive))
        return self._keep(number, number - below, self._middle(limit, high, positive))

    def _keep(self, number: float, kept: float, middle: float) -> float:
        self.count += kept
        self.sum += middle * kept
        self.changed |= kept != number
        return kept

    def _infinite(self, low: float, high: float, number: float) -> tuple[float, float]:
        """How much remains of an infinite bucket that the limit cuts, and its assumed position.

        A first bucket with a positive upper bound is assumed to begin at zero. If the kept side is infinite, all
        observations are assumed to lie at the limit; otherwise the bucket is removed.
        """
        limit = self.limit
        if low == -math.inf:
            if 0 < high < math.inf:
                if self.upper:
                    return (number * limit / high, limit / 2) if limit > 0 else (0.0, 0.0)
                return (number * (1 - limit / high), (limit + high) / 2) if limit >= 0 else (0.0, 0.0)
            return (number, limit) if self.upper and high <= 0 else (0.0, 0.0)
        return (0.0, 0.0) if self.upper else (number, limit)

    def _middle(self, low: float, high: float, positive: bool) -> float:
        if math.isinf(low):
            if math.isinf(high):
                return 0.0
            return high / 2 if high > 0 else high
        if math.isinf(high):
            return low
        if self.linear:
            return (low + high) / 2
        middle = math.sqrt(abs(low * high))
        return middle if positive else -middle

    def zero_bucket(self, width: float, number: float, has_positive: bool, has_negative: bool) -> float:
        """The zero bucket extends to both sides of zero, or only to the one side that has observations."""
        low = 0.0 if has_positive and not has_negative else -width
        high = 0.0 if has_negative and not has_positive else width
        limit = self.limit
        if limit <= low or limit >= high:
            keeps_all = (limit > low) == self.upper
            return self._keep(number, number if keeps_all else 0.0, (low + high) / 2 if keeps_all else 0.0)
        first, last = (low, limit) if self.upper else (limit, high)
        return self._keep(number, number * ((last - first) / (high - low)), (first + last) / 2)


def _below(limit: float, low: float, high: float, number: float, *, positive: bool, linear: bool) -> float:
    """How many observations of a finite bucket lie at or below the limit."""
    if limit <= low:
        return 0.0
    if limit >= high:
        return number
    if linear:
        return number * ((limit - low) / (high - low))
    log_low, log_high, log_limit = math.log2(abs(low)), math.log2(abs(high)), math.log2(abs(limit))
    if positive:
        return number * ((log_limit - log_low) / (log_high - log_low))
    return number * (1 - (log_limit - log_high) / (log_low - log_high))
