"""A native histogram: one sample that is a distribution.

The buckets of each sign are two parallel arrays, index and count: the same content as Prometheus' spans, but ready for
array arithmetic. Histograms are values: operations return new ones.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from lakerunner.query.series.go_format import general

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: The schema of histograms whose bucket bounds are given one by one.
CUSTOM_SCHEMA = -53
#: The finest schema of exponential buckets.
MAX_SCHEMA = 8

_NO_INDEX: Ints = np.zeros(0, dtype=np.int64)
_NO_COUNT: Floats = np.zeros(0, dtype=np.float64)


class ResetHint(enum.IntEnum):
    """What the writer knows about counter resets before this sample."""

    UNKNOWN = 0
    RESET = 1
    NOT_RESET = 2
    GAUGE = 3


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    schema: int = 0
    count: float = 0.0
    sum: float = 0.0
    zero_threshold: float = 0.0
    zero_count: float = 0.0
    pos_index: Ints = field(default_factory=lambda: _NO_INDEX)
    pos_count: Floats = field(default_factory=lambda: _NO_COUNT)
    neg_index: Ints = field(default_factory=lambda: _NO_INDEX)
    neg_count: Floats = field(default_factory=lambda: _NO_COUNT)
    #: Upper bounds of custom buckets, without the last, which is +Inf.
    bounds: tuple[float, ...] = ()
    hint: ResetHint = ResetHint.UNKNOWN

    @property
    def custom(self) -> bool:
        return self.schema == CUSTOM_SCHEMA

    def scaled(self, factor: float) -> Histogram:
        hint = ResetHint.GAUGE if factor < 0 else self.hint
        return replace(
            self,
            count=self.count * factor,
            sum=self.sum * factor,
            zero_count=self.zero_count * factor,
            pos_count=self.pos_count * factor,
            neg_count=self.neg_count * factor,
            hint=hint,
        )

    def divided(self, divisor: float) -> Histogram:
        """Division by zero removes the buckets: infinitely many observations have no position."""
        hint = ResetHint.GAUGE if divisor < 0 else self.hint
        with np.errstate(all="ignore"):
            count, total, zero = np.array([self.count, self.sum, self.zero_count]) / divisor
            out = replace(self, count=float(count), sum=float(total), zero_count=float(zero), hint=hint)
            if divisor == 0:
                return replace(out, pos_index=_NO_INDEX, pos_count=_NO_COUNT, neg_index=_NO_INDEX, neg_count=_NO_COUNT)
            return replace(out, pos_count=self.pos_count / divisor, neg_count=self.neg_count / divisor)

    def compact(self) -> Histogram:
        """Without empty buckets."""
        keep_pos, keep_neg = self.pos_count != 0, self.neg_count != 0
        if keep_pos.all() and keep_neg.all():
            return self
        return replace(
            self,
            pos_index=self.pos_index[keep_pos],
            pos_count=self.pos_count[keep_pos],
            neg_index=self.neg_index[keep_neg],
            neg_count=self.neg_count[keep_neg],
        )

    def with_hint(self, hint: ResetHint) -> Histogram:
        return self if self.hint is hint else replace(self, hint=hint)

    def equals(self, other: Histogram) -> bool:
        """Whether buckets and counts are equal to the bit. The hint is ignored."""
        return (
            self.schema == other.schema
            and _bits(self.count, self.sum, self.zero_count, self.zero_threshold)
            == _bits(other.count, other.sum, other.zero_count, other.zero_threshold)
            and self.bounds == other.bounds
            and np.array_equal(self.pos_index, other.pos_index)
            and np.array_equal(self.neg_index, other.neg_index)
            and self.pos_count.tobytes() == other.pos_count.tobytes()
            and self.neg_count.tobytes() == other.neg_count.tobytes()
        )

    def positive_bounds(self) -> tuple[Floats, Floats]:
        """Lower and upper bounds of the positive (or custom) buckets."""
        if self.custom:
            edges = np.array([-math.inf, *self.bounds, math.inf])
            return edges[self.pos_index], edges[self.pos_index + 1]
        return bucket_bound(self.pos_index - 1, self.schema), bucket_bound(self.pos_index, self.schema)

    def negative_bounds(self) -> tuple[Floats, Floats]:
        """Lower and upper bounds of the negative buckets, from zero downwards."""
        return -bucket_bound(self.neg_index, self.schema), -bucket_bound(self.neg_index - 1, self.schema)

    def all_buckets(self) -> tuple[Floats, Floats, Floats]:
        """Lower bounds, upper bounds and counts of all buckets, ascending and clipped at the zero bucket."""
        lower, upper = self.positive_bounds()
        if self.custom:
            return lower, upper, self.pos_count
        width = self.zero_threshold
        lower = np.where((lower > 0) & (lower < width), width, lower)
        neg_lower, neg_upper = self.negative_bounds()
        neg_upper = np.where((neg_upper < 0) & (neg_upper > -width), -width, neg_upper)
        zero = self.zero_count > 0
        return (
            np.concatenate([neg_lower[::-1], [-width][: int(zero)], lower]),
            np.concatenate([neg_upper[::-1], [width][: int(zero)], upper]),
            np.concatenate([self.neg_count[::-1], [self.zero_count][: int(zero)], self.pos_count]),
        )

    def __str__(self) -> str:
        """As Prometheus prints it. `count_values` uses the text as a label value."""
        out = [f"count:{general(self.count)}, sum:{general(self.sum)}"]
        lower, upper, count = self.all_buckets_unclipped()
        for low, high, number in zip(lower.tolist(), upper.tolist(), count.tolist(), strict=True):
            if number:
                opened = "[" if low < 0 and (not self.custom or math.isinf(low)) else "("
                closed = "]" if high > 0 or self.custom else ")"
                out.append(f"{opened}{general(low)},{general(high)}{closed}:{general(number)}")
        return f"{{{', '.join(out)}}}"

    def all_buckets_unclipped(self) -> tuple[Floats, Floats, Floats]:
        """As `all_buckets`, without clipping at the zero bucket."""
        return replace(self, zero_threshold=0.0).all_buckets() if not self.zero_count else self._with_zero()

    def _with_zero(self) -> tuple[Floats, Floats, Floats]:
        lower, upper, count = replace(self, zero_count=0.0, zero_threshold=0.0).all_buckets()
        at = len(self.neg_index)
        return (
            np.insert(lower, at, -self.zero_threshold),
            np.insert(upper, at, self.zero_threshold),
            np.insert(count, at, self.zero_count),
        )


def _bits(*values: float) -> bytes:
    return np.array(values, dtype=np.float64).tobytes()


@lru_cache(maxsize=16)
def fractions(schema: int) -> Floats:
    """The bucket bounds between 0.5 and 1, to the last digit as in Prometheus' tables."""
    bounds = np.array([0.5])
    for finer in range(1, schema + 1):
        bounds = np.stack([bounds, bounds * (1 / 2.0 ** (-(0.5**finer)))], axis=1).reshape(-1)
    return bounds


def bucket_bound(index: Ints, schema: int) -> Floats:
    """Upper bounds of exponential buckets. The last regular one ends at the largest finite number."""
    with np.errstate(over="ignore"):
        if schema < 0:
            exponent = index << -schema
            bound = np.ldexp(1.0, np.clip(exponent, -1100, 1100))
            return np.where(exponent == 1024, np.finfo(np.float64).max, bound)
        fraction = fractions(schema)[index & ((1 << schema) - 1)]
        exponent = (index >> schema) + 1
        bound = np.ldexp(fraction, np.clip(exponent, -1100, 1100))
        return np.where((fraction == 0.5) & (exponent == 1025), np.finfo(np.float64).max, bound)
