"""Rows of a rule by series and bucket of time: partial results that add up, and the samples that they become.

Buckets are open at the left and closed at the right: bucket k has the rows with k * 10 s < t <= (k + 1) * 10 s. So a
window (T - R, T] of a query, with T and R multiples of 10 s, is a set of whole buckets.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.compute import Compute
from lakerunner.model.time import NS_PER_MS
from lakerunner.pipeline.derive.selected import Coded, Floats, Ints, Selected

#: The width of a bucket.
STEP_MS = 10_000
BUCKETS_PER_DAY = 86_400_000 // STEP_MS
OVERFLOW = "__overflow__"
#: Native histograms have eight buckets per power of two: an error of quantiles below 5%.
SCHEMA = 3
_PER_DOUBLING = 1 << SCHEMA
ZERO_THRESHOLD = 2.0**-128
#: The place of the zero bucket, and how far those of negative numbers are from those of positive ones.
_ZERO, _NEGATIVE = 0, 1 << 20
#: Combinations of values per row up to which they are looked up in a table.
_DENSE = 4


def bucket_of(times_ns: Ints) -> Ints:
    """
    >>> bucket_of(np.array([0, 1, 10_000_000_000, 10_000_000_001]))
    array([-1,  0,  0,  1])
    """
    return (times_ns - 1) // (STEP_MS * NS_PER_MS)


@dataclass(frozen=True, slots=True)
class Buckets:
    """Aggregates of every series and bucket that has rows."""

    #: One column per dimension, one element per series; empty where a series lacks it.
    labels: tuple[pa.Array, ...]
    #: The series and the bucket of each group.
    series: Ints
    bucket: Ints
    count: Floats
    total: Floats
    least: Floats
    most: Floats
    #: Cells of histograms: the group, the place of its bucket of values, and how many rows.
    cell_group: Ints
    cell_place: Ints
    cell_count: Floats
    #: Series that were left out for the limit, and whose rows are in the overflow.
    overflowed: int = 0

    @property
    def series_count(self) -> int:
        return int(self.series.max()) + 1 if len(self.series) else 0


def bucketed(found: Selected, compute: Compute) -> Buckets:
    """Group the rows of a rule, and distribute their amounts where it wants that."""
    size = len(found.times_ns)
    series, first = numbered([each.codes for each in found.dimensions], size)
    labels = tuple(each.words.take(pa.array(each.codes[first])) for each in found.dimensions)
    bucket = bucket_of(found.times_ns)
    group, firsts = numbered([series, bucket - (bucket.min() if size else 0)], size)
    groups = len(firsts)
    count = np.bincount(group, minlength=groups).astype(np.float64)
    zeros = np.zeros(groups)
    total: Floats = zeros
    least, most = zeros, zeros
    nothing = np.zeros(0, np.int64)
    cell_group, cell_place, cell_count = nothing, nothing, np.zeros(0)
    if found.amounts is not None:
        if compute is not Compute.DISTINCT:
            total = _added(group, found.amounts, groups)
            least, most = _extremes(group, groups, found.amounts, found.amounts)
        if compute.is_distribution:
            place = _place(found.amounts) if compute is Compute.HISTOGRAM else _place_of_index(found.amounts)
            cell, at = numbered([group, place + 2 * _NEGATIVE], size)
            cell_group, cell_place = group[at], place[at]
            cell_count = np.bincount(cell, minlength=len(at)).astype(np.float64)
    return Buckets(
        labels, series[firsts], bucket[firsts], count, total, least, most, cell_group, cell_place, cell_count
    )


def merged(parts: Sequence[Buckets]) -> Buckets:
    """Several partial results as one: sums of sums, least of least."""
    if len(parts) == 1:
        return parts[0]
    count = len(parts[0].labels)
    columns = [pa.concat_arrays([each.labels[at] for each in parts]) for at in range(count)]
    sizes = [each.series_count for each in parts]
    encoded = [Coded.of(column, len(column)) for column in columns]
    number, first = numbered([each.codes for each in encoded], sum(sizes))
    labels = tuple(column.take(pa.array(first)) for column in columns)
    offsets = np.cumsum([0, *sizes[:-1]])
    series = number[np.concatenate([each.series + at for each, at in zip(parts, offsets, strict=True)])]
    return _regrouped(parts, labels, series)


def capped(found: Buckets, most: int) -> Buckets:
    """Keep the series with the most rows; the others become one, whose dimensions say that it is the overflow."""
    size = found.series_count
    if size <= most or not found.labels:
        return found
    rows = np.bincount(found.series, weights=found.count, minlength=size)
    kept = np.zeros(size, np.bool_)
    kept[np.argsort(-rows, kind="stable")[:most]] = True
    number = np.where(kept, np.cumsum(kept) - 1, most)
    first = np.append(np.flatnonzero(kept), np.flatnonzero(~kept)[0])
    is_overflow = np.arange(most + 1) == most
    labels = tuple(
        pc.if_else(pa.array(is_overflow), OVERFLOW, column.take(pa.array(first))) for column in found.labels
    )  # fmt: skip
    regrouped = _regrouped([found], labels, number[found.series])
    return replace(regrouped, overflowed=found.overflowed + size - most)


def overflowing(found: Buckets, days: Collection[int]) -> Buckets:
    """Put all rows of these days, which are full, into the overflow."""
    is_full = np.isin(found.bucket // BUCKETS_PER_DAY, list(days))
    if not found.labels or not is_full.any():
        return found
    size = found.series_count
    series, first = numbered([np.where(is_full, size, found.series)], len(found.series))
    owner = pa.array(np.where(is_full, size, found.series)[first])
    labels = tuple(pa.concat_arrays([column, pa.array([OVERFLOW], column.type)]).take(owner) for column in found.labels)
    lost = len(np.unique(found.series[is_full]))
    return replace(_regrouped([found], labels, series), overflowed=found.overflowed + lost)


def _regrouped(parts: Sequence[Buckets], labels: tuple[pa.Array, ...], series: Ints) -> Buckets:
    """The groups of all parts, of which those of one series and bucket become one."""
    bucket = np.concatenate([each.bucket for each in parts])
    group, firsts = numbered([series, bucket - (bucket.min() if len(bucket) else 0)], len(bucket))
    groups = len(firsts)

    def added(name: str) -> Floats:
        weights = np.concatenate([getattr(each, name) for each in parts])
        return _added(group, weights, groups)

    least, most = _extremes(
        group, groups, np.concatenate([each.least for each in parts]), np.concatenate([each.most for each in parts])
    )
    offsets = np.cumsum([0, *(len(each.series) for each in parts[:-1])])
    owner = group[np.concatenate([each.cell_group + at for each, at in zip(parts, offsets, strict=True)])]
    place = np.concatenate([each.cell_place for each in parts])
    cell, at = numbered([owner, place + 2 * _NEGATIVE], len(place))
    counts = _added(cell, np.concatenate([each.cell_count for each in parts]), len(at))
    return Buckets(
        labels, series[firsts], bucket[firsts], added("count"), added("total"), least, most, owner[at], place[at],
        counts,
    )  # fmt: skip


def _added(group: Ints, weights: Floats, groups: int) -> Floats:
    return np.bincount(group, weights=weights, minlength=groups).astype(np.float64)


def _extremes(group: Ints, groups: int, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    least, most = np.full(groups, np.inf), np.full(groups, -np.inf)
    np.minimum.at(least, group, low)
    np.maximum.at(most, group, high)
    return least, most


def _place(amounts: Floats) -> Ints:
    """Where a histogram counts each amount: 0 is the zero bucket, others are shifted by the sign."""
    size = np.abs(amounts)
    some = size > ZERO_THRESHOLD
    index = np.ceil(np.log2(np.where(some, size, 1.0)) * _PER_DOUBLING).astype(np.int64)
    # Indexes lie between -1,024 and 8,192.
    return np.where(some, np.where(amounts > 0, index + _NEGATIVE // 2, index - _NEGATIVE // 2), _ZERO)


def _place_of_index(index: Floats) -> Ints:
    """Where a histogram counts amounts that are numbers of buckets already."""
    return index.astype(np.int64) + _NEGATIVE // 2


def cells_of(found: Buckets) -> tuple[tuple[Ints, Ints, Floats], Floats, tuple[Ints, Ints, Floats]]:
    """The positive cells (group, index, count), the counts of zeros, and the negative cells, in order."""
    group, place, count = found.cell_group, found.cell_place, found.cell_count
    zeros = _added(group[place == _ZERO], count[place == _ZERO], len(found.series))

    def of_sign(mask: npt.NDArray[np.bool_], shift: int) -> tuple[Ints, Ints, Floats]:
        index = place[mask] + shift
        order = np.lexsort((index, group[mask]))
        return group[mask][order], index[order], count[mask][order]

    return of_sign(place > 0, -_NEGATIVE // 2), zeros, of_sign(place < 0, _NEGATIVE // 2)


def numbered(columns: Sequence[Ints], size: int) -> tuple[Ints, Ints]:
    """Number the distinct rows of these columns; return the number of each row, and the first row of each number."""
    if not columns or not size:
        return np.zeros(size, np.int64), np.zeros(min(size, 1), np.int64)
    key = columns[0]
    width = int(key.max()) + 1
    for column in columns[1:]:
        more = int(column.max()) + 1
        if width >= (1 << 62) // more:
            key = pa.array(key).dictionary_encode().indices.to_numpy().astype(np.int64)
            width = int(key.max()) + 1
        key = key * more + column
        width *= more
    if width <= _DENSE * size + 1024:
        # A table of all combinations is smaller than a hash table of those that there are.
        first = np.full(width, size, np.int64)
        first[key[::-1]] = np.arange(size)[::-1]
        there = np.flatnonzero(first < size)
        place = np.empty(width, np.int64)
        place[there] = np.arange(len(there))
        return place[key], first[there]
    numbers = pa.array(key).dictionary_encode().indices.to_numpy().astype(np.int64)
    first = np.full(int(numbers.max()) + 1, size, np.int64)
    first[numbers[::-1]] = np.arange(size)[::-1]
    return numbers, first
