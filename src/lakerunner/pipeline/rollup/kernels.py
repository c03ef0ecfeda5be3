"""Compiled loops of the rollup: one pass over sorted samples folds buckets and marks the rows that stay."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from lakerunner.model.samples import is_start_reset, neumaier

#: What a row is: a stale marker, a number or a native histogram.
STALE, NUMBER, HISTOGRAM = range(3)
_NONE = -1
_RESET_HINT = 1

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Parts(NamedTuple):
    """Per row of a tier, the aggregates of the finer bucket that ends with the row. Raw samples have none."""

    #: 0 where the row carries no aggregates.
    samples: Ints
    #: Whether some of these samples are numbers: else the following are meaningless.
    has_numbers: Bools
    total: Floats
    low: Floats
    smallest: Floats
    largest: Floats
    resets: Floats


class Folded(NamedTuple):
    """Per bucket: the rows that its aggregates come from (-1: none), and the aggregates."""

    #: The last sample, whose row carries the aggregates.
    last: Ints
    first_number: Ints
    last_number: Ints
    samples: Ints
    total: Floats
    low: Floats
    smallest: Floats
    largest: Floats
    resets: Floats


def empty_parts() -> Parts:
    none = np.empty(0, np.float64)
    return Parts(np.empty(0, np.int64), np.empty(0, np.bool_), none, none, none, none, none)


def empty_folded(buckets: int) -> Folded:
    def ints() -> Ints:
        return np.empty(buckets, np.int64)

    def floats() -> Floats:
        return np.empty(buckets, np.float64)

    return Folded(ints(), ints(), ints(), ints(), floats(), floats(), floats(), floats(), floats())


@njit(cache=True, nogil=True)
def bucket_offsets(tids, times, width, out):  # type: ignore[no-untyped-def]
    """Write where each series' buckets begin; return how many there are. They are open to the left."""
    number, end = 0, 0
    for i in range(len(tids)):
        if i == 0 or tids[i] != tids[i - 1] or times[i] > end:
            out[number] = i
            number += 1
            end = -(-times[i] // width) * width
    out[number] = len(tids)
    return number


@njit(cache=True, nogil=True, error_model="numpy")
def fold(offsets, kinds, times, starts, values, breaks, parts, keep, out):  # type: ignore[no-untyped-def]
    """Fold every bucket into `out`, and mark in `keep` the rows that stay.

    `breaks[i]` marks a histogram that does not simply continue the histogram before it. Where two values are equally
    small or large the first one counts, and NaN only if there is nothing else: as in min_over_time.
    """
    raw = len(parts.samples) == 0
    for b in range(len(offsets) - 1):
        begin, stop = offsets[b], offsets[b + 1]
        last = first_number = last_number = first_histogram = last_histogram = _NONE
        samples = 0
        total, error, resets = 0.0, 0.0, 0.0
        smallest, largest = math.nan, math.nan
        # Restarts within a finer bucket are in its aggregates already.
        begins_part = False
        for i in range(begin, stop):
            if kinds[i] == STALE:
                continue
            last = i
            if kinds[i] == HISTOGRAM:
                if first_histogram == _NONE:
                    first_histogram = i
                elif breaks[i]:
                    keep[last_histogram] = True
                    keep[i] = True
                last_histogram = i
            else:
                if first_number == _NONE:
                    first_number = i
                elif raw or begins_part:
                    p = last_number
                    if values[i] < values[p] or is_start_reset(starts[p], times[p], starts[i], times[i]):
                        resets += values[p]
                last_number = i
            if raw:
                samples += 1
                if kinds[i] == NUMBER:
                    total, error = neumaier(values[i], total, error)
                    if values[i] < smallest or math.isnan(smallest):
                        smallest = values[i]
                    if values[i] > largest or math.isnan(largest):
                        largest = values[i]
                continue
            begins_part = parts.samples[i] > 0
            samples += parts.samples[i]
            if parts.has_numbers[i]:
                total, error = neumaier(parts.total[i], total, error)
                if not math.isinf(total):
                    total, error = neumaier(parts.low[i], total, error)
                resets += parts.resets[i]
                if parts.smallest[i] < smallest or math.isnan(smallest):
                    smallest = parts.smallest[i]
                if parts.largest[i] > largest or math.isnan(largest):
                    largest = parts.largest[i]
        for row in (first_number, last_number, first_histogram, last_histogram):
            if row != _NONE:
                keep[row] = True
        if kinds[stop - 1] == STALE:
            keep[stop - 1] = True
        out.last[b], out.samples[b] = last, samples
        out.first_number[b], out.last_number[b] = first_number, last_number
        rounded = total if math.isinf(total) else total + error
        out.total[b] = rounded
        out.low[b] = (total - rounded) + error if math.isfinite(rounded) else 0.0
        out.smallest[b], out.largest[b], out.resets[b] = smallest, largest, resets


class HistogramRows(NamedTuple):
    """The histograms of some rows, one after another. `row[i]` is the histogram of row i, or -1."""

    row: Ints
    schema: npt.NDArray[np.int8]
    hint: npt.NDArray[np.int8]
    zero_threshold: Floats
    zero_count: Floats
    observations: Floats
    total: Floats
    has_sum: Bools
    pos_offsets: Ints
    pos_index: Ints
    pos_count: Floats
    neg_offsets: Ints
    neg_index: Ints
    neg_count: Floats
    bounds_offsets: Ints
    bounds: Floats


@njit(cache=True, nogil=True, error_model="numpy")
def _fell(offsets, index, count, p, j):  # type: ignore[no-untyped-def]
    """Whether a bucket of histogram p is higher than the same bucket of histogram j."""
    k, stop = offsets[j], offsets[j + 1]
    for i in range(offsets[p], offsets[p + 1]):
        while k < stop and index[k] < index[i]:
            k += 1
        now = count[k] if k < stop and index[k] == index[i] else 0.0
        if not count[i] <= now:
            return True
    return False


@njit(cache=True, nogil=True, error_model="numpy")
def _is_other_layout(h, p, j):  # type: ignore[no-untyped-def]
    if h.schema[p] != h.schema[j] or h.zero_threshold[p] != h.zero_threshold[j]:
        return True
    begin, other = h.bounds_offsets[p], h.bounds_offsets[j]
    size = h.bounds_offsets[p + 1] - begin
    if h.bounds_offsets[j + 1] - other != size:
        return True
    same = True
    for k in range(size):
        same &= h.bounds[begin + k] == h.bounds[other + k]
    return not same


@njit(cache=True, nogil=True, error_model="numpy")
def _is_irregular(begin, stop, kinds, h):  # type: ignore[no-untyped-def]
    """Whether a bucket has numbers and histograms, or histograms of different layouts or meanings."""
    first_histogram = _NONE
    numbers = False
    for i in range(begin, stop):
        if kinds[i] == NUMBER:
            numbers = True
        elif kinds[i] == HISTOGRAM:
            if first_histogram == _NONE:
                first_histogram = i
            p, j = h.row[first_histogram], h.row[i]
            if h.hint[p] != h.hint[j] or h.has_sum[p] != h.has_sum[j] or _is_other_layout(h, p, j):
                return True
    return numbers and first_histogram != _NONE


@njit(cache=True, nogil=True, error_model="numpy")
def split_irregular(offsets, kinds, h, parts, out):  # type: ignore[no-untyped-def]
    """Write the offsets of buckets again, with irregular ones cut into their parts; return how many there are then.

    What functions make of an irregular bucket depends on all of its samples, so it is not folded: each sample, or each
    finer bucket of a tier, stays a bucket of its own.
    """
    number = 0
    for b in range(len(offsets) - 1):
        begin, stop = offsets[b], offsets[b + 1]
        out[number] = begin
        number += 1
        if _is_irregular(begin, stop, kinds, h):
            for i in range(begin + 1, stop):
                if len(parts.samples) == 0 or parts.samples[i - 1] > 0 or kinds[i] == STALE or kinds[i - 1] == STALE:
                    out[number] = i
                    number += 1
    out[number] = offsets[-1]
    return number


@njit(cache=True, nogil=True, error_model="numpy")
def find_breaks(offsets, kinds, starts, h, out):  # type: ignore[no-untyped-def]
    """Mark histograms that do not simply continue the histogram before them in their bucket.

    These are all restarts of the counter, and whatever else a rate depends on: another layout, another start, another
    hint, a sum that fell or is missing. If the histograms between two such places are dropped, every rate stays.
    """
    for b in range(len(offsets) - 1):
        before = _NONE
        for i in range(offsets[b], offsets[b + 1]):
            if kinds[i] != HISTOGRAM:
                continue
            if before != _NONE:
                p, j = h.row[before], h.row[i]
                out[i] = (
                    starts[i] != starts[before]
                    or h.hint[j] == _RESET_HINT
                    or h.hint[j] != h.hint[p]
                    or h.has_sum[j] != h.has_sum[p]
                    or not h.total[p] <= h.total[j]
                    or not h.observations[p] <= h.observations[j]
                    or not h.zero_count[p] <= h.zero_count[j]
                    or _is_other_layout(h, p, j)
                    or _fell(h.pos_offsets, h.pos_index, h.pos_count, p, j)
                    or _fell(h.neg_offsets, h.neg_index, h.neg_count, p, j)
                )
            before = i
