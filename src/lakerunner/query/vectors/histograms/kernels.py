"""Compiled loops over columns of native histograms: rates, sums, resets. `c` is always a column's `Arrays`.

They handle histograms of equal layout, whatever buckets are populated. They mark the others in `skipped`, and callers
do those one by one.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from lakerunner.model.samples import is_start_reset, neumaier
from lakerunner.query.vectors.kernels_rate import window_factor

#: The columns of a matrix of histograms; buckets begin at `BUCKETS`.
COUNT, SUM, ZERO, BUCKETS = range(4)
#: Distinct buckets of one series. With more, they are probably too sparse for a matrix.
_MAX_BUCKETS = 4_096
#: Indexes from the lowest to the highest bucket: all indexes of the finest schema.
_MAX_REACH = 1 << 20
_UNKNOWN, _RESET, _NOT_RESET, _GAUGE = range(4)


@njit(cache=True, nogil=True, error_model="numpy")
def _same_layout(c, a, b):  # type: ignore[no-untyped-def]
    if c.schema[a] != c.schema[b] or c.zero_threshold[a] != c.zero_threshold[b]:
        return False
    first, other = c.bounds_offsets[a], c.bounds_offsets[b]
    size = c.bounds_offsets[a + 1] - first
    if c.bounds_offsets[b + 1] - other != size:
        return False
    same = True
    for k in range(size):
        same &= c.bounds[first + k] == c.bounds[other + k]
    return same


@njit(cache=True, nogil=True, error_model="numpy")
def _all_same_layout(c, rows):  # type: ignore[no-untyped-def]
    same = True
    for i in range(1, len(rows)):
        same = same and _same_layout(c, rows[0], rows[i])
    return same


@njit(cache=True, nogil=True, error_model="numpy")
def _index_range(offsets, index, rows):  # type: ignore[no-untyped-def]
    """The lowest bucket index of the rows, and the number of indexes from it to the highest."""
    low, high = 0, -1
    for row in rows:
        begin, end = offsets[row], offsets[row + 1]
        if begin < end:
            if low > high:
                low, high = index[begin], index[end - 1]
            low, high = min(low, index[begin]), max(high, index[end - 1])
    return low, high - low + 1


@njit(cache=True, nogil=True, error_model="numpy")
def _slots(offsets, index, rows):  # type: ignore[no-untyped-def]
    """The distinct bucket indexes of the rows, the lowest of them, and the slot of every index from the lowest on."""
    low, width = _index_range(offsets, index, rows)
    slot = np.full(min(width, _MAX_REACH), -1, np.int64)
    if width > _MAX_REACH:
        return np.empty(_MAX_BUCKETS + 1, np.int64), low, slot
    for row in rows:
        for k in range(offsets[row], offsets[row + 1]):
            slot[index[k] - low] = 0
    number = 0
    for k in range(width):
        if slot[k] == 0:
            slot[k] = number
            number += 1
    union = np.empty(number, np.int64)
    for k in range(width):
        if slot[k] >= 0:
            union[slot[k]] = k + low
    return union, low, slot


@njit(cache=True, nogil=True, error_model="numpy")
def _matrix(c, rows, pos, neg):  # type: ignore[no-untyped-def]
    """Row i is histogram `rows[i]`: count, sum, zero count, positive buckets, negative buckets."""
    pos_index, pos_low, pos_slot = pos
    neg_index, neg_low, neg_slot = neg
    split = BUCKETS + len(pos_index)
    out = np.zeros((len(rows), split + len(neg_index)))
    for i in range(len(rows)):
        row = rows[i]
        out[i, COUNT], out[i, SUM], out[i, ZERO] = c.observations[row], c.sum[row], c.zero_count[row]
        for k in range(c.pos_offsets[row], c.pos_offsets[row + 1]):
            out[i, BUCKETS + pos_slot[c.pos_index[k] - pos_low]] = c.pos_count[k]
        for k in range(c.neg_offsets[row], c.neg_offsets[row + 1]):
            out[i, split + neg_slot[c.neg_index[k] - neg_low]] = c.neg_count[k]
    return out


@njit(cache=True, nogil=True, error_model="numpy")
def _fell(rows, i):  # type: ignore[no-untyped-def]
    """Whether any count in row i is lower than in the row before. The sum may fall without a reset."""
    fell = rows[i, COUNT] < rows[i - 1, COUNT]
    for k in range(ZERO, rows.shape[1]):
        fell |= rows[i, k] < rows[i - 1, k]
    return fell


@njit(cache=True, nogil=True, error_model="numpy")
def find_resets(rows, hints, ts, starts, counter):  # type: ignore[no-untyped-def]
    """Per row, the resets up to it, and the start timestamps up to it that overlap with the sample before."""
    resets, overlaps = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    for i in range(1, len(rows)):
        p = i - 1
        resets[i], overlaps[i] = resets[p], overlaps[p]
        if not counter:
            continue
        if starts[i] != 0 and starts[i] < ts[p] and starts[i] != starts[p]:
            overlaps[i] += 1
        if (
            is_start_reset(starts[p], ts[p], starts[i], ts[i])
            or hints[i] == _RESET
            or (hints[i] != _NOT_RESET and _fell(rows, i))
        ):
            resets[i] += 1
    return resets, overlaps


@njit(cache=True, nogil=True, error_model="numpy")
def extrapolated_row(  # type: ignore[no-untyped-def]
    rows, resets, lo, hi, pairs, ts, starts, after, until, counter, per_second, range_s, out
):
    """Compute rate, increase or delta over one window of one series. Returns whether there is a result.

    `pairs` is the number of samples without the first. `resets[i]` is the number of resets up to row i: windows without
    a reset cost no more.
    """
    if lo >= hi:
        return False
    first, last = lo, hi - 1
    known_start = counter and starts[first] != 0 and starts[first] > after and starts[first] < ts[first]
    if first == last and not known_start:
        return False
    if first == last:
        out[:] = 0.0
    elif resets[first + 1] > resets[first]:
        # A reset after the first sample: the first sample does not count at all.
        out[:] = rows[last]
    else:
        for k in range(len(out)):
            out[k] = rows[last, k] - rows[first, k]
    if last > first and resets[last] > resets[first + 1]:
        for j in range(first + 2, hi):
            if resets[j] > resets[j - 1]:
                for k in range(len(out)):
                    out[k] += rows[j - 1, k]
    start = starts[first] if known_start else 0
    if known_start:
        for k in range(len(out)):
            out[k] += rows[first, k]
    factor = window_factor(ts[first], ts[last], pairs, start, after, until, counter, out[COUNT], rows[first, COUNT])
    if per_second:
        factor /= range_s
    for k in range(len(out)):
        out[k] *= factor
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def _grown(array, size):  # type: ignore[no-untyped-def]
    """The array if it has at least `size` elements, else a larger copy."""
    if size <= len(array):
        return array
    out = np.empty(max(size, 2 * len(array)), array.dtype)
    out[: len(array)] = array
    return out


@njit(cache=True, nogil=True, error_model="numpy")
def rates(  # type: ignore[no-untyped-def]
    c,
    rows,
    offsets,
    ts,
    starts,
    counted,
    begin,
    end,
    after,
    until,
    counter,
    per_second,
    range_s,
    skipped,
    overlapping,
    out_row,
    pos_index,
    pos_count,
):
    """rate, increase and delta of many series of histograms. Series i has the samples `rows[offsets[i]:...]`.

    Series in `skipped` are left out, and the kernel adds those that it cannot handle. Returns the results' heads
    (count, sum, zero count), hints, the row whose layout each has, and offsets, indexes and counts of the buckets of
    both signs. `out_row` is the result of every cell. `pos_index` and `pos_count` are memory for the positive buckets,
    replaced by larger arrays only if they are too small. `counted` is empty unless rows of tiers are among the samples:
    then it is the number of samples up to each.
    """
    cells = 0
    for i in range(len(skipped)):
        for s in range(begin.shape[1]):
            if not skipped[i] and end[i, s] > begin[i, s]:
                cells += 1
    head, hint, layout_row = np.empty((cells, BUCKETS)), np.empty(cells, np.int8), np.empty(cells, np.int64)
    pos_offsets, neg_offsets = np.zeros(cells + 1, np.int64), np.zeros(cells + 1, np.int64)
    neg_index, neg_count = np.empty(64, np.int64), np.empty(64)
    made = 0
    for i in range(len(skipped)):
        lo, hi = offsets[i], offsets[i + 1]
        if skipped[i] or lo == hi:
            continue
        own = rows[lo:hi]
        hints = c.hint[own]
        gauges = np.sum(hints == _GAUGE)
        skipped[i] = not _all_same_layout(c, own) or (gauges > 0 if counter else gauges < len(own))
        if skipped[i]:
            continue
        pos = _slots(c.pos_offsets, c.pos_index, own)
        neg = _slots(c.neg_offsets, c.neg_index, own)
        skipped[i] = len(pos[0]) + len(neg[0]) > _MAX_BUCKETS
        if skipped[i]:
            continue
        matrix = _matrix(c, own, pos, neg)
        own_ts, own_starts = ts[lo:hi], starts[lo:hi]
        resets, overlaps = find_resets(matrix, hints, own_ts, own_starts, counter)
        out = np.empty(matrix.shape[1])
        split = BUCKETS + len(pos[0])
        pos_out, neg_out = out[BUCKETS:split], out[split:]
        pos_union, neg_union = pos[0], neg[0]
        size = pos_offsets[made] + len(pos_union) * begin.shape[1]
        pos_index, pos_count = _grown(pos_index, size), _grown(pos_count, size)
        size = neg_offsets[made] + len(neg_union) * begin.shape[1]
        neg_index, neg_count = _grown(neg_index, size), _grown(neg_count, size)
        for s in range(begin.shape[1]):
            first, last = begin[i, s] - lo, end[i, s] - lo
            if last > first and overlaps[last - 1] > overlaps[first]:
                overlapping[i] += 1
            pairs = last - first - 1
            if len(counted) and last > first:
                before = counted[lo + first - 1] if lo + first else 0
                pairs = counted[lo + last - 1] - before - 1
            if not extrapolated_row(
                matrix, resets, first, last, pairs, own_ts, own_starts, after[s], until[s], counter, per_second,
                range_s, out,
            ):  # fmt: skip
                continue
            for k in range(BUCKETS):
                head[made, k] = out[k]
            # A single sample with a known start is its own result.
            hint[made] = hints[first] if last - first == 1 else _GAUGE
            layout_row[made] = own[0]
            pos_used, neg_used = pos_offsets[made], neg_offsets[made]
            for k in range(len(pos_union)):
                if pos_out[k] != 0:
                    pos_index[pos_used], pos_count[pos_used] = pos_union[k], pos_out[k]
                    pos_used += 1
            for k in range(len(neg_union)):
                if neg_out[k] != 0:
                    neg_index[neg_used], neg_count[neg_used] = neg_union[k], neg_out[k]
                    neg_used += 1
            pos_offsets[made + 1], neg_offsets[made + 1] = pos_used, neg_used
            out_row[i, s] = made
            made += 1
    return (
        head[:made], hint[:made], layout_row[:made],
        pos_offsets[: made + 1], pos_index[: pos_offsets[made]], pos_count[: pos_offsets[made]],
        neg_offsets[: made + 1], neg_index[: neg_offsets[made]], neg_count[: neg_offsets[made]],
    )  # fmt: skip


@njit(cache=True, nogil=True, error_model="numpy")
def members(row, held, group, groups):  # type: ignore[no-untyped-def]
    """The histograms of every group g at every step s, and their series. Cell g * steps + s; in series order."""
    steps = row.shape[1]
    offsets = np.zeros(groups * steps + 1, np.int64)
    for i in range(row.shape[0]):
        for s in range(steps):
            if held[i, s]:
                offsets[group[i] * steps + s + 1] += 1
    for k in range(1, len(offsets)):
        offsets[k] += offsets[k - 1]
    out, series = np.empty(offsets[-1], np.int64), np.empty(offsets[-1], np.int64)
    filled = offsets[:-1].copy()
    for i in range(row.shape[0]):
        for s in range(steps):
            if held[i, s]:
                cell = group[i] * steps + s
                out[filled[cell]], series[filled[cell]] = row[i, s], i
                filled[cell] += 1
    return offsets, out, series


@njit(cache=True, nogil=True, error_model="numpy")
def _joined_hints(hint, rows):  # type: ignore[no-untyped-def]
    """The hint of the sum, and whether "reset" and "not reset" both occur."""
    out = hint[rows[0]]
    seen_reset, seen_not_reset = False, False
    for row in rows:
        other = hint[row]
        seen_reset |= other == _RESET
        seen_not_reset |= other == _NOT_RESET
        if other != out:
            out = _GAUGE if out == _GAUGE or other == _GAUGE else _UNKNOWN
    return out, seen_reset and seen_not_reset


@njit(cache=True, nogil=True, error_model="numpy")
def _sum_buckets(offsets, index, count, rows, low, total, error):  # type: ignore[no-untyped-def]
    """Compensated sums of the rows' buckets, in row order."""
    total[:] = 0.0
    error[:] = 0.0
    for row in rows:
        for k in range(offsets[row], offsets[row + 1]):
            at = index[k] - low
            total[at], error[at] = neumaier(count[k], total[at], error[at])


