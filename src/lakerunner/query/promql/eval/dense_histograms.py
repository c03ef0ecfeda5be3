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
    first = parts[0]
    if all(part is first or np.array_equal(part, first) for part in parts):
        return first
    return np.unique(np.concatenate(parts))


def _scatter(target: Floats, index: Ints, indexes: list[Ints], counts: list[Floats]) -> None:
    lengths = [len(part) for part in indexes]
    if not sum(lengths):
        return
    row = np.repeat(np.arange(len(indexes)), lengths)
    target[row, np.searchsorted(index, np.concatenate(indexes))] = np.concatenate(counts)


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


def dense_rates(
    vector: RangeVector, row: int, function: str, begin: Ints, end: Ints
) -> tuple[list[tuple[int, Histogram]], bool] | None:
    """The rates of one series at every step, and whether start timestamps overlap.

    None where the series needs the careful way: mixed layouts, or kinds that ask for a warning.
    """
    points = vector.samples.hist_points
    here = slice(points.offsets[row], points.offsets[row + 1])
    histograms = vector.samples.hists[here]
    counter = function != "delta"
    hints = np.array([h.hint for h in histograms], dtype=np.int64)
    gauges = hints == ResetHint.GAUGE
    if gauges.any() if counter else not gauges.all():
        return None
    matrix = dense(histograms)
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
    made = [(step, matrix.histogram(out[step], ResetHint.GAUGE)) for step in ok.nonzero()[0].tolist()]
    overlapping = overlap.nonzero()[0] + base
    inside = any(((overlapping > first) & (overlapping < last)).any() for first, last in zip(begin, end, strict=True))
    return made, bool(len(overlapping)) and inside
