"""Many histograms as one matrix, for those that share a layout: the fast way for rates and sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lakerunner.query.promql.eval.kernels_histogram import (
    BUCKETS,
    COUNT,
    SUM,
    ZERO,
    extrapolated_rows,
    find_resets,
    sums,
)
from lakerunner.query.promql.histogram import Floats, Histogram, Ints, ResetHint
from lakerunner.query.promql.histogram_column import ColumnHistograms

if TYPE_CHECKING:
    from lakerunner.query.promql.eval.ranges import RangeVector

#: Buckets beyond this in the union of a series' indexes are more likely sparse than worth a matrix.
_MAX_BUCKETS = 4_096


@dataclass(slots=True)
class Dense:
    """Row i is histogram i: count, sum, zero count, positive buckets, negative buckets."""

    rows: Floats
    pos_index: Ints
    neg_index: Ints
    template: Histogram

    def histogram(self, row: Floats, hint: ResetHint) -> Histogram:
        """A histogram from a row, without its empty buckets."""
        split = BUCKETS + len(self.pos_index)
        pos, neg = row[BUCKETS:split], row[split:]
        keep_pos, keep_neg = pos != 0, neg != 0
        return replace(
            self.template,
            count=float(row[COUNT]),
            sum=float(row[SUM]),
            zero_count=float(row[ZERO]),
            pos_index=self.pos_index[keep_pos],
            pos_count=pos[keep_pos],
            neg_index=self.neg_index[keep_neg],
            neg_count=neg[keep_neg],
            hint=hint,
        )


def dense(histograms: Sequence[Histogram]) -> Dense | None:
    """The matrix; None where the layouts differ in more than which buckets are there."""
    first = histograms[0]
    layout = (first.schema, first.zero_threshold, first.bounds)
    if any((h.schema, h.zero_threshold, h.bounds) != layout for h in histograms):
        return None
    pos_index = _union([h.pos_index for h in histograms])
    neg_index = _union([h.neg_index for h in histograms])
    if len(pos_index) + len(neg_index) > _MAX_BUCKETS:
        return None
    rows = np.zeros((len(histograms), BUCKETS + len(pos_index) + len(neg_index)))
    rows[:, COUNT] = [h.count for h in histograms]
    rows[:, SUM] = [h.sum for h in histograms]
    rows[:, ZERO] = [h.zero_count for h in histograms]
    split = BUCKETS + len(pos_index)
    _scatter(rows[:, BUCKETS:split], pos_index, [h.pos_index for h in histograms], [h.pos_count for h in histograms])
    _scatter(rows[:, split:], neg_index, [h.neg_index for h in histograms], [h.neg_count for h in histograms])
    return Dense(rows, pos_index, neg_index, first)


def _union(parts: list[Ints]) -> Ints:
    first = parts[0].tobytes()
    if all(part.tobytes() == first for part in parts):
        return parts[0]
    return np.unique(np.concatenate(parts))


def _scatter(target: Floats, index: Ints, indexes: list[Ints], counts: list[Floats]) -> None:
    lengths = [len(part) for part in indexes]
    if not sum(lengths):
        return
    row = np.repeat(np.arange(len(indexes)), lengths)
    target[row, np.searchsorted(index, np.concatenate(indexes))] = np.concatenate(counts)


def dense_column(histograms: ColumnHistograms) -> Dense | None:
    """As `dense`, straight from a column whose rows follow each other: no histogram is made."""
    column, rows = histograms.column, histograms.rows
    first, last = int(rows[0]), int(rows[-1]) + 1
    if last - first != len(rows):
        return dense(histograms)
    span = slice(first, last)
    bounds_offsets = column.bounds_offsets[first : last + 1]
    bounds = _rectangle(bounds_offsets, column.bounds[bounds_offsets[0] : bounds_offsets[-1]])
    uniform = (column.schema[span] == column.schema[first]).all() and bounds is not None and _rows_equal(bounds)
    if not uniform or not (column.zero_threshold[span] == column.zero_threshold[first]).all():
        return None
    pos = _side(column.pos_offsets[first : last + 1], column.pos_index, column.pos_count)
    neg = _side(column.neg_offsets[first : last + 1], column.neg_index, column.neg_count)
    if pos[1].shape[1] + neg[1].shape[1] > _MAX_BUCKETS:
        return None
    head = np.stack([column.count[span], column.sum[span], column.zero_count[span]], axis=1)
    return Dense(np.concatenate([head, pos[1], neg[1]], axis=1), pos[0], neg[0], column.at(first))


def _rectangle(offsets: Ints, values: Floats) -> Floats | None:
    """Pieces of equal length as the rows of a matrix."""
    lengths = np.diff(offsets)
    if not (lengths == lengths[0]).all():
        return None
    return values.reshape(len(lengths), int(lengths[0]))


def _rows_equal(matrix: Floats | Ints) -> bool:
    return bool((matrix == matrix[0]).all())


def _side(offsets: Ints, index: Ints, count: Floats) -> tuple[Ints, Floats]:
    """The buckets of one sign: the union of the indexes, and the counts over it."""
    here = slice(offsets[0], offsets[-1])
    index, count = index[here], count[here]
    lengths = np.diff(offsets)
    if (lengths == lengths[0]).all():
        indexes = index.reshape(len(lengths), int(lengths[0]))
        if (indexes == indexes[0]).all():
            return indexes[0], count.reshape(indexes.shape)
    union = np.unique(index)
    matrix = np.zeros((len(lengths), len(union)))
    matrix[np.repeat(np.arange(len(lengths)), lengths), np.searchsorted(union, index)] = count
    return union, matrix


def dense_sum(histograms: Sequence[Histogram], hint: ResetHint, mean: bool) -> Histogram | None:
    """Sum or mean; None where it must be done one by one: different layouts, or an overflow on the way."""
    matrix = dense(histograms)
    if matrix is None:
        return None
    with np.errstate(all="ignore"):
        total, error = sums(matrix.rows)
        if np.isinf(total).any():
            return None
        if not mean:
            return matrix.histogram(total + error, hint)
        number = float(len(histograms))
        return matrix.histogram(total / number + error / number, hint)


def _hints(histograms: Sequence[Histogram]) -> Ints:
    if isinstance(histograms, ColumnHistograms):
        return histograms.column.hint[histograms.rows].astype(np.int64)
    return np.array([h.hint for h in histograms], dtype=np.int64)


def dense_rates(
    vector: RangeVector, row: int, function: str, begin: Ints, end: Ints
) -> tuple[list[tuple[int, Histogram]], int] | None:
    """The rates of one series at every step, and in how many of their windows start timestamps overlap.

    None where the series needs the careful way: mixed layouts, or kinds that ask for a warning.
    """
    points = vector.samples.hist_points
    here = slice(points.offsets[row], points.offsets[row + 1])
    histograms = vector.samples.hists[here]
    counter = function != "delta"
    hints = _hints(histograms)
    gauges = hints == ResetHint.GAUGE
    if gauges.any() if counter else not gauges.all():
        return None
    matrix = dense_column(histograms) if isinstance(histograms, ColumnHistograms) else dense(histograms)
    if matrix is None:
        return None
    ts, starts = points.ts[here], points.starts[here]
    reset, overlap = np.zeros(len(ts), dtype=bool), np.zeros(len(ts), dtype=bool)
    find_resets(matrix.rows, hints, ts, starts, counter, reset, overlap)
    base = int(points.offsets[row])
    out = np.zeros((len(begin), matrix.rows.shape[1]))
    ok = np.zeros(len(begin), dtype=bool)
    extrapolated_rows(
        matrix.rows, reset, begin - base, end - base, ts, starts, vector.after, vector.until,
        counter, function == "rate", vector.range_ms / 1000, out, ok,
    )  # fmt: skip
    alone = (end - begin) == 1
    made = []
    for step in ok.nonzero()[0].tolist():
        # A single sample, counted from its own start, is the sample itself.
        hint = ResetHint(int(hints[begin[step] - base])) if alone[step] else ResetHint.GAUGE
        made.append((step, matrix.histogram(out[step], hint)))
    overlapping = overlap.nonzero()[0] + base
    inside = sum(((overlapping > first) & (overlapping < last)).any() for first, last in zip(begin, end, strict=True))
    return made, int(inside)