@njit(cache=True, nogil=True, error_model="numpy")
def _finish_sums(total, error, number):  # type: ignore[no-untyped-def]
    """Turn running sums into sums, or into means if `number` is not 0.

    Returns whether all of them are finite; only the sum of observations may be NaN.
    """
    finite = True
    for k in range(len(total)):
        finite &= math.isfinite(total[k]) or (k == SUM and math.isnan(total[k]))
        total[k] = total[k] / number + error[k] / number if number else total[k] + error[k]
    return finite


@njit(cache=True, nogil=True, error_model="numpy")
def sums(c, rows, begin, end, mean, skipped, collision, out_row):  # type: ignore[no-untyped-def]
    """Sums or means of lists of histograms. List i is `rows[begin[i]:end[i]]`.

    Lists in `skipped` are left out, and the kernel adds those that it cannot handle. `collision` marks lists with
    contradicting hints. Returns the same arrays as `rates`.
    """
    lists = len(skipped)
    head, hint, layout_row = np.empty((lists, BUCKETS)), np.empty(lists, np.int8), np.empty(lists, np.int64)
    pos_offsets, neg_offsets = np.zeros(lists + 1, np.int64), np.zeros(lists + 1, np.int64)
    pos_index, pos_count = np.empty(64, np.int64), np.empty(64)
    neg_index, neg_count = np.empty(64, np.int64), np.empty(64)
    total, error = np.empty(256), np.empty(256)
    made = 0
    for i in range(lists):
        own = rows[begin[i] : end[i]]
        if skipped[i] or not len(own):
            continue
        pos_low, pos_width = _index_range(c.pos_offsets, c.pos_index, own)
        neg_low, neg_width = _index_range(c.neg_offsets, c.neg_index, own)
        split = BUCKETS + pos_width
        skipped[i] = split + neg_width > _MAX_REACH or not _all_same_layout(c, own)
        if skipped[i]:
            continue
        total, error = _grown(total, split + neg_width), _grown(error, split + neg_width)
        total[COUNT], total[SUM], total[ZERO] = (
            c.observations[own[0]],
            c.sum[own[0]],
            c.zero_count[own[0]],
        )
        error[:BUCKETS] = 0.0
        # An overflow shows here only: the sum may end as NaN, and a mean is computed differently from there on.
        overflowed = math.isinf(total[SUM])
        for row in own[1:]:
            total[COUNT], error[COUNT] = neumaier(c.observations[row], total[COUNT], error[COUNT])
            total[SUM], error[SUM] = neumaier(c.sum[row], total[SUM], error[SUM])
            total[ZERO], error[ZERO] = neumaier(c.zero_count[row], total[ZERO], error[ZERO])
            overflowed |= math.isinf(total[SUM])
        width = split + neg_width
        _sum_buckets(c.pos_offsets, c.pos_index, c.pos_count, own, pos_low, total[BUCKETS:split], error[BUCKETS:split])
        _sum_buckets(c.neg_offsets, c.neg_index, c.neg_count, own, neg_low, total[split:width], error[split:width])
        finite = _finish_sums(total[:width], error[:width], float(len(own)) if mean else 0.0)
        skipped[i] = overflowed or not finite
        if skipped[i]:
            continue
        head[made] = total[:BUCKETS]
        hint[made], collision[i] = _joined_hints(c.hint, own)
        layout_row[made] = own[0]
        used = pos_offsets[made]
        pos_index, pos_count = _grown(pos_index, used + pos_width), _grown(pos_count, used + pos_width)
        pos_offsets[made + 1] = _append_populated(pos_low, total[BUCKETS:split], pos_index, pos_count, used)
        used = neg_offsets[made]
        neg_index, neg_count = _grown(neg_index, used + neg_width), _grown(neg_count, used + neg_width)
        neg_offsets[made + 1] = _append_populated(neg_low, total[split:width], neg_index, neg_count, used)
        out_row[i] = made
        made += 1
    return (
        head[:made], hint[:made], layout_row[:made],
        pos_offsets[: made + 1], pos_index[: pos_offsets[made]], pos_count[: pos_offsets[made]],
        neg_offsets[: made + 1], neg_index[: neg_offsets[made]], neg_count[: neg_offsets[made]],
    )  # fmt: skip


