"""The trim operators: a histogram without the observations above (`</`) or below (`>/`) a value."""

from __future__ import annotations

import math
from dataclasses import replace

from lakerunner.query.promql.histogram import Floats, Histogram


def trim(histogram: Histogram, limit: float, upper: bool) -> Histogram:
    """`upper` keeps what is at most `limit`, otherwise what is at least. A bucket that is cut is interpolated."""
    trimmer = _Trimmer(histogram, limit, upper)
    low, high = histogram.positive_bounds()
    pos = trimmer.side(low, high, histogram.pos_count, positive=True)
    low, high = histogram.negative_bounds()
    neg = trimmer.side(low, high, histogram.neg_count, positive=False)
    zero = 0.0
    if histogram.zero_count > 0:
        width = histogram.zero_threshold
        below = _below(limit, -width, width, histogram.zero_count, positive=True, linear=True)
        zero = below if upper else histogram.zero_count - below
        trimmer.kept += zero
    out = replace(
        histogram, pos_count=pos, neg_count=neg, zero_count=zero, count=trimmer.kept, sum=trimmer.new_sum()
    )
    return out.compact()


class _Trimmer:
    def __init__(self, histogram: Histogram, limit: float, upper: bool) -> None:
        self._histogram = histogram
        self._limit = limit
        self._upper = upper
        self._removed_sum = 0.0
        self._has_positive = False
        self._has_negative = False
        self.kept = 0.0

    def side(self, lower: Floats, upper: Floats, count: Floats, *, positive: bool) -> Floats:
        out = count.copy()
        for i, (low, high, number) in enumerate(zip(lower.tolist(), upper.tolist(), count.tolist(), strict=True)):
            if number:
                self._note_sign(low, high, positive)
                out[i] = self._bucket(low, high, number, positive)
        return out

    def _note_sign(self, low: float, high: float, positive: bool) -> None:
        if not self._histogram.custom:
            self._has_positive |= positive
            self._has_negative |= not positive
        else:
            self._has_negative |= high <= 0 or low < 0
            self._has_positive |= high > 0

    def _bucket(self, low: float, high: float, number: float, positive: bool) -> float:
        """What remains of one bucket; what leaves it also leaves the sum, at the place it is taken to lie."""
        limit, custom = self._limit, self._histogram.custom
        inside = high <= limit if self._upper else low >= limit
        if inside:
            self.kept += number
            return number
        kept, middle = self._split(low, high, number, positive)
        cut = low < limit if self._upper else high > limit
        if not cut:
            kept = 0.0
            if not custom:
                middle = math.copysign(math.sqrt(low * high), high if positive else low)
        self._removed_sum += (number - kept) * middle
        self.kept += kept
        return kept

    def _split(self, low: float, high: float, number: float, positive: bool) -> tuple[float, float]:
        """The count that stays, and the middle of the part that goes."""
        limit, custom = self._limit, self._histogram.custom
        if low == -math.inf or high == math.inf:
            return self._split_infinite(low, high, number)
        below = _below(limit, low, high, number, positive=positive, linear=custom)
        kept = below if self._upper else number - below
        if custom:
            return kept, (low + high) / 2
        product = abs(low) * abs(limit) if self._upper else abs(limit) * abs(high)
        middle = math.sqrt(product)
        return kept, middle if positive else -middle

    def _split_infinite(self, low: float, high: float, number: float) -> tuple[float, float]:
        """Nobody knows where in an infinite bucket the observations are: it goes as a whole.

        Except the first custom bucket with a positive end, which is taken to begin at zero.
        """
        limit = self._limit
        if low == -math.inf:
            if self._upper and limit >= high:
                return number, 0.0
            if 0 <= limit < high < math.inf:
                if self._upper:
                    return number * limit / high, (limit + high) / 2
                return number * (1 - limit / high), limit / 2
            if not self._upper and limit <= low:
                return number, 0.0
            return 0.0, high
        if not self._upper and limit <= low:
            return number, 0.0
        return 0.0, low

    def new_sum(self) -> float:
        if self.kept == 0:
            return 0.0
        total = self._histogram.sum - self._removed_sum
        if (not self._has_negative and total < 0) or (not self._has_positive and total > 0):
            return 0.0
        return total


def _below(limit: float, low: float, high: float, number: float, *, positive: bool, linear: bool) -> float:
    """How much of a finite bucket lies at or below the limit."""
    if limit <= low:
        return 0.0
    if limit >= high:
        return number
    if linear:
        return number * (limit - low) / (high - low)
    log_low, log_high, log_limit = math.log2(abs(low)), math.log2(abs(high)), math.log2(abs(limit))
    if positive:
        return number * (log_limit - log_low) / (log_high - log_low)
    return number * (1 - (log_limit - log_high) / (log_low - log_high))
