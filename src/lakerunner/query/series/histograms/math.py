"""Arithmetic of native histograms: bring two to one bucket layout, then add, subtract, compare."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from lakerunner.query.series.histograms.histogram import (
    Floats,
    Histogram,
    Ints,
    ResetHint,
    bucket_bound,
)


class IncompatibleSchemas(ValueError):
    """Exponential and custom buckets cannot be brought to one layout."""


@dataclass(frozen=True, slots=True)
class Sum:
    """The result of an addition or subtraction, and what users should know about it."""

    value: Histogram
    #: One side's hint is "reset", the other's "not reset".
    hint_collision: bool = False
    #: Custom bounds differed: only the common ones remain.
    bounds_reconciled: bool = False


def add(left: Histogram, right: Histogram) -> Sum:
    return _combine(left, right, 1.0)


def subtract(left: Histogram, right: Histogram) -> Sum:
    return _combine(left, right, -1.0)


def _combine(left: Histogram, right: Histogram, sign: float) -> Sum:
    layout = _Layout.common(left, right)
    hint, collision = _joined_hint(left.hint, right.hint)
    a, b = layout.project(left), layout.project(right)
    pos_index, pos_a, pos_b = _aligned(a.pos_index, a.pos_count, b.pos_index, b.pos_count)
    neg_index, neg_a, neg_b = _aligned(a.neg_index, a.neg_count, b.neg_index, b.neg_count)
    with np.errstate(all="ignore"):
        out = replace(
            a,
            count=a.count + sign * b.count,
            sum=a.sum + sign * b.sum,
            zero_count=a.zero_count + sign * b.zero_count,
            pos_index=pos_index,
            pos_count=pos_a + sign * pos_b,
            neg_index=neg_index,
            neg_count=neg_a + sign * neg_b,
            hint=hint,
        )
    return Sum(out, collision, layout.reconciled)


def to_schema(histogram: Histogram, schema: int) -> Histogram:
    """The same observations in wider buckets."""
    if schema == histogram.schema or histogram.custom:
        return histogram
    return _Layout(schema, histogram.zero_threshold, (), False).project(histogram)


@dataclass(frozen=True, slots=True)
class _Layout:
    schema: int
    zero_threshold: float
    bounds: tuple[float, ...]
    reconciled: bool

    @classmethod
    def common(cls, left: Histogram, right: Histogram) -> _Layout:
        """The finest layout that holds both without splitting a bucket."""
        if left.custom != right.custom:
            raise IncompatibleSchemas
        if left.custom:
            if left.bounds == right.bounds:
                return cls(left.schema, 0.0, left.bounds, False)
            shared = set(left.bounds) & set(right.bounds)
            return cls(left.schema, 0.0, tuple(sorted(shared)), True)
        threshold = max(left.zero_threshold, right.zero_threshold)
        if left.zero_threshold != right.zero_threshold:
            # While the threshold cuts a populated bucket of either side, it grows to that bucket's end.
            while True:
                wider = max(_grown_threshold(left, threshold), _grown_threshold(right, threshold))
                if wider == threshold:
                    break
                threshold = wider
        return cls(min(left.schema, right.schema), threshold, (), False)

    def project(self, histogram: Histogram) -> Histogram:
        if histogram.custom:
            if histogram.bounds == self.bounds:
                return histogram
            return self._project_custom(histogram)
        out = histogram
        if out.zero_threshold != self.zero_threshold:
            out = _with_zero_threshold(out, self.zero_threshold)
        if out.schema != self.schema:
            shift = out.schema - self.schema
            pos_index, pos_count = _merged(((out.pos_index - 1) >> shift) + 1, out.pos_count)
            neg_index, neg_count = _merged(((out.neg_index - 1) >> shift) + 1, out.neg_count)
            out = replace(
                out,
                schema=self.schema,
                pos_index=pos_index,
                pos_count=pos_count,
                neg_index=neg_index,
                neg_count=neg_count,
            )
        return out

    def _project_custom(self, histogram: Histogram) -> Histogram:
        uppers = np.array([*histogram.bounds, math.inf])[histogram.pos_index]
        index, count = _merged(np.searchsorted(np.array(self.bounds), uppers), histogram.pos_count)
        return replace(histogram, bounds=self.bounds, pos_index=index, pos_count=count)


def _merged(index: Ints, count: Floats) -> tuple[Ints, Floats]:
    """Add up the counts of equal indexes, which ascend."""
    unique, inverse = np.unique(index, return_inverse=True)
    out = np.zeros(len(unique))
    np.add.at(out, inverse, count)
    return unique.astype(np.int64), out


def _aligned(
    left_index: Ints, left_count: Floats, right_index: Ints, right_count: Floats
) -> tuple[Ints, Floats, Floats]:
    """Both sides' counts over the union of their indexes."""
    if np.array_equal(left_index, right_index):
        return left_index, left_count, right_count
    index = np.union1d(left_index, right_index)
    left, right = np.zeros(len(index)), np.zeros(len(index))
    left[np.searchsorted(index, left_index)] = left_count
    right[np.searchsorted(index, right_index)] = right_count
    return index, left, right


