"""Sketches of values: exponential histograms in flat arrays, which merge exactly in any order.

A value's key orders as the value does: the index of its bucket moved above zero, negative for negative values, zero
for zero. The sketch of a bucket of time is its sorted distinct keys and their counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numba import njit

from lakerunner.model.signals.metrics import SPAN
from lakerunner.model.signals.tiers import SKETCH, SKETCH_SCHEMA
from lakerunner.pipeline.rollup.columns import bucket_indexes, numbers
from lakerunner.pipeline.rollup.kernels import Bools, Floats, Ints

_PER_DOUBLING = 1 << SKETCH_SCHEMA
#: The upper bounds of the buckets between 0.5 and 1, which all powers of two repeat.
_BOUNDS = np.exp2(np.arange(_PER_DOUBLING) / _PER_DOUBLING - 1)
#: Moves the indexes of all doubles above zero: the smallest lies 1,075 doublings below 1.
_SHIFT = 1_100 * _PER_DOUBLING
#: The index of infinity follows that of the largest double.
_INFINITE = 1_024 * _PER_DOUBLING + 1
#: Fewer pairs than this are sorted by insertion: neighbouring samples are similar, so they are almost in order.
_FEW = 48


@dataclass(frozen=True, slots=True)
class Sketches:
    """Sketch i has the keys `offsets[i]` to `offsets[i + 1]`, ascending."""

    offsets: Ints
    keys: Ints
    counts: Ints


@njit(cache=True, nogil=True, error_model="numpy")
def key_of(value):  # type: ignore[no-untyped-def]
    """The key of a value that is not NaN."""
    if value == 0.0:
        return 0
    if math.isinf(value):
        key = _INFINITE + _SHIFT
    else:
        fraction, exponent = math.frexp(abs(value))
        low, high = 0, _PER_DOUBLING
        while low < high:
            middle = (low + high) // 2
            if _BOUNDS[middle] < fraction:
                low = middle + 1
            else:
                high = middle
        key = low + (exponent - 1) * _PER_DOUBLING + _SHIFT
    return key if value > 0 else -key


@njit(cache=True, nogil=True, error_model="numpy")
def _keys(values, chosen, out):  # type: ignore[no-untyped-def]
    number = 0
    for i in range(len(values)):
        if chosen[i] and not math.isnan(values[i]):
            out[number] = key_of(values[i])
            number += 1
    return number


@njit(cache=True, nogil=True)
def _merge(offsets, keys, counts, out_offsets, out_keys, out_counts):  # type: ignore[no-untyped-def]
    """Sort the pairs of each group by key and add up equal keys. `keys` and `counts` are overwritten."""
    written = 0
    out_offsets[0] = 0
    for g in range(len(offsets) - 1):
        begin, stop = offsets[g], offsets[g + 1]
        if stop - begin > _FEW:
            order = np.argsort(keys[begin:stop], kind="mergesort")
            keys[begin:stop] = keys[begin:stop][order]
            counts[begin:stop] = counts[begin:stop][order]
        else:
            for i in range(begin + 1, stop):
                key, count = keys[i], counts[i]
                j = i - 1
                while j >= begin and keys[j] > key:
                    keys[j + 1], counts[j + 1] = keys[j], counts[j]
                    j -= 1
                keys[j + 1], counts[j + 1] = key, count
        first = written
        for i in range(begin, stop):
            if written > first and out_keys[written - 1] == keys[i]:
                out_counts[written - 1] += counts[i]
            else:
                out_keys[written], out_counts[written] = keys[i], counts[i]
                written += 1
        out_offsets[g + 1] = written
    return written


def of_values(values: Floats, chosen: Bools, groups: Ints) -> Sketches:
    """One sketch per group of rows: group g has the rows `groups[g]` to `groups[g + 1]`, of which only some count."""
    keys = np.empty(len(values), np.int64)
    number = _keys(values, chosen, keys)
    counted = np.zeros(len(values) + 1, np.int64)
    np.cumsum(chosen & ~np.isnan(values), out=counted[1:])
    return merged(Sketches(counted[groups], keys[:number], np.ones(number, np.int64)))


def merged(pairs: Sketches) -> Sketches:
    """One sketch per group of pairs. The arrays of `pairs` are used up."""
    offsets, keys = np.empty_like(pairs.offsets), np.empty_like(pairs.keys)
    counts = np.empty_like(pairs.counts)
    written = _merge(pairs.offsets, pairs.keys, pairs.counts, offsets, keys, counts)
    return Sketches(offsets, keys[:written].copy(), counts[:written].copy())


def regrouped(sketches: Sketches, groups: Ints) -> Sketches:
    """One sketch per group of sketches."""
    return merged(Sketches(sketches.offsets[groups], sketches.keys.copy(), sketches.counts.copy()))


def only(sketches: Sketches, groups: Ints) -> Sketches:
    """The sketches of these groups. All others must be empty."""
    return Sketches(np.append(sketches.offsets[groups], sketches.offsets[-1]), sketches.keys, sketches.counts)


@njit(cache=True, nogil=True)
def _sides(offsets, keys, counts, neg_offsets, neg_index, neg_counts, zeros, pos_offsets, pos_index, pos_counts):  # type: ignore[no-untyped-def]
    negative = positive = 0
    neg_offsets[0] = pos_offsets[0] = 0
    for g in range(len(offsets) - 1):
        zeros[g] = 0
        # Of negative keys, the lowest index is the last.
        for i in range(offsets[g + 1] - 1, offsets[g] - 1, -1):
            if keys[i] < 0:
                neg_index[negative], neg_counts[negative] = -keys[i] - _SHIFT, counts[i]
                negative += 1
        for i in range(offsets[g], offsets[g + 1]):
            if keys[i] == 0:
                zeros[g] = counts[i]
            elif keys[i] > 0:
                pos_index[positive], pos_counts[positive] = keys[i] - _SHIFT, counts[i]
                positive += 1
        neg_offsets[g + 1], pos_offsets[g + 1] = negative, positive
    return negative, positive


@njit(cache=True, nogil=True)
def _spans(offsets, index, span_offsets, skips, lengths):  # type: ignore[no-untyped-def]
    """The runs of consecutive indexes of each group: how many to skip since the run before, and the length."""
    written = 0
    span_offsets[0] = 0
    for g in range(len(offsets) - 1):
        reached = 0
        for i in range(offsets[g], offsets[g + 1]):
            if i > offsets[g] and index[i] == reached:
                lengths[written - 1] += 1
            else:
                skips[written], lengths[written] = index[i] - reached, 1
                written += 1
            reached = index[i] + 1
        span_offsets[g + 1] = written
    return written


def to_columns(sketches: Sketches, rows: Ints, row_count: int) -> dict[str, pa.Array]:
    """The sketches as columns of a tier: sketch i in row `rows[i]`, which ascend; null in all other rows."""
    size, groups = len(sketches.keys), len(rows)
    neg_offsets, pos_offsets = np.empty(groups + 1, np.int64), np.empty(groups + 1, np.int64)
    neg_index, pos_index = np.empty(size, np.int64), np.empty(size, np.int64)
    neg_counts, pos_counts, zeros = np.empty(size), np.empty(size), np.empty(groups)
    negative, positive = _sides(
        sketches.offsets, sketches.keys, sketches.counts, neg_offsets, neg_index, neg_counts, zeros, pos_offsets,
        pos_index, pos_counts,
    )  # fmt: skip
    absent = np.ones(row_count, np.bool_)
    absent[rows] = False
    zero_column = np.zeros(row_count)
    zero_column[rows] = zeros
    columns = {
        f"{SKETCH}schema": pa.array(np.full(row_count, SKETCH_SCHEMA, np.int8), mask=absent),
        f"{SKETCH}zero_count": pa.array(zero_column, mask=absent),
    }
    sides = {
        "positive": (pos_offsets, pos_index[:positive], pos_counts[:positive]),
        "negative": (neg_offsets, neg_index[:negative], neg_counts[:negative]),
    }
    for side, (offsets, index, counts) in sides.items():
        span_offsets = np.empty(groups + 1, np.int64)
        skips, lengths = np.empty(len(index), np.int32), np.empty(len(index), np.uint32)
        written = _spans(offsets, index, span_offsets, skips, lengths)
        spans = pa.StructArray.from_arrays(
            [pa.array(skips[:written]), pa.array(lengths[:written])], fields=list(SPAN)
        )  # fmt: skip
        columns[f"{SKETCH}{side}_spans"] = _lists(span_offsets, spans, rows, absent)
        columns[f"{SKETCH}{side}_buckets"] = _lists(offsets, pa.array(counts), rows, absent)
    return columns


def _lists(offsets: Ints, values: pa.Array, rows: Ints, absent: Bools) -> pa.Array:
    lengths = np.zeros(len(absent), np.int64)
    lengths[rows] = np.diff(offsets)
    ends = np.zeros(len(absent) + 1, np.int32)
    np.cumsum(lengths, out=ends[1:])
    return pa.ListArray.from_arrays(pa.array(ends), values, mask=pa.array(absent))


def from_columns(table: pa.Table) -> Sketches:
    """One sketch per row of a tier; empty where it has none."""
    zeros = numbers(table, f"{SKETCH}zero_count")
    neg_offsets, neg_index, neg_counts = bucket_indexes(table, f"{SKETCH}negative_spans", f"{SKETCH}negative_buckets")
    pos_offsets, pos_index, pos_counts = bucket_indexes(table, f"{SKETCH}positive_spans", f"{SKETCH}positive_buckets")
    lengths = np.diff(neg_offsets) + np.diff(pos_offsets) + (zeros > 0)
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    keys, counts = np.empty(offsets[-1], np.int64), np.empty(offsets[-1], np.int64)
    _join(
        offsets, zeros, neg_offsets, neg_index, neg_counts, pos_offsets, pos_index, pos_counts, keys, counts
    )  # fmt: skip
    return Sketches(offsets, keys, counts)


@njit(cache=True, nogil=True)
def _join(offsets, zeros, neg_offsets, neg_index, neg_counts, pos_offsets, pos_index, pos_counts, keys, counts):  # type: ignore[no-untyped-def]
    for g in range(len(offsets) - 1):
        at = offsets[g]
        for i in range(neg_offsets[g + 1] - 1, neg_offsets[g] - 1, -1):
            keys[at], counts[at] = -(neg_index[i] + _SHIFT), neg_counts[i]
            at += 1
        if zeros[g] > 0:
            keys[at], counts[at] = 0, zeros[g]
            at += 1
        for i in range(pos_offsets[g], pos_offsets[g + 1]):
            keys[at], counts[at] = pos_index[i] + _SHIFT, pos_counts[i]
            at += 1
