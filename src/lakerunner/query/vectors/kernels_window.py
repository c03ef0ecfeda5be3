"""Compiled loops that find samples: those in the window of every step, and the latest one at every step."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from lakerunner.query.series.histograms.histogram import Ints


@njit(cache=True, nogil=True, error_model="numpy")
def window_bounds(offsets, ts, after, until, begin, end):  # type: ignore[no-untyped-def]
    """Find the samples in (after[s], until[s]] of every series i: begin[i, s] up to end[i, s]. Steps ascend."""
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
    """The index of series i's last sample at time at[s]; -1 if it is too old or a stale marker."""
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
    """As `latest_index`, but writes the sample's value. `bits` are the values reinterpreted as integers."""
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
    """Let every window begin with the last sample at or before after[s].

    The given windows reach back beyond after[s]. A window without a sample later than after[s] becomes empty.
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
    """Mark the first sample of every window that begins after the last sample read for the window before.

    The last sample read for a window is the first one at or after its end.
    """
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