def _grown_threshold(histogram: Histogram, threshold: float) -> float:
    """The threshold, or the end of the populated bucket that it cuts."""
    if threshold <= histogram.zero_threshold:
        return threshold
    for index, count in ((histogram.pos_index, histogram.pos_count), (histogram.neg_index, histogram.neg_count)):
        lower, upper = bucket_bound(index - 1, histogram.schema), bucket_bound(index, histogram.schema)
        cut = (lower < threshold) & (upper > threshold) & (count != 0)
        if cut.any():
            threshold = float(upper[cut].max())
    return threshold


def _with_zero_threshold(histogram: Histogram, threshold: float) -> Histogram:
    """Move the buckets that begin below the threshold into the zero bucket."""
    pos_in = bucket_bound(histogram.pos_index - 1, histogram.schema) < threshold
    neg_in = bucket_bound(histogram.neg_index - 1, histogram.schema) < threshold
    zero = histogram.zero_count + float(histogram.pos_count[pos_in].sum()) + float(histogram.neg_count[neg_in].sum())
    return replace(
        histogram,
        zero_threshold=threshold,
        zero_count=zero,
        pos_index=histogram.pos_index[~pos_in],
        pos_count=histogram.pos_count[~pos_in],
        neg_index=histogram.neg_index[~neg_in],
        neg_count=histogram.neg_count[~neg_in],
    )


def _joined_hint(left: ResetHint, right: ResetHint) -> tuple[ResetHint, bool]:
    if left is right:
        return left, False
    if ResetHint.GAUGE in (left, right):
        return ResetHint.GAUGE, False
    if ResetHint.UNKNOWN in (left, right):
        return ResetHint.UNKNOWN, False
    return ResetHint.UNKNOWN, True


def is_reset(current: Histogram, previous: Histogram) -> bool:
    """Whether a counter restarted between the two: a count shrank, or the layout became finer."""
    if current.hint is ResetHint.RESET:
        return True
    if current.hint is ResetHint.NOT_RESET:
        return False
    if current.count < previous.count:
        return True
    if current.custom:
        if not previous.custom:
            return True
        return _custom_shrank(current, previous)
    if previous.custom or current.schema > previous.schema or current.zero_threshold < previous.zero_threshold:
        return True
    if _grown_threshold(previous, current.zero_threshold) != current.zero_threshold:
        return True
    before = _Layout(current.schema, current.zero_threshold, (), False).project(previous)
    if current.zero_count < before.zero_count:
        return True
    return _shrank(current.pos_index, current.pos_count, before.pos_index, before.pos_count) or _shrank(
        current.neg_index, current.neg_count, before.neg_index, before.neg_count
    )


def _shrank(index: Ints, count: Floats, before_index: Ints, before_count: Floats) -> bool:
    """Whether a populated bucket disappeared or lost observations. New buckets do not matter."""
    if np.array_equal(index, before_index):
        return bool((count < before_count).any())
    kept = np.isin(before_index, index)
    now = count[np.searchsorted(index, before_index[kept])]
    return bool((before_count[~kept] != 0).any() or (now < before_count[kept]).any())


