"""Compiled loops over entries: numbering label sets, counting by interval, sorting by series, rates of counters."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from lakerunner.model.samples import neumaier

#: Odd factors with well mixed bits, for hashing rows of codes.
_FACTOR, _FINISH = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_SHIFT = np.uint64(32)
#: Of the bits of a hash that stand beside a number. The highest one would make it negative.
_TAG_BITS = np.uint64(0x7FFFFFFF)
#: Bytes of a text that are hashed and compared at once.
_WORD = np.uint64(8)


@njit(cache=True, nogil=True)
def number_codes(codes, number_of, count, out):  # type: ignore[no-untyped-def]
    """Number codes in the order of their first use; `number_of[code]` is -1 before. Returns the new count."""
    for i in range(len(codes)):
        number = number_of[codes[i]]
        if number < 0:
            number = count
            number_of[codes[i]] = number
            count += 1
        out[i] = number
    return count


@njit(cache=True, nogil=True)
def number_words(places, codes, number_of, count, out):  # type: ignore[no-untyped-def]
    """Number entries by `codes[place]`, as `number_codes` does. A negative place, of a null, has the last code."""
    for i in range(len(places)):
        place = places[i]
        code = codes[place] if place >= 0 else codes[len(codes) - 1]
        number = number_of[code]
        if number < 0:
            number = count
            number_of[code] = number
            count += 1
        out[i] = number
    return count


@njit(cache=True, nogil=True)
def add_rows(series, counts, first, out):  # type: ignore[no-untyped-def]
    """Add the numbers of each row to those of its series, from the interval `first` on."""
    for row in range(len(series)):
        for interval in range(counts.shape[1]):
            out[series[row], first + interval] += counts[row, interval]


@njit(cache=True, nogil=True)
def count_words(places, codes, number_of, count, series, totals):  # type: ignore[no-untyped-def]
    """Count entries by `codes[place]`, which are numbered as `number_words` does: once per place, not per entry.

    Writes each number with a count, as long as the codes at most. Returns how many of these there are, and the new
    count of numbers.
    """
    counts = np.zeros(len(codes), np.int32)
    for i in range(len(places)):
        place = places[i]
        counts[place if place >= 0 else len(codes) - 1] += 1
    used = 0
    for place in range(len(codes)):
        if counts[place]:
            number = number_of[codes[place]]
            if number < 0:
                number = count
                number_of[codes[place]] = number
                count += 1
            series[used], totals[used] = number, counts[place]
            used += 1
    return used, count


@njit(cache=True, nogil=True)
def add_totals(series, totals, interval, out):  # type: ignore[no-untyped-def]
    """Add numbers of entries of one interval to those of their series."""
    for i in range(len(series)):
        out[series[i], interval] += totals[i]


@njit(cache=True, nogil=True)
def _slot(row, slots):  # type: ignore[no-untyped-def]
    """Where the search for a row of codes begins. `slots` is a power of two."""
    mixed = np.uint64(0)
    for j in range(len(row)):
        mixed = (mixed ^ np.uint64(row[j])) * _FACTOR
        mixed ^= mixed >> _SHIFT
    mixed *= _FINISH
    return np.int64((mixed >> _SHIFT) & np.uint64(slots - 1))


@njit(cache=True, nogil=True)
def number_rows(rows, known, table, count, out):  # type: ignore[no-untyped-def]
    """Number rows of codes in the order of their first use. Returns the new count.

    `known[n]` is the row with number n. `table` is a hash table of numbers, -1 where free, at least twice as large as
    the number of rows will be.
    """
    slots = len(table)
    width = rows.shape[1]
    for i in range(len(rows)):
        at = _slot(rows[i], slots)
        while True:
            number = table[at]
            if number < 0:
                number = count
                table[at] = number
                known[number] = rows[i]
                count += 1
                break
            same = True
            for j in range(width):
                if known[number, j] != rows[i, j]:
                    same = False
                    break
            if same:
                break
            at = (at + 1) & (slots - 1)
        out[i] = number
    return count


@njit(cache=True, nogil=True)
def rehash(known, count, table):  # type: ignore[no-untyped-def]
    """Put the known rows into an empty table."""
    slots = len(table)
    for number in range(count):
        at = _slot(known[number], slots)
        while table[at] >= 0:
            at = (at + 1) & (slots - 1)
        table[at] = number


@njit(cache=True, nogil=True, inline="always")
def _word(data, at):  # type: ignore[no-untyped-def]
    """Eight bytes as a number. With unsigned places the compiler makes one load of it."""
    found = np.uint64(0)
    for i in range(8):
        found |= np.uint64(data[at + np.uint64(i)]) << np.uint64(8 * i)
    return found


@njit(cache=True, nogil=True)
def _text_hash(data, start, length):  # type: ignore[no-untyped-def]
    mixed = length * _FACTOR
    if length < _WORD:
        for i in range(length):
            mixed = (mixed ^ np.uint64(data[start + np.uint64(i)])) * _FACTOR
    else:
        at, last = start, start + length - _WORD
        while at < last:
            mixed = (mixed ^ _word(data, at)) * _FACTOR
            mixed ^= mixed >> _SHIFT
            at += _WORD
        # The last word may overlap the one before it.
        mixed = (mixed ^ _word(data, last)) * _FACTOR
    mixed = (mixed ^ (mixed >> np.uint64(29))) * _FINISH
    return mixed ^ (mixed >> _SHIFT)


@njit(cache=True, nogil=True)
def _same_bytes(one, at, other, start, length):  # type: ignore[no-untyped-def]
    same = True
    if length < _WORD:
        for i in range(length):
            same &= one[at + np.uint64(i)] == other[start + np.uint64(i)]
        return same
    place, last = np.uint64(0), length - _WORD
    while place < last:
        if _word(one, at + place) != _word(other, start + place):
            return False
        place += _WORD
    return _word(one, at + last) == _word(other, start + last)


@njit(cache=True, nogil=True, inline="always")
def _tag(hashed):  # type: ignore[no-untyped-def]
    """The upper bits of a hash, above those of a number of 32 bits."""
    return np.int64((hashed >> _SHIFT) & _TAG_BITS) << np.int64(32)


@njit(cache=True, nogil=True)
def number_texts(data, offsets, known, ends, hashes, table, count, out):  # type: ignore[no-untyped-def]
    """Number texts in the order of their first use. Returns the new count.

    Text n of the known ones ends at `ends[n]` of the bytes `known` and begins where the one before it ends. `known`,
    `ends` and `hashes` have room for all texts; `table` is as for `number_rows`, with a tag beside each number: texts
    that differ rarely have the same one.
    """
    slots = len(table)
    used = np.int64(ends[count - 1]) if count else np.int64(0)
    for i in range(len(out)):
        start, length = np.uint64(offsets[i]), np.uint64(offsets[i + 1] - offsets[i])
        hashed = _text_hash(data, start, length)
        slot, tag = np.int64(hashed & np.uint64(slots - 1)), _tag(hashed)
        while True:
            entry = table[slot]
            number = np.int32(entry)
            if entry < 0:
                number = np.int32(count)
                until = used + np.int64(length)
                known[used:until] = data[offsets[i] : offsets[i + 1]]
                used = until
                ends[number], hashes[number], table[slot] = used, hashed, tag | np.int64(number)
                count += 1
                break
            if entry ^ tag == np.int64(number):
                begin = np.uint64(ends[number - 1]) if number else np.uint64(0)
                if np.uint64(ends[number]) - begin == length and _same_bytes(known, begin, data, start, length):
                    break
            slot = (slot + 1) & (slots - 1)
        out[i] = number
    return count


@njit(cache=True, nogil=True)
def rehash_texts(hashes, count, table):  # type: ignore[no-untyped-def]
    """Fill an empty table with the known texts."""
    slots = len(table)
    for number in range(count):
        slot = np.int64(hashes[number] & np.uint64(slots - 1))
        while table[slot] >= 0:
            slot = (slot + 1) & (slots - 1)
        table[slot] = _tag(hashes[number]) | np.int64(number)


@njit(cache=True, nogil=True)
def intervals_of(times, edges, out):  # type: ignore[no-untyped-def]
    """The interval (edges[j], edges[j + 1]] of every time; -1 outside.

    Neighbours mostly share an interval, so that the search is rarely needed.
    """
    last = len(edges) - 1
    at = 0
    for i in range(len(times)):
        t = times[i]
        if t <= edges[0] or t > edges[last]:
            out[i] = -1
            continue
        if not edges[at] < t <= edges[at + 1]:
            low, high = 0, last
            while high - low > 1:
                middle = (low + high) >> 1
                if edges[middle] < t:
                    low = middle
                else:
                    high = middle
            at = low
        out[i] = at


@njit(cache=True, nogil=True)
def tally(series, intervals, counts):  # type: ignore[no-untyped-def]
    """Count entries by series and interval."""
    for i in range(len(series)):
        if intervals[i] >= 0:
            counts[series[i], intervals[i]] += 1


@njit(cache=True, nogil=True)
def cells_of(series, intervals, number, out):  # type: ignore[no-untyped-def]
    """For every entry, its cell in a matrix of series by `number` intervals; -1 if it lies in no interval."""
    for i in range(len(series)):
        out[i] = np.int64(series[i]) * number + intervals[i] if intervals[i] >= 0 else -1


@njit(cache=True, nogil=True)
def tally_cells(cells, counts):  # type: ignore[no-untyped-def]
    """Count entries by cell. Neighbours are mostly of the same one, whose count need not be stored in between."""
    last, count = np.int64(-1), np.int64(0)
    for cell in cells:
        if cell != last:
            if last >= 0:
                counts[last] += count
            last, count = cell, np.int64(0)
        count += 1
    if last >= 0:
        counts[last] += count


@njit(cache=True, nogil=True)
def put_by_cell(cells, values, places, out):  # type: ignore[no-untyped-def]
    """Put values beside others of their cell; `places` is where the next one of each goes."""
    last, at = np.int64(-1), np.int64(0)
    for i in range(len(cells)):
        cell = cells[i]
        if cell != last:
            if last >= 0:
                places[last] = at
            last, at = cell, places[max(cell, 0)]
        if cell >= 0:
            out[at] = values[i]
            at += 1
    if last >= 0:
        places[last] = at


@njit(cache=True, nogil=True)
def tally_weights(series, intervals, weights, counts, sums):  # type: ignore[no-untyped-def]
    """Count entries, and sum up their weights, by series and interval."""
    for i in range(len(series)):
        if intervals[i] >= 0:
            counts[series[i], intervals[i]] += 1
            sums[series[i], intervals[i]] += weights[i]


@njit(cache=True, nogil=True, error_model="numpy")
def tally_values(series, intervals, values, counts, sums, errors):  # type: ignore[no-untyped-def]
    """Count values, and sum them up, by series and interval; `errors` accumulates what rounding loses."""
    for i in range(len(series)):
        if intervals[i] >= 0:
            n, j = series[i], intervals[i]
            counts[n, j] += 1
            sums[n, j], errors[n, j] = neumaier(values[i], sums[n, j], errors[n, j])


@njit(cache=True, nogil=True, error_model="numpy")
def window_sums(counts, sums, errors, first, last, out, ok):  # type: ignore[no-untyped-def]
    """Sum up the intervals from first[s] up to last[s] of every series, for every step s, one by one.

    A difference of running sums would keep the rounding errors of values that left the window, and infinities.
    """
    for i in range(len(sums)):
        for s in range(len(first)):
            total, error = 0.0, 0.0
            for j in range(first[s], last[s]):
                if counts[i, j]:
                    ok[i, s] = True
                    total, error = neumaier(sums[i, j], total, error)
                    error += errors[i, j]
            out[i, s] = total if math.isinf(total) else total + error


@njit(cache=True, nogil=True)
def window_totals(per_interval, first, last, out):  # type: ignore[no-untyped-def]
    """Sum the intervals from first[s] up to last[s] of every series, for every step s."""
    running = np.zeros(per_interval.shape[1] + 1, per_interval.dtype)
    for i in range(len(per_interval)):
        for j in range(per_interval.shape[1]):
            running[j + 1] = running[j] + per_interval[i, j]
        for s in range(len(first)):
            out[i, s] = running[last[s]] - running[first[s]]


@njit(cache=True, nogil=True)
def _after(values, low, high, bound):  # type: ignore[no-untyped-def]
    """The first place from `low` up to `high` whose value is above the bound. The values ascend."""
    while low < high:
        middle = (low + high) >> 1
        if values[middle] > bound:
            high = middle
        else:
            low = middle + 1
    return low


@njit(cache=True, nogil=True)
def series_in(offsets, times, edges, bare, out):  # type: ignore[no-untyped-def]
    """Which series have a time in an interval (edges[j], edges[j + 1]] that is not bare."""
    for n in range(len(offsets) - 1):
        at, end = _after(times, offsets[n], offsets[n + 1], edges[0]), offsets[n + 1]
        out[n] = False
        while at < end and times[at] <= edges[-1]:
            j = _after(edges, 0, len(edges), times[at] - 1) - 1
            if not bare[j]:
                out[n] = True
                break
            at = _after(times, at, end, edges[j + 1])


@njit(cache=True, nogil=True)
def tally_series(chosen, numbers, offsets, times, edges, bare, counts):  # type: ignore[no-untyped-def]
    """Count the times of the chosen series by interval; `numbers` are their rows in `counts`."""
    for i in range(len(chosen)):
        n = chosen[i]
        at, end = _after(times, offsets[n], offsets[n + 1], edges[0]), offsets[n + 1]
        while at < end and times[at] <= edges[-1]:
            j = _after(edges, 0, len(edges), times[at] - 1) - 1
            until = _after(times, at, end, edges[j + 1])
            if not bare[j]:
                counts[numbers[i], j] += until - at
            at = until


@njit(cache=True, nogil=True)
def times_by_series(series, times, offsets, out):  # type: ignore[no-untyped-def]
    """Sort times by series, then by time. `offsets[n]` is where series n begins."""
    place = offsets[:-1].copy()
    for i in range(len(series)):
        at = place[series[i]]
        place[series[i]] = at + 1
        out[at] = times[i]
    for n in range(len(offsets) - 1):
        begin, end = offsets[n], offsets[n + 1]
        for at in range(begin + 1, end):
            if out[at] < out[at - 1]:
                out[begin:end].sort()
                break


@njit(cache=True, nogil=True)
def by_series(series, times, values, offsets, out_times, out_values):  # type: ignore[no-untyped-def]
    """Sort samples by series, then by time; samples of one instant keep their order.

    `offsets[n]` is where series n begins. Series are mostly in order of time already.
    """
    place = offsets[:-1].copy()
    for i in range(len(series)):
        at = place[series[i]]
        place[series[i]] = at + 1
        out_times[at] = times[i]
        out_values[at] = values[i]
    for number in range(len(offsets) - 1):
        begin, end = offsets[number], offsets[number + 1]
        for at in range(begin + 1, end):
            if out_times[at] < out_times[at - 1]:
                order = np.argsort(out_times[begin:end], kind="mergesort")
                out_times[begin:end] = out_times[begin:end][order]
                out_values[begin:end] = out_values[begin:end][order]
                break


@njit(cache=True, nogil=True, error_model="numpy")
def counter_rate(begin, end, times, values, range_ns, out, ok):  # type: ignore[no-untyped-def]
    """The increase of a counter per second of the range, resets included; 0 for a single sample.

    Loki stretches the increase as Prometheus does, by the time from the first sample to the beginning of the range, but
    takes nanoseconds for milliseconds: a range of one second stretches it by one microsecond.
    """
    range_s = range_ns / 1e9
    for i in range(begin.shape[0]):
        for s in range(begin.shape[1]):
            lo, hi = begin[i, s], end[i, s]
            ok[i, s] = hi > lo
            if hi - lo < 2:
                out[i, s] = 0.0
                continue
            increase = values[hi - 1] - values[lo]
            before = 0.0
            for j in range(lo, hi):
                if values[j] < before:
                    increase += before
                before = values[j]
            sampled_us = (times[hi - 1] - times[lo]) / 1e3
            average_us = sampled_us / (hi - lo - 1)
            stretch_us = range_s
            if increase > 0 and values[lo] >= 0:
                stretch_us = min(stretch_us, sampled_us * (values[lo] / increase))
            near = average_us * 1.1
            whole_us = sampled_us + (stretch_us if stretch_us < near else average_us / 2)
            if near <= 0:
                whole_us += average_us / 2
            out[i, s] = increase * (whole_us / sampled_us / range_s)


def power_of_two(at_least: int) -> int:
    return 1 << max(4, math.ceil(math.log2(max(at_least, 1))))