@njit(cache=True, nogil=True, error_model="numpy")
def _append_populated(low, counts, out_index, out_count, used):  # type: ignore[no-untyped-def]
    """Append the populated buckets after the first `used` ones. Returns the new number of used ones."""
    for k in range(len(counts)):
        if counts[k] != 0:
            out_index[used], out_count[used] = k + low, counts[k]
            used += 1
    return used


@njit(cache=True, nogil=True, error_model="numpy")
def _shrank(offsets, index, count, now, before):  # type: ignore[no-untyped-def]
    """Whether a populated bucket disappeared or lost observations."""
    k, end = offsets[now], offsets[now + 1]
    for b in range(offsets[before], offsets[before + 1]):
        while k < end and index[k] < index[b]:
            k += 1
        if k < end and index[k] == index[b]:
            if count[k] < count[b]:
                return True
        elif count[b] != 0:
            return True
    return False


@njit(cache=True, nogil=True, error_model="numpy")
def detect_resets(c, rows, offsets, forgets, hint, previous_row):  # type: ignore[no-untyped-def]
    """Replace unknown hints by comparing each histogram with the one before it in the series.

    `forgets[i]`: the histogram before sample i is not known. Where the layout changed, the hint stays as it is, and
    `previous_row[row]` is set to the row to compare with.
    """
    for i in range(len(offsets) - 1):
        previous = -1
        for at in range(offsets[i], offsets[i + 1]):
            row = rows[at]
            if forgets[at]:
                previous = -1
            if row < 0:
                continue
            if previous >= 0 and c.hint[row] == _UNKNOWN:
                if not _same_layout(c, row, previous):
                    previous_row[row] = previous
                elif (
                    c.observations[row] < c.observations[previous]
                    or c.zero_count[row] < c.zero_count[previous]
                    or _shrank(c.pos_offsets, c.pos_index, c.pos_count, row, previous)
                    or _shrank(c.neg_offsets, c.neg_index, c.neg_count, row, previous)
                ):
                    hint[row] = _RESET
                else:
                    hint[row] = _NOT_RESET
            previous = row
