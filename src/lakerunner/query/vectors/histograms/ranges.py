"""Range functions over windows that contain native histograms."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lakerunner.model.labels import METRIC_NAME
from lakerunner.model.samples import is_start_reset
from lakerunner.query.series.block import Bools
from lakerunner.query.series.histograms.grid import HistogramGrid
from lakerunner.query.series.histograms.histogram import Histogram, Ints, ResetHint
from lakerunner.query.series.histograms.math import CompensatedSum, IncompatibleSchemas, is_reset
from lakerunner.query.vectors.context import Evaluation
from lakerunner.query.vectors.histograms.columnar import rates, sums
from lakerunner.query.vectors.histograms.rates import extended_rate, extrapolated_rate, instant_rate
from lakerunner.query.vectors.range_samples import RangeSamples

if TYPE_CHECKING:
    from lakerunner.query.vectors.ranges import RangeVector

Result = float | Histogram | None


@dataclass(slots=True)
class Window:
    """One window of one series: a range of the float samples and a range of the histogram samples."""

    samples: RangeSamples
    row: int
    float_begin: int
    float_end: int
    hist_begin: int
    hist_end: int
    after_ms: int
    until_ms: int
    vector: RangeVector
    #: The result of the float samples alone.
    float_result: float | None
    function: str

    @property
    def float_count(self) -> int:
        return self.float_end - self.float_begin

    @property
    def hist_count(self) -> int:
        """The number of histograms, where rows of tiers stand for several."""
        rollup = self.samples.hist_rollup
        if rollup is None:
            return self.hist_end - self.hist_begin
        return int(rollup.count[self.hist_begin : self.hist_end].sum())

    @property
    def hists(self) -> Sequence[Histogram]:
        return self.samples.hists[self.hist_begin : self.hist_end]

    @property
    def name(self) -> str:
        return self.samples.labels[self.row].get(METRIC_NAME)

    @property
    def position(self) -> int:
        return self.vector.position

    def hist_time(self, index: int) -> int:
        return int(self.samples.hist_points.ts[index])

    def float_time(self, index: int) -> int:
        return int(self.samples.floats.ts[index])

    def merged(self) -> list[tuple[int, int, float | Histogram]]:
        """All samples in time order."""
        points, hist_points = self.samples.floats, self.samples.hist_points
        floats: list[tuple[int, int, float | Histogram]] = [
            (int(points.ts[i]), int(points.starts[i]), float(self.samples.values[i]))
            for i in range(self.float_begin, self.float_end)
        ]
        hists: list[tuple[int, int, float | Histogram]] = [
            (int(hist_points.ts[i]), int(hist_points.starts[i]), self.samples.hists[i])
            for i in range(self.hist_begin, self.hist_end)
        ]
        return sorted([*floats, *hists], key=lambda sample: sample[0])


def uniform_windows(
    evaluation: Evaluation, function: str, vector: RangeVector, windows: tuple[Ints, Ints], filled: Bools, floats: Bools
) -> HistogramGrid | None:
    """Compute as columns what functions with histogram results make of uniform windows.

    `filled` are the windows with histograms; those that are done are removed from it. `floats` are the windows with
    float samples.
    """
    samples, (begin, end) = vector.samples, windows
    hists = samples.hists
    if function in ("rate", "increase", "delta"):
        found = rates(vector, function, begin, end, np.diff(samples.floats.offsets) > 0)
        filled &= found.skipped[:, np.newaxis]
        for row in found.overlapping.nonzero()[0].tolist():
            name = samples.labels[row].get(METRIC_NAME)
            evaluation.notes.start_overlap(name, vector.position, int(found.overlapping[row]))
        return found.grid
    uniform = filled & ~floats
    if function in ("sum_over_time", "avg_over_time"):
        folded = sums(
            hists.column, hists.rows, begin.ravel(), end.ravel(), function == "avg_over_time", ~uniform.ravel()
        )
        if folded.collision.any():
            evaluation.notes.hint_collision("aggregation", vector.position)
        filled &= floats | folded.skipped.reshape(filled.shape)
        return HistogramGrid(folded.column, folded.row.reshape(filled.shape))
    if function in ("first_over_time", "last_over_time"):
        filled &= floats
        at = np.where(uniform, begin if function == "first_over_time" else end - 1, 0)
        return HistogramGrid(hists.column, np.where(uniform, hists.rows[at], -1))
    return None


def _only_floats(evaluation: Evaluation, window: Window) -> Result:
    """min, max, quantile and others ignore histograms, with an annotation if the window also has floats."""
    if window.float_count == 0:
        return None
    evaluation.notes.histograms_ignored_in_range(window.name, window.position)
    return window.float_result


def _count(evaluation: Evaluation, window: Window) -> Result:
    return (window.float_result or 0.0) + float(window.hist_count)


def _present(evaluation: Evaluation, window: Window) -> Result:
    return 1.0


def _first(evaluation: Evaluation, window: Window) -> Result:
    if window.float_count and window.float_time(window.float_begin) < window.hist_time(window.hist_begin):
        return window.float_result
    return window.hists[0]


def _last(evaluation: Evaluation, window: Window) -> Result:
    if window.float_count and window.float_time(window.float_end - 1) > window.hist_time(window.hist_end - 1):
        return window.float_result
    return window.hists[-1]


def _time_of_first(evaluation: Evaluation, window: Window) -> Result:
    first = window.hist_time(window.hist_begin)
    return (min(first, window.float_time(window.float_begin)) if window.float_count else first) / 1000


def _time_of_last(evaluation: Evaluation, window: Window) -> Result:
    last = window.hist_time(window.hist_end - 1)
    return (max(last, window.float_time(window.float_end - 1)) if window.float_count else last) / 1000


def _sum(evaluation: Evaluation, window: Window) -> Result:
    return _fold(evaluation, window, average=False)


def _average(evaluation: Evaluation, window: Window) -> Result:
    return _fold(evaluation, window, average=True)


def _fold(evaluation: Evaluation, window: Window, average: bool) -> Result:
    if window.float_count:
        evaluation.notes.mixed_samples(window.name, window.position)
        return None
    try:
        result, reconciled = (mean_of if average else sum_of)(window.hists)
    except IncompatibleSchemas:
        evaluation.notes.mixed_schemas(window.name, window.position)
        return None
    hints = {histogram.hint for histogram in window.hists}
    if {ResetHint.RESET, ResetHint.NOT_RESET} <= hints:
        evaluation.notes.hint_collision("aggregation", window.position)
    if reconciled:
        evaluation.notes.bounds_reconciled("aggregation", window.position)
    return result


def sum_of(histograms: Sequence[Histogram]) -> tuple[Histogram, bool]:
    """The sum, and whether custom bounds had to be reconciled."""
    total = CompensatedSum(histograms[0])
    for histogram in histograms[1:]:
        total.add(histogram)
    return total.total(), total.bounds_reconciled


def mean_of(histograms: Sequence[Histogram]) -> tuple[Histogram, bool]:
    """The mean, and whether custom bounds had to be reconciled. Incremental once the sum would overflow."""
    total = CompensatedSum(histograms[0])
    incremental = False
    for count, histogram in enumerate(histograms[1:], 2):
        if not incremental:
            attempt = total.copy()
            attempt.add(histogram)
            if not attempt.overflows():
                total = attempt
                continue
            incremental = True
            total.scale(1 / (count - 1))
        total.scale((count - 1) / count)
        total.add(histogram.divided(count))
    if incremental:
        return total.total(), total.bounds_reconciled
    return total.mean(float(len(histograms))), total.bounds_reconciled


def _changes(evaluation: Evaluation, window: Window) -> Result:
    return _count_pairs(window, lambda before, now: not _same(before[2], now[2]))


def _same(before: float | Histogram, now: float | Histogram) -> bool:
    if isinstance(before, float) and isinstance(now, float):
        return before == now or (before != before and now != now)
    return isinstance(before, Histogram) and isinstance(now, Histogram) and now.equals(before)


def _resets(evaluation: Evaluation, window: Window) -> Result:
    return _count_pairs(window, _is_reset)


Sample = tuple[int, int, float | Histogram]


def _is_reset(before: Sample, now: Sample) -> bool:
    old, new = before[2], now[2]
    if isinstance(old, float) != isinstance(new, float):
        return True
    if is_start_reset(before[1], before[0], now[1], now[0]):
        return True
    if isinstance(old, float) and isinstance(new, float):
        return new < old
    assert isinstance(old, Histogram) and isinstance(new, Histogram)
    return is_reset(new, old)


def _count_pairs(window: Window, differs: Callable[[Sample, Sample], bool]) -> Result:
    samples = window.merged()
    if window.vector.anchored:
        after = [i for i, sample in enumerate(samples) if sample[0] > window.after_ms]
        if not after:
            return None
        samples = samples[max(0, after[0] - 1) :]
    return float(sum(differs(before, now) for before, now in itertools.pairwise(samples)))


def _regression(evaluation: Evaluation, window: Window) -> Result:
    if window.float_count:
        evaluation.notes.histograms_ignored_in_range(window.name, window.position)
    return window.float_result


def _rate(evaluation: Evaluation, window: Window) -> Result:
    if window.float_count:
        evaluation.notes.mixed_samples(window.name, window.position)
        return None
    if window.vector.anchored or window.vector.smoothed:
        return extended_rate(evaluation, window)
    return extrapolated_rate(evaluation, window)


def _instant(evaluation: Evaluation, window: Window) -> Result:
    return instant_rate(evaluation, window)


def _absent(evaluation: Evaluation, window: Window) -> Result:
    return 1.0


HISTOGRAM_FUNCTIONS: dict[str, Callable[[Evaluation, Window], Result]] = {
    "count_over_time": _count,
    "present_over_time": _present,
    "absent_over_time": _absent,
    "first_over_time": _first,
    "last_over_time": _last,
    "ts_of_first_over_time": _time_of_first,
    "ts_of_last_over_time": _time_of_last,
    "sum_over_time": _sum,
    "avg_over_time": _average,
    "changes": _changes,
    "resets": _resets,
    "rate": _rate,
    "increase": _rate,
    "delta": _rate,
    "irate": _instant,
    "idelta": _instant,
    "deriv": _regression,
    "predict_linear": _regression,
    "double_exponential_smoothing": _regression,
    **dict.fromkeys(
        (
            "min_over_time",
            "max_over_time",
            "stddev_over_time",
            "stdvar_over_time",
            "quantile_over_time",
            "mad_over_time",
            "ts_of_min_over_time",
            "ts_of_max_over_time",
        ),
        _only_floats,
    ),
}
