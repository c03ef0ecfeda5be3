"""Compiled loops that find samples: the window of every step, the latest sample at every step."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from lakerunner.query.series.histograms.histogram import Ints


@njit(cache=True, nogil=True, error_model="numpy")
def window_bounds(offsets, ts, after, until, begin, end):  # type: ignore[no-untyped-def]
    """For series i and step s, the samples in (after[s], until[s]] are begin[i, s] to end[i, s]. Steps ascend."""
    for i in range(len(offsets) - 1):
        last = offsets[i + 1]
        lo = offsets[i]
        hi = offsets[i]
        for s in range(len(after)):
            while lo < last and ts[lo] <= after[s]:
                lo += 1
            if hi < lo:
                hi = lo
            while hi < last and ts[hi] <= until[s]:
                hi += 1
            begin[i, s] = lo
            end[i, s] = hi


@njit(cache=True, nogil=True, error_model="numpy")
def latest_index(offsets, ts, stale, at, lookback_ms, out):  # type: ignore[no-untyped-def]
    """The sample that series i shows at time at[s]: the last one, unless it is too old or says the series ended."""
    for i in range(len(offsets) - 1):
        last = offsets[i + 1]
        hi = offsets[i]
        for s in range(len(at)):
            while hi < last and ts[hi] <= at[s]:
                hi += 1
            j = hi - 1
            if j >= offsets[i] and ts[j] > at[s] - lookback_ms and not stale[j]:
                out[i, s] = j
            else:
                out[i, s] = -1


@njit(cache=True, nogil=True, error_model="numpy")
def latest_values(offsets, ts, values, bits, stale_bits, at, lookback_ms, out, ok):  # type: ignore[no-untyped-def]
    """The value that series i shows at time at[s], as by `latest_index`. `bits` are the values seen as integers."""
    for i in range(len(offsets) - 1):
        first, last = offsets[i], offsets[i + 1]
        hi = first
        for s in range(len(at)):
            while hi < last and ts[hi] <= at[s]:
                hi += 1
            j = hi - 1
            if j >= first and ts[j] > at[s] - lookback_ms and bits[j] != stale_bits:
                out[i, s] = values[j]
                ok[i, s] = True
            else:
                out[i, s] = 0.0
                ok[i, s] = False


@njit(cache=True, nogil=True, error_model="numpy")
def anchored_begin(ts, after, begin, end):  # type: ignore[no-untyped-def]
    """Move windows that reach back beyond after[s] to begin with the last sample at or before it.

    A window without a sample after after[s] becomes empty.
    """
    for i in range(begin.shape[0]):
        for s in range(begin.shape[1]):
            lo, hi = begin[i, s], end[i, s]
            if lo >= hi or ts[hi - 1] <= after[s]:
                begin[i, s] = hi
                continue
            while lo + 1 < hi and ts[lo + 1] <= after[s]:
                lo += 1
            begin[i, s] = lo


def windows(offsets: Ints, ts: Ints, after: Ints, until: Ints) -> tuple[Ints, Ints]:
    begin = np.empty((len(offsets) - 1, len(after)), dtype=np.int64)
    end = np.empty_like(begin)
    window_bounds(offsets, ts, after, until, begin, end)
    return begin, end


def latest(offsets: Ints, ts: Ints, stale: npt.NDArray[np.bool_], at: Ints, lookback_ms: int) -> Ints:
    out = np.empty((len(offsets) - 1, len(at)), dtype=np.int64)
    latest_index(offsets, ts, stale, at, lookback_ms, out)
    return out


@njit(cache=True, nogil=True, error_model="numpy")
def mark_jumps(offsets, ts, after, until, out):  # type: ignore[no-untyped-def]
    """Set the first samples of windows that begin after the first sample at or beyond the end of the window before."""
    for i in range(len(offsets) - 1):
        stop = offsets[i + 1]
        reached, first = offsets[i], offsets[i]
        for s in range(1, len(after)):
            while reached < stop and ts[reached] < until[s - 1]:
                reached += 1
            if reached == stop:
                break
            if after[s] > ts[reached]:
                while first < stop and ts[first] < after[s]:
                    first += 1
                if first < stop:
                    out[first] = True
