"""Counts and aggregates of spans per group and step, reduced from columns without sorting where codes are few."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit

from lakerunner.model.errors import LimitHit
from lakerunner.model.labels import LabelSet
from lakerunner.query.series.histograms.histogram import Floats, Ints
from lakerunner.query.traceql.labels import encoded_label
from lakerunner.query.traceql.values import DURATION, FLOAT, INT, NIL, Codes, Mask, Values

BUCKET = "__bucket"
_NS_PER_S = 1e9
#: Codes up to so many times the rows are numbered by a table, others by a sort.
_DENSE = 4
#: Doubles lie within so many powers of two, from this one below zero on.
_POWERS, _LEAST_POWER, _INFINITE = 2_100, 1_074, 1_025


@dataclass(slots=True)
class Cells:
    """Counts and aggregates of one group: one element per step."""

    count: Floats
    total: Floats
    least: Floats
    most: Floats

    @classmethod
    def empty(cls, steps: int) -> Cells:
        return cls(np.zeros(steps), np.zeros(steps), np.full(steps, np.inf), np.full(steps, -np.inf))

    def add(self, other: Cells) -> None:
        self.count += other.count
        self.total += other.total
        np.minimum(self.least, other.least, out=self.least)
        np.maximum(self.most, other.most, out=self.most)


Groups = dict[LabelSet, Cells]


@dataclass(frozen=True, slots=True)
class Labelled:
    """A label of every span: codes that are equal where the values are, and the encoded value of a code."""

    name: str
    code: Ints
    #: Codes are less.
    size: int
    #: The label of the value with this code; None where there is none.
    label: Callable[[int], str | None]

    @classmethod
    def of(cls, name: str, values: Values) -> Labelled:
        codes, first = values.groups()

        def label(code: int) -> str | None:
            kind, value = values.plain(int(first[code]))
            return None if kind == NIL else encoded_label(kind, value)

        return cls(name, codes, len(first), label)

    def taken(self, keep: Mask) -> Labelled:
        return self if keep.all() else Labelled(self.name, self.code[keep], self.size, self.label)


def bucketed(values: Values) -> tuple[Labelled, Mask]:
    """The bucket of each number, up to a power of two of nanoseconds or of the number; and which numbers have one."""
    codes = _bucket_codes(values.number, values.kind)

    def label(code: int) -> str:
        bound = float(np.exp2(float(code // 2 - _LEAST_POWER)))
        return encoded_label(FLOAT, bound / _NS_PER_S if code % 2 else bound)

    return Labelled(BUCKET, codes, 2 * _POWERS, label), codes >= 0


def reduced(
    columns: Sequence[Labelled],
    place: Ints,
    values: Floats | None,
    weights: Floats | None,
    steps: int,
    max_groups: int,
    *,
    present: Mask | None = None,
    extremes: bool = False,
) -> Groups:
    """Aggregates of every group and step. Without values, spans are counted; with weights, each for as many."""
    if not len(place):
        return {}
    group, first = grouped(columns, len(place))
    size = len(first)
    if size > max_groups:
        raise too_many_series(max_groups)
    cell = group * steps + place
    shown = cell if present is None or present.all() else cell[present]
    weight = weights if weights is None or len(shown) == len(cell) else weights[present]
    if weight is None:
        count = _counted(shown, size * steps).reshape(size, steps).astype(np.float64)
    else:
        count = np.bincount(shown, weights=weight, minlength=size * steps).reshape(size, steps).astype(np.float64)
    least, most = np.full((size, steps), np.inf), np.full((size, steps), -np.inf)
    total: Floats = np.zeros((size, steps))
    if values is not None:
        chosen = values if len(shown) == len(values) else values[present]
        weighed = chosen if weight is None else chosen * weight
        total = np.bincount(shown, weights=weighed, minlength=size * steps).reshape(size, steps).astype(np.float64)
        if extremes:
            np.minimum.at(least.reshape(-1), shown, chosen)
            np.maximum.at(most.reshape(-1), shown, chosen)
    found: Groups = {}
    for number, row in enumerate(first.tolist()):
        pairs = {each.name: text for each in columns if (text := each.label(int(each.code[row]))) is not None}
        cells = Cells(count[number], total[number], least[number], most[number])
        labels = LabelSet.of(pairs)
        if labels in found:
            found[labels].add(cells)
        else:
            found[labels] = cells
    return found


def too_many_series(most: int) -> LimitHit:
    return LimitHit(
        f"cannot answer with more than {most:,} series (api.max_series)",
        hint="group by fewer attributes, or by ones with fewer values",
    )


def grouped(columns: Sequence[Labelled], rows: int) -> tuple[Ints, Ints]:
    """The number of each row's group, and the first row of each group."""
    group, first, size = np.zeros(rows, np.int64), np.zeros(1, np.int64), 1
    for number, column in enumerate(columns):
        codes = group * column.size + column.code if number else column.code
        size *= column.size
        if size <= _DENSE * rows + 2 * _POWERS:
            group, first = _numbered(codes, size)
        else:
            _, first, group = np.unique(codes, return_index=True, return_inverse=True)
        size = len(first)
    return group, first


