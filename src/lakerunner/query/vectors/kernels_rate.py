"""Compiled loops over counters: rate, increase, delta, irate, idelta, resets, and their extended forms."""

from __future__ import annotations

from numba import njit

from lakerunner.model.samples import is_start_reset


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def window_factor(  # type: ignore[no-untyped-def]
    first_ms, last_ms, pairs, start_ms, after_ms, until_ms, counter, increase, first_value
):
    """The factor that extrapolates the increase between the first and the last sample to the window.

    Extrapolates to the window's edge if a sample can be expected near it, else by half the average gap. A known start
    of the counter (not 0) counts as a sample of value zero: nothing is extrapolated to the left. A counter is never
    extrapolated below zero.
    """
    sampled = (last_ms - first_ms) / 1000
    between = sampled / pairs if pairs else 0.0
    threshold = between * 1.1
    to_start = 0.0
    if start_ms:
        sampled = (last_ms - start_ms) / 1000
    else:
        to_start = (first_ms - after_ms) / 1000
        if to_start >= threshold:
            to_start = between / 2
        if counter and increase > 0 and first_value >= 0:
            to_zero = sampled * (first_value / increase)
            if to_zero < to_start:
                to_start = to_zero
    to_end = (until_ms - last_ms) / 1000
    if to_end >= threshold:
        to_end = between / 2
    return (sampled + to_start + to_end) / sampled if sampled else 1.0


@njit(cache=True, nogil=True, error_model="numpy")
def _gained(values, first, last):  # type: ignore[no-untyped-def]
    """The increase of a counter from one sample to another, if only falling values reveal its resets."""
    result = values[last] - values[first]
    for j in range(first + 1, last + 1):
        if values[j] < values[j - 1]:
            result += values[j - 1]
    return result


@njit(cache=True, nogil=True, error_model="numpy")
def extrapolated_plain(  # type: ignore[no-untyped-def]
    offsets, ts, values, after, until, counter, per_second, range_s, out, ok
):
    """As `extrapolated`, without start timestamps: the usual case.

    A separate loop, because it takes two thirds of the other's time and needs no array of starts.
    """
    for i in range(len(offsets) - 1):
        begin, stop = offsets[i], offsets[i + 1]
        lo, hi = begin, begin
        latest_reset = -1
        for s in range(len(after)):
            while lo < stop and ts[lo] <= after[s]:
                lo += 1
            while hi < stop and ts[hi] <= until[s]:
                if hi > begin and values[hi] < values[hi - 1]:
                    latest_reset = hi
                hi += 1
            if hi - lo < 2:
                continue
            first, last = lo, hi - 1
            result = values[last] - values[first]
            if counter and latest_reset > first:
                result = _gained(values, first, last)
            factor = window_factor(
                ts[first], ts[last], last - first, 0, after[s], until[s], counter, result, values[first]
            )
            if per_second:
                factor /= range_s
            out[i, s] = result * factor
            ok[i, s] = True


@njit(cache=True, nogil=True, error_model="numpy")
def extrapolated(  # type: ignore[no-untyped-def]
    offsets, ts, values, starts, after, until, counter, per_second, range_s, out, ok, overlap
):
    """rate (counter, per_second), increase (counter) and delta over the windows (after[s], until[s]], which ascend.

    Windows only move forward, so that every pair of samples is visited once: windows without a reset cost no more.
    """
    for i in range(len(offsets) - 1):
        begin, stop = offsets[i], offsets[i + 1]
        lo, hi = begin, begin
        latest_reset, latest_overlap = -1, -1
        for s in range(len(after)):
            while lo < stop and ts[lo] <= after[s]:
                lo += 1
            while hi < stop and ts[hi] <= until[s]:
                if counter and hi > begin:
                    p = hi - 1
                    if values[hi] < values[p] or is_start_reset(starts[p], ts[p], starts[hi], ts[hi]):
                        latest_reset = hi
                    if starts[hi] != 0 and starts[hi] < ts[p] and starts[hi] != starts[p]:
                        latest_overlap = hi
                hi += 1
            if lo >= hi:
                continue
            first, last = lo, hi - 1
            result = values[last] - values[first]
            if latest_overlap > first:
                overlap[i] += 1
            if latest_reset > first:
                for j in range(first + 1, hi):
                    p = j - 1
                    if values[j] < values[p] or is_start_reset(starts[p], ts[p], starts[j], ts[j]):
                        result += values[p]
            known_start = counter and starts[first] != 0 and starts[first] > after[s] and starts[first] < ts[first]
            if last == first and not known_start:
                continue
            start = starts[first] if known_start else 0
            if known_start:
                result += values[first]
            factor = window_factor(
                ts[first], ts[last], last - first, start, after[s], until[s], counter, result, values[first]
            )
            if per_second:
                factor /= range_s
            out[i, s] = result * factor
            ok[i, s] = True