def _custom_shrank(current: Histogram, previous: Histogram) -> bool:
    layout = _Layout.common(current, previous)
    now, before = layout.project(current), layout.project(previous)
    return _shrank(now.pos_index, now.pos_count, before.pos_index, before.pos_count)


class CompensatedSum:
    """A running sum of histograms with Neumaier's compensation in every field, as Prometheus keeps it."""

    __slots__ = ("_error", "bounds_reconciled", "value")

    def __init__(self, first: Histogram) -> None:
        self.value = first
        self._error = first.scaled(0.0)
        self.bounds_reconciled = False
        if not math.isfinite(first.count) or not math.isfinite(first.sum):
            self._error = replace(self._error, count=0.0, sum=0.0)

    def copy(self) -> CompensatedSum:
        out = CompensatedSum(self.value)
        out._error = self._error
        out.bounds_reconciled = self.bounds_reconciled
        return out

    def add(self, other: Histogram) -> None:
        layout = _Layout.common(self.value, other)
        hint, _ = _joined_hint(self.value.hint, other.hint)
        self.bounds_reconciled |= layout.reconciled
        a, b, error = layout.project(self.value), layout.project(other), layout.project(self._error)
        pos_index, pos_a, pos_b = _aligned(a.pos_index, a.pos_count, b.pos_index, b.pos_count)
        neg_index, neg_a, neg_b = _aligned(a.neg_index, a.neg_count, b.neg_index, b.neg_count)
        pos_error = _spread(pos_index, error.pos_index, error.pos_count)
        neg_error = _spread(neg_index, error.neg_index, error.neg_count)
        scalars, scalar_errors = _neumaier(
            np.array([a.count, a.sum, a.zero_count]),
            np.array([error.count, error.sum, error.zero_count]),
            np.array([b.count, b.sum, b.zero_count]),
        )
        pos, pos_error = _neumaier(pos_a, pos_error, pos_b)
        neg, neg_error = _neumaier(neg_a, neg_error, neg_b)
        self.value = replace(
            a, count=float(scalars[0]), sum=float(scalars[1]), zero_count=float(scalars[2]),
            pos_index=pos_index, pos_count=pos, neg_index=neg_index, neg_count=neg, hint=hint,
        )  # fmt: skip
        self._error = replace(
            self.value, count=float(scalar_errors[0]), sum=float(scalar_errors[1]), zero_count=float(scalar_errors[2]),
            pos_count=pos_error, neg_count=neg_error,
        )  # fmt: skip

    def scale(self, factor: float) -> None:
        self.value = self.value.scaled(factor)
        self._error = self._error.scaled(factor)

    def overflows(self) -> bool:
        value = self.value
        fields = (value.count, value.sum, value.zero_count)
        return any(map(math.isinf, fields)) or bool(np.isinf(value.pos_count).any() or np.isinf(value.neg_count).any())

    def total(self) -> Histogram:
        value, error = self.value, self._error
        return replace(
            value,
            count=value.count + error.count,
            sum=value.sum + error.sum,
            zero_count=value.zero_count + error.zero_count,
            pos_count=value.pos_count + error.pos_count,
            neg_count=value.neg_count + error.neg_count,
        )

    def mean(self, number: float) -> Histogram:
        """Divide the total by `number`. Value and error are divided separately, so that large sums keep small terms."""
        out = self.copy()
        out.value, out._error = self.value.divided(number), self._error.divided(number)
        return out.total()


def _spread(index: Ints, sub_index: Ints, sub_count: Floats) -> Floats:
    out = np.zeros(len(index))
    out[np.searchsorted(index, sub_index)] = sub_count
    return out


def _neumaier(total: Floats, error: Floats, term: Floats) -> tuple[Floats, Floats]:
    with np.errstate(all="ignore"):
        new = total + term
        larger = np.abs(total) >= np.abs(term)
        lost = np.where(larger, (total - new) + term, (term - new) + total)
        return new, np.where(np.isinf(new), 0.0, error + lost)