def places(times_ns: Ints, first_ns: int, width_ns: int, steps: int) -> tuple[Ints, bool]:
    """The step of each time, -1 where it is outside, and whether any is."""
    found = np.empty(len(times_ns), np.int64)
    return found, bool(_placed(times_ns, first_ns, width_ns, steps, found))


@njit(cache=True, nogil=True)
def step_of(since_ns: int, width_ns: int, per_ns: float, steps: int) -> int:
    """The step of a time that is so long after the first step; -1 if it has none. `per_ns` is one over the width."""
    if since_ns <= -width_ns or since_ns > (steps - 1) * width_ns:
        return -1
    if since_ns <= 0:
        return 0
    # Rounded up, because a step covers the time before it. A division of whole numbers would take longer than all else.
    place = int(since_ns * per_ns)
    if place * width_ns < since_ns:
        place += 1
    elif (place - 1) * width_ns >= since_ns:
        place -= 1
    return place


@njit(cache=True, nogil=True)
def _placed(times_ns: Ints, first_ns: int, width_ns: int, steps: int, found: Ints) -> bool:
    outside = False
    per_ns = 1.0 / width_ns
    for row in range(len(times_ns)):
        found[row] = step_of(times_ns[row] - first_ns, width_ns, per_ns, steps)
        outside |= found[row] < 0
    return outside


@njit(cache=True, nogil=True)
def _bucket_codes(numbers: Floats, kinds: Codes) -> Ints:
    """Twice the power of two that is not less than a number, and one more for durations; -1 for what is not counted."""
    codes = np.empty(len(numbers), np.int64)
    for row in range(len(numbers)):
        number, kind = numbers[row], kinds[row]
        is_counted = number > 0 if kind == FLOAT else number >= 2 and kind in (INT, DURATION)
        if not is_counted:
            codes[row] = -1
            continue
        fraction, power = math.frexp(number)
        if number == np.inf:
            power = _INFINITE
        elif fraction == 0.5:
            power -= 1
        codes[row] = (power + _LEAST_POWER) * 2 + (kind == DURATION)
    return codes


@njit(cache=True, nogil=True)
def _numbered(codes: Ints, size: int) -> tuple[Ints, Ints]:
    """Codes numbered in the order in which they are found, and the row in which each is found first."""
    table = np.full(size, -1, np.int64)
    first = np.empty(min(size, len(codes)), np.int64)
    numbers = np.empty(len(codes), np.int64)
    count = 0
    for row in range(len(codes)):
        code = codes[row]
        if table[code] < 0:
            table[code] = count
            first[count] = row
            count += 1
        numbers[row] = table[code]
    return numbers, first[:count].copy()


@njit(cache=True, nogil=True)
def _counted(cells: Ints, size: int) -> Ints:
    counts = np.zeros(size, np.int64)
    for row in range(len(cells)):
        counts[cells[row]] += 1
    return counts


def warm() -> None:
    one = np.ones(1, np.int64)
    places(one, 0, 1, 1)
    numbers = Values.numbers(DURATION, one * 5)
    buckets, _ = bucketed(numbers)
    reduced([buckets], one * 0, None, None, 1, 1)