@njit(cache=True, nogil=True, error_model="numpy")
def last_two(begin, end, ts, values, starts, counter, out, ok):  # type: ignore[no-untyped-def]
    """irate (counter) and idelta."""
    for i in range(begin.shape[0]):
        for s in range(begin.shape[1]):
            j = end[i, s] - 1
            p = j - 1
            ok[i, s] = False
            if p < begin[i, s] or ts[j] == ts[p]:
                continue
            result = values[j]
            if not (counter and (values[j] < values[p] or is_start_reset(starts[p], ts[p], starts[j], ts[j]))):
                result = values[j] - values[p]
            if counter:
                result /= (ts[j] - ts[p]) / 1000
            out[i, s] = result
            ok[i, s] = True


@njit(cache=True, nogil=True, error_model="numpy")
def count_resets(begin, end, ts, values, starts, out, ok):  # type: ignore[no-untyped-def]
    for i in range(begin.shape[0]):
        for s in range(begin.shape[1]):
            lo, hi = begin[i, s], end[i, s]
            number = 0
            for j in range(lo + 1, hi):
                p = j - 1
                if values[j] < values[p] or is_start_reset(starts[p], ts[p], starts[j], ts[j]):
                    number += 1
            out[i, s] = number
            ok[i, s] = hi > lo


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _between(ts, values, p, j, at, counter):  # type: ignore[no-untyped-def]
    """Interpolate between two samples. After a reset, a counter rises from zero."""
    before = values[p]
    if counter and values[j] < before:
        before = 0.0
    return before + (values[j] - before) * (at - ts[p]) / (ts[j] - ts[p])


@njit(cache=True, nogil=True, error_model="numpy")
def extended(  # type: ignore[no-untyped-def]
    begin, end, ts, values, after, until, smoothed, counter, per_second, range_s, out, ok
):
    """rate, increase and delta without extrapolation.

    Anchored: from the sample at or before the window's start. Smoothed: between values interpolated at both edges. The
    sample ranges `begin` to `end` extend beyond the window accordingly.
    """
    for i in range(begin.shape[0]):
        for s in range(begin.shape[1]):
            lo, hi = begin[i, s], end[i, s]
            ok[i, s] = False
            if lo >= hi:
                continue
            last = hi - 1
            first = lo
            while first < last and ts[first] <= after[s]:
                first += 1
            first = max(lo, first - 1)
            if smoothed:
                k = lo
                while k < last and ts[k] < until[s]:
                    k += 1
                last = k
            if ts[last] <= after[s] or (smoothed and ts[first] > until[s]):
                continue
            left = values[first]
            if smoothed and ts[first] < after[s]:
                left = _between(ts, values, first, first + 1, after[s], counter)
            right = values[last]
            if smoothed and last > lo and ts[last] > until[s]:
                right = _between(ts, values, last - 1, last, until[s], counter)
            result = right - left
            if counter:
                inner_first = first + 1 if ts[first] <= after[s] else first
                inner_last = last - 1 if ts[last] >= until[s] else last
                previous, correction = left, 0.0
                for j in range(inner_first, inner_last + 1):
                    if values[j] < previous:
                        correction += previous
                    previous = values[j]
                if right < previous:
                    correction += previous
                result += correction
            if per_second:
                result /= range_s
            out[i, s] = result
            ok[i, s] = True


@njit(cache=True, nogil=True, error_model="numpy")
def smoothed_at(offsets, ts, values, at, lookback_ms, out, ok):  # type: ignore[no-untyped-def]
    """The value of a smoothed selector: interpolated around the time, or else the last value carried forward."""
    for i in range(len(offsets) - 1):
        last = offsets[i + 1]
        hi = offsets[i]
        for s in range(len(at)):
            while hi < last and ts[hi] < at[s]:
                hi += 1
            ok[i, s] = False
            has_next = hi < last and ts[hi] <= at[s] + lookback_ms
            p = hi - 1
            has_previous = p >= offsets[i] and ts[p] > at[s] - lookback_ms
            if has_next and ts[hi] == at[s]:
                out[i, s] = values[hi]
                ok[i, s] = True
            elif has_previous and has_next:
                out[i, s] = _between(ts, values, p, hi, at[s], False)
                ok[i, s] = True
            elif has_previous:
                out[i, s] = values[p]
                ok[i, s] = True
