"""A range vector as the result itself: the samples of its one window, unchanged."""

from __future__ import annotations

import numpy as np

from lakerunner.model.labels import LabelSet
from lakerunner.query.series.block import SAME_LABELSET, EvaluationError
from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.query.series.results import MatrixResult, Series
from lakerunner.query.vectors.context import Evaluation
from lakerunner.query.vectors.kernels_window import windows
from lakerunner.query.vectors.range_samples import RangeSamples, SampleTimes
from lakerunner.query.vectors.ranges import RangeVector


def raw_matrix(evaluation: Evaluation, vector: RangeVector) -> MatrixResult:
    samples = vector.samples
    extended = vector.anchored or vector.smoothed
    if extended:
        samples = _extended_samples(vector)
    floats, hists = samples.floats, samples.hist_points
    # Extended windows have a sample at their left edge.
    after = vector.after - 1 if extended else vector.after
    begin, end = windows(floats.offsets, floats.ts, after, vector.until)
    hist_begin, hist_end = windows(hists.offsets, hists.ts, vector.after, vector.until)
    by_labels: dict[LabelSet, Series] = {}
    for row, (label_set, drop) in enumerate(zip(samples.labels, samples.drop_name.tolist(), strict=True)):
        float_cells = slice(begin[row, 0], end[row, 0])
        hist_cells = slice(hist_begin[row, 0], hist_end[row, 0])
        labels = label_set.of_computed() if drop else label_set
        series = Series(
            labels,
            floats.ts[float_cells],
            samples.values[float_cells],
            hists.ts[hist_cells],
            list(samples.hists[hist_cells]),
        )
        if len(series.timestamps_ms) or series.histograms:
            by_labels[labels] = _joined(by_labels[labels], series) if labels in by_labels else series
    evaluation.spend(int(np.sum(end - begin)))
    return MatrixResult(sorted(by_labels.values(), key=lambda one: one.labels.pairs))


def _joined(left: Series, right: Series) -> Series:
    """Two series that became the same when they lost their names. They must have no sample time in common."""
    times = np.concatenate([left.timestamps_ms, right.timestamps_ms])
    hist_times = np.concatenate([left.histogram_timestamps_ms, right.histogram_timestamps_ms])
    if len(np.unique(np.concatenate([times, hist_times]))) < len(times) + len(hist_times):
        raise EvaluationError(SAME_LABELSET)
    order, hist_order = np.argsort(times), np.argsort(hist_times)
    histograms = [*left.histograms, *right.histograms]
    return Series(
        left.labels,
        times[order],
        np.concatenate([left.values, right.values])[order],
        hist_times[hist_order],
        [histograms[i] for i in hist_order.tolist()],
    )


def _extended_samples(vector: RangeVector) -> RangeSamples:
    """The samples of an anchored or smoothed vector: one at each edge of the window, and those between."""
    samples = vector.samples
    if samples.has_histograms:
        word = "anchored" if vector.anchored else "smoothed"
        raise EvaluationError(f"{word} modifier is not supported with histograms")
    after, until = int(vector.after[0]), int(vector.until[0])
    series = [_extended_series(vector, row, after, until) for row in range(len(samples.labels))]
    offsets = np.concatenate([[0], np.cumsum([len(ts) for ts, _ in series])]).astype(np.int64)
    ts = np.concatenate([np.zeros(0, dtype=np.int64), *(ts for ts, _ in series)])
    values = np.concatenate([np.zeros(0), *(values for _, values in series)])
    times = SampleTimes(offsets, ts, np.zeros(len(ts), dtype=np.int64))
    return RangeSamples(samples.labels, samples.drop_name, times, values, samples.hist_points, samples.hists)


def _extended_series(vector: RangeVector, row: int, after: int, until: int) -> tuple[Ints, np.ndarray]:
    points = vector.samples.floats
    of_series = slice(points.offsets[row], points.offsets[row + 1])
    ts, values = points.ts[of_series], vector.samples.values[of_series]
    reach_until = until + (vector.lookback_ms if vector.smoothed else 0)
    inside = (ts > after - vector.lookback_ms) & (ts <= reach_until)
    ts, values = ts[inside], values[inside]
    nothing = np.zeros(0, dtype=np.int64), np.zeros(0)
    if not len(ts):
        return nothing
    last = len(ts) - 1
    first = max(0, min(int(np.searchsorted(ts, after, side="right")), last) - 1)
    if vector.smoothed:
        last = min(int(np.searchsorted(ts, until)), last)
    if ts[last] <= after:
        return nothing
    left, right = values[first], values[last]
    if vector.smoothed:
        left = np.interp(after, ts, values) if ts[first] < after else left
        right = np.interp(until, ts, values) if ts[last] > until else right
    between = (ts > after) & (ts < until) & (np.arange(len(ts)) >= first) & (np.arange(len(ts)) <= last)
    return np.array([after, *ts[between], until]), np.array([left, *values[between], right])
