"""Compiled loops over counters: rate, increase, delta, irate, idelta, resets, and their extended forms."""

from __future__ import annotations

from numba import njit


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def is_start_reset(prev_start, prev_time, start, time):  # type: ignore[no-untyped-def]
    """Whether a start timestamp says that the counter began anew after the previous sample.

    A start equal to the previous sample's time is a delta sample, unless the previous one knew no start of its own:
    then it is a cumulative series whose true start is unknown.
    """
    if start == 0 or start >= time or start < prev_time:
        return False
    if start > prev_time:
        return True
    return prev_start != 0 and prev_start < prev_time


@njit(cache=True, nogil=True, error_model="numpy")
def count_oddities(ts, values, starts, resets, overlaps):  # type: ignore[no-untyped-def]
    """Running numbers of resets and of overlapping start timestamps: equal at both ends of a window means none in it.

    Counted across series too, which does no harm: a window never spans two.
    """
    for j in range(1, len(ts)):
        p = j - 1
        reset = values[j] < values[p] or is_start_reset(starts[p], ts[p], starts[j], ts[j])
        overlap = starts[j] != 0 and starts[j] < ts[p] and starts[j] != starts[p]
        resets[j] = resets[p] + (1 if reset else 0)
        overlaps[j] = overlaps[p] + (1 if overlap else 0)


@njit(cache=True, nogil=True, error_model="numpy")
def extrapolated(  # type: ignore[no-untyped-def]
    begin, end, ts, values, starts, resets, overlaps, after, until, counter, per_second, range_s, out, ok, overlap
):
    """rate (counter, per_second), increase (counter) and delta."""
    for i in range(begin.shape[0]):
        for s in range(begin.shape[1]):
            lo, hi = begin[i, s], end[i, s]
            ok[i, s] = False
            if lo >= hi:
                continue
            first, last = lo, hi - 1
            result = values[last] - values[first]
            if counter and resets[first] != resets[last]:
                for j in range(first + 1, hi):
                    if resets[j] != resets[j - 1]:
                        result += values[j - 1]
            if counter and overlaps[first] != overlaps[last]:
                overlap[i] = True
            to_start = (ts[first] - after[s]) / 1000
            to_end = (until[s] - ts[last]) / 1000
            sampled = (ts[last] - ts[first]) / 1000
            between = sampled / (last - first) if last > first else 0.0
            threshold = between * 1.1
            start = starts[first]
            if counter and start != 0 and start > after[s] and start < ts[first]:
                # The counter is known to have been zero at its start: no guess to the left.
                to_start = 0.0
                sampled = (ts[last] - start) / 1000
                result += values[first]
            elif last == first:
                continue
            else:
                if to_start >= threshold:
                    to_start = between / 2
                if counter and result > 0 and values[first] >= 0:
                    # A counter cannot have been below zero.
                    to_zero = sampled * (values[first] / result)
                    if to_zero < to_start:
                        to_start = to_zero
            if to_end >= threshold:
                to_end = between / 2
            factor = 1.0
            if sampled != 0:
                factor = (sampled + to_start + to_end) / sampled
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
    """The value at a time between two samples. After a reset, the counter is taken to rise from zero."""
    before = values[p]
    if counter and values[j] < before:
        before = 0.0
    return before + (values[j] - before) * (at - ts[p]) / (ts[j] - ts[p])


@njit(cache=True, nogil=True, error_model="numpy")
def extended(  # type: ignore[no-untyped-def]
    begin, end, ts, values, after, until, smoothed, counter, per_second, range_s, out, ok
):
    """rate, increase and delta without extrapolation: from the sample at or before the window (anchored), or between
    values interpolated at the window's edges (smoothed). The windows given reach beyond the edges."""
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
    """The value of a smoothed selector: between the samples around the time, or the last one carried forward."""
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
