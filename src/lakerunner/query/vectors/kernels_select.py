"""Compiled selection: the values at neighbouring ranks, without sorting all values."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

#: With fewer values, partitioning takes no longer.
_MANY = 8_192
#: Values that are sorted to guess between which bounds a rank lies.
_SAMPLE = 1_024
#: How many standard deviations the guess may be wrong by.
_DEVIATIONS = 4
#: No more than this share of the values may lie between the bounds: more would be as slow as partitioning them all.
_MOST = 4


@njit(cache=True, nogil=True, error_model="numpy")
def ranked_pair(values, low):  # type: ignore[no-untyped-def]
    """The values at rank `low`, counted from 0, and at the rank behind it, or at the last rank. None may be NaN."""
    if len(values) >= _MANY:
        near, rank = _near(values, low)
        if rank >= 0:
            return _partitioned(near, rank)
    return _partitioned(values, low)


@njit(cache=True, nogil=True, error_model="numpy")
def _partitioned(values, low):  # type: ignore[no-untyped-def]
    parted = np.partition(values, low)
    high = low
    for j in range(low + 1, len(parted)):
        if high == low or parted[j] < parted[high]:
            high = j
    return parted[low], parted[high]


@njit(cache=True, nogil=True, error_model="numpy")
def _near(values, low):  # type: ignore[no-untyped-def]
    """The values between bounds that most likely enclose both ranks, and the rank among them; -1: they do not.

    One pass with two comparisons for each value: partitioning takes several, most of which the processor guesses wrong.
    """
    n = len(values)
    stride = n // _SAMPLE
    sample = np.sort(values[: stride * _SAMPLE : stride])
    share = low / n
    middle = int(share * _SAMPLE)
    margin = int(_DEVIATIONS * math.sqrt(_SAMPLE * share * (1 - share))) + _DEVIATIONS
    least = sample[middle - margin] if middle - margin >= 0 else -math.inf
    most = sample[middle + margin] if middle + margin < _SAMPLE else math.inf
    near = np.empty(n // _MOST + 1, np.float64)
    count = below = 0
    for value in values:
        near[min(count, n // _MOST)] = value
        count += (value >= least) & (value <= most)
        below += value < least
    encloses = below <= low and (low + 1 < below + count or below + count == n)
    return near[:count], low - below if encloses and count < len(near) else -1
