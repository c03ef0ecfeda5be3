"""Functions over range vectors. Compiled loops fold the floats of every window; histograms are done separately."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from lakerunner.model.labels import METRIC_NAME
from lakerunner.query.series.block import Block, Bools, EvaluationError, any_series, any_step, with_histograms
from lakerunner.query.series.histograms.histogram import Floats, Histogram, Ints
from lakerunner.query.series.label_list import metrics
from lakerunner.query.series.reading import Need
from lakerunner.query.vectors import kernels_fold as fold
from lakerunner.query.vectors import kernels_rate as rates
from lakerunner.query.vectors import kernels_rollup as rolled
from lakerunner.query.vectors.context import Evaluation
from lakerunner.query.vectors.histograms.ranges import HISTOGRAM_FUNCTIONS, Window, uniform_windows
from lakerunner.query.vectors.instant import repeated
from lakerunner.query.vectors.kernels_window import anchored_begin, windows
from lakerunner.query.vectors.range_samples import RangeSamples

_FOLDS = {
    "count_over_time": fold.COUNT,
    "sum_over_time": fold.SUM,
    "avg_over_time": fold.AVG,
    "min_over_time": fold.MIN,
    "max_over_time": fold.MAX,
    "stdvar_over_time": fold.STDVAR,
    "stddev_over_time": fold.STDDEV,
    "first_over_time": fold.FIRST,
    "last_over_time": fold.LAST,
    "present_over_time": fold.PRESENT,
    "absent_over_time": fold.PRESENT,
    "ts_of_first_over_time": fold.TS_FIRST,
    "ts_of_last_over_time": fold.TS_LAST,
    "ts_of_min_over_time": fold.TS_MIN,
    "ts_of_max_over_time": fold.TS_MAX,
    "changes": fold.CHANGES,
}
#: Range functions whose names do not end in `_over_time`.
OTHER_FUNCTIONS = frozenset(
    [
        "rate",
        "increase",
        "delta",
        "irate",
        "idelta",
        "deriv",
        "predict_linear",
        "double_exponential_smoothing",
        "changes",
        "resets",
    ]
)
#: What each function needs of a tier. The others need raw samples.
_NEEDS = {
    **dict.fromkeys(("rate", "increase", "delta"), Need.RATE),
    **dict.fromkeys(("sum_over_time", "avg_over_time"), Need.SUM),
    "min_over_time": Need.MIN,
    "max_over_time": Need.MAX,
    "count_over_time": Need.COUNT,
    **dict.fromkeys(("first_over_time", "last_over_time", "present_over_time", "absent_over_time"), Need.KEPT),
    **dict.fromkeys(("ts_of_first_over_time", "ts_of_last_over_time"), Need.KEPT),
}
#: These act like an offset: their result is still the metric.
_KEEP_NAME = frozenset({"first_over_time", "last_over_time"})
_NO_WINDOWS: Ints = np.zeros((0, 0), dtype=np.int64)
_NO_FLOATS: Floats = np.zeros(0)
_COUNTER_SUFFIXES = ("_total", "_sum", "_count", "_bucket")
#: Samples that a compiled loop visits between two checks of the clock: half a second of the slowest loop, which sorts.
_SAMPLES_PER_CHECK = 8_000_000


@dataclass(slots=True)
class RangeVector:
    """Samples with the windows of every step. With `fixed`, one window stands for all steps."""

    samples: RangeSamples
    #: The window of step s is (after[s], until[s]].
    after: Ints
    until: Ints
    fixed: bool
    range_ms: int
    #: Offset of the argument in the query text, for annotations.
    position: int
    anchored: bool = False
    smoothed: bool = False
    #: How far anchored and smoothed vectors reach beyond the window.
    lookback_ms: int = 0


@dataclass(slots=True)
class _Call:
    """A function call, or the part of it for some series or steps."""

    name: str
    vector: RangeVector
    params: list[Floats]
    times: Ints
    begin: Ints
    end: Ints
    out: Floats
    ok: Bools
    after: Ints
    until: Ints
    #: Set if `out` and `ok` are copies: the arrays that their content belongs to.
    target: tuple[Floats, Bools] | None = None

    def rows(self, first: int, last: int) -> _Call:
        """The call for some series."""
        chosen = slice(first, last)
        return replace(
            self,
            begin=self.begin[chosen],
            end=self.end[chosen],
            out=self.out[chosen],
            ok=self.ok[chosen],
        )

    def steps(self, first: int, last: int) -> _Call:
        """The call for some steps, on copies: compiled loops need contiguous rows."""
        chosen = slice(first, last)
        target = self.out[:, chosen], self.ok[:, chosen]
        return replace(
            self,
            params=[param[chosen] for param in self.params],
            times=self.times[chosen],
            begin=self.begin[:, chosen].copy(),
            end=self.end[:, chosen].copy(),
            out=target[0].copy(),
            ok=target[1].copy(),
            after=self.after[chosen],
            until=self.until[chosen],
            target=target,
        )

    def write_back(self) -> None:
        """Copy the results to the arrays of the complete call."""
        if self.target is not None:
            self.target[0][:], self.target[1][:] = self.out, self.ok


def _parts(c: _Call) -> Iterator[_Call]:
    """Split the call into parts that take a fraction of a second each; usually there is only one."""
    visits = (c.end - c.begin).sum(axis=1)
    if int(visits.sum()) <= _SAMPLES_PER_CHECK:
        yield c
        return
    part_of = np.cumsum(visits) // _SAMPLES_PER_CHECK
    firsts = [0, *(np.flatnonzero(np.diff(part_of)) + 1).tolist(), len(visits)]
    for first, last in pairwise(firsts):
        part = c.rows(first, last)
        pieces = -(-int(visits[first:last].sum()) // (2 * _SAMPLES_PER_CHECK))
        width = max(1, -(-len(c.until) // max(1, pieces)))
        if width >= len(c.until):
            yield part
        else:
            yield from (part.steps(step, step + width) for step in range(0, len(c.until), width))


def call(evaluation: Evaluation, name: str, vector: RangeVector, params: list[Floats], times: Ints) -> Block:
    """Apply the function at every step. `params` are its scalar arguments, with one value per step."""
    if vector.fixed and all(_constant(param) for param in params) and name != "predict_linear":
        block = _apply(evaluation, name, vector, [param[:1] for param in params], times[:1])
        return repeated(evaluation, block, len(times))
    if vector.fixed:
        steps = len(times)
        vector = RangeVector(
            vector.samples, np.repeat(vector.after, steps), np.repeat(vector.until, steps), False, vector.range_ms,
            vector.position, vector.anchored, vector.smoothed, vector.lookback_ms,
        )  # fmt: skip
    return _apply(evaluation, name, vector, params, times)


def need_of(function: str, *, approximate: bool = False) -> Need:
    """What the function needs of a tier to have the same value as over raw samples; or nearly, if that is allowed."""
    if approximate and function == "quantile_over_time":
        return Need.SKETCH
    return _NEEDS.get(function, Need.RAW)


def _constant(param: Floats) -> bool:
    return len(param) == 1 or param.tobytes() == param[:1].tobytes() * len(param)


def _apply(evaluation: Evaluation, name: str, vector: RangeVector, params: list[Floats], times: Ints) -> Block:
    evaluation.check_time()
    samples = vector.samples
    floats = samples.floats
    evaluation.spend(len(samples.labels) * len(vector.until))
    shape = len(samples.labels), len(vector.until)
    begin = end = _NO_WINDOWS
    if not _finds_windows(name, vector) or samples.has_histograms:
        begin, end = windows(floats.offsets, floats.ts, *_reach(vector))
    out, ok = np.zeros(shape), np.zeros(shape, dtype=bool)
    request = _Call(name, vector, params, times, begin, end, out, ok, vector.after, vector.until)
    if vector.anchored and name in ("changes", "resets"):
        request.begin = begin.copy()
        anchored_begin(floats.ts, vector.after, request.begin, end)
    # Kernels that find the windows themselves go through all series in slices of their own.
    for part in [request] if _finds_windows(name, vector) else _parts(request):
        evaluation.check_time()
        _run_kernel(evaluation, part)
        part.write_back()
    request.begin = begin
    drop = samples.drop_name if name in _KEEP_NAME else np.ones(len(samples.labels), dtype=bool)
    block = Block(samples.labels, request.out, request.ok, drop)
    if samples.has_histograms:
        block = _with_histogram_windows(evaluation, request, block)
    if name in ("rate", "increase"):
        _note_non_counters(evaluation, vector, block)
    return block.pruned()


def _finds_windows(name: str, vector: RangeVector) -> bool:
    """Whether the function's kernel finds the windows itself."""
    return name in ("rate", "increase", "delta") and not vector.anchored and not vector.smoothed


def _reach(vector: RangeVector) -> tuple[Ints, Ints]:
    if vector.smoothed:
        return vector.after - vector.lookback_ms, vector.until + vector.lookback_ms
    return (vector.after - vector.lookback_ms if vector.anchored else vector.after), vector.until


def _run_kernel(evaluation: Evaluation, c: _Call) -> None:
    ts, values, starts = c.vector.samples.floats.ts, c.vector.samples.values, c.vector.samples.floats.starts
    mode = _FOLDS.get(c.name)
    rollup = c.vector.samples.rollup
    if rollup is not None and c.name in rolled.FOLDS:
        rolled.fold(rolled.FOLDS[c.name], c.begin, c.end, rollup.count, *_two(rollup.aggregates), c.out, c.ok)
    elif mode is not None:
        fold.fold(mode, c.begin, c.end, ts, values, c.out, c.ok)
    elif c.name in ("rate", "increase", "delta"):
        _rate(evaluation, c)
    elif c.name in ("irate", "idelta"):
        rates.last_two(c.begin, c.end, ts, values, _starts_or_zeros(starts, ts), c.name == "irate", c.out, c.ok)
    elif c.name == "resets":
        rates.count_resets(c.begin, c.end, ts, values, _starts_or_zeros(starts, ts), c.out, c.ok)
    elif c.name in ("deriv", "predict_linear"):
        ahead = c.params[0] if c.params else np.zeros(len(c.times))
        fold.regression(c.begin, c.end, ts, values, c.times, ahead, c.name == "predict_linear", c.out, c.ok)
    elif c.name in ("quantile_over_time", "mad_over_time"):
        q = c.params[0] if c.params else np.full(len(c.times), 0.5)
        if rollup is not None:
            q = np.ascontiguousarray(np.broadcast_to(q, (c.begin.shape[1],)))
            rolled.weighted_quantile(c.begin, c.end, values, rollup.count, q, c.out, c.ok)
            evaluation.notes.approximate_quantile(c.vector.position)
            _note_quantiles(evaluation, c, q)
            return
        fold.window_quantile(c.begin, c.end, values, np.ascontiguousarray(q), not c.params, c.out, c.ok)
        if c.params:
            _note_quantiles(evaluation, c, q)
    else:
        _smooth(c, values)


def _two(aggregates: tuple[Floats, ...]) -> tuple[Floats, Floats]:
    """A kernel has two of them, whether it uses them or not."""
    first, second, *_ = (*aggregates, _NO_FLOATS, _NO_FLOATS)
    return first, second


def _starts_or_zeros(starts: Ints, ts: Ints) -> Ints:
    return starts if len(starts) else np.zeros(len(ts), dtype=np.int64)


def _rate(evaluation: Evaluation, c: _Call) -> None:
    vector, floats = c.vector, c.vector.samples.floats
    counter, per_second, range_s = c.name != "delta", c.name == "rate", vector.range_ms / 1000
    if vector.anchored or vector.smoothed:
        rates.extended(
            c.begin, c.end, floats.ts, vector.samples.values, c.after, c.until, vector.smoothed,
            counter, per_second, range_s, c.out, c.ok,
        )  # fmt: skip
        return
    for rows in _slices(floats.offsets, len(vector.until)):
        evaluation.check_time()
        _plain_rates(evaluation, c, rows, (counter, per_second, range_s))


def _plain_rates(evaluation: Evaluation, c: _Call, rows: slice, how: tuple[bool, bool, float]) -> None:
    """Rates of some series, without extended windows. The kernel finds the windows as it goes."""
    vector, floats = c.vector, c.vector.samples.floats
    offsets = floats.offsets[rows.start : rows.stop + 1]
    rollup = vector.samples.rollup
    if rollup is None and not len(floats.starts):
        rates.extrapolated_plain(
            offsets, floats.ts, vector.samples.values, vector.after, vector.until, *how, c.out[rows], c.ok[rows]
        )
        return
    overlap = np.zeros(rows.stop - rows.start, dtype=np.int64)
    if rollup is None:
        rates.extrapolated(
            offsets, floats.ts, vector.samples.values, floats.starts, vector.after, vector.until,
            *how, c.out[rows], c.ok[rows], overlap,
        )  # fmt: skip
    else:
        resets, known = rollup.aggregates
        rolled.extrapolated(
            offsets, floats.ts, vector.samples.values, _starts_or_zeros(floats.starts, floats.ts), rollup.count,
            resets, known, vector.after, vector.until, *how, c.out[rows], c.ok[rows], overlap,
        )  # fmt: skip
    for row in overlap.nonzero()[0].tolist():
        name = vector.samples.labels[rows.start + row].get(METRIC_NAME)
        evaluation.notes.start_overlap(name, vector.position, int(overlap[row]))


def _slices(offsets: Ints, steps: int) -> Iterator[slice]:
    """Split the series into slices that take a fraction of a second each, if every sample and step is visited once."""
    rows = len(offsets) - 1
    visits = offsets[1:] - offsets[0] + steps * np.arange(1, rows + 1)
    ends = (np.flatnonzero(np.diff(visits // _SAMPLES_PER_CHECK)) + 1).tolist()
    for first, last in pairwise([0, *ends, rows]):
        yield slice(first, last)


def _smooth(c: _Call, values: Floats) -> None:
    level, trend = c.params
    hists = c.vector.samples.hist_points
    filled = any_series(c.end > c.begin)
    if c.vector.samples.has_histograms:
        begin, end = windows(hists.offsets, hists.ts, *_reach(c.vector))
        filled |= any_series(end > begin)
    for factor, what in ((level, "smoothing"), (trend, "trend")):
        # A NaN factor passes: it is neither too small nor too large.
        bad = factor[filled & ((factor <= 0) | (factor >= 1))]
        if len(bad):
            raise EvaluationError(f"invalid {what} factor. Expected: 0 < {what[0]}f < 1, got: {bad[0]:f}")
    fold.smoothing(c.begin, c.end, values, level, trend, c.out, c.ok)


def _note_quantiles(evaluation: Evaluation, c: _Call, q: Floats) -> None:
    has_result = any_series(c.ok)
    for value in q[has_result & ~((q >= 0) & (q <= 1))].tolist():
        evaluation.notes.invalid_quantile(value, c.vector.position)


def _note_non_counters(evaluation: Evaluation, vector: RangeVector, block: Block) -> None:
    by_type = evaluation.options.type_and_unit_labels
    kinds, kind_of = metrics(vector.samples.labels, "__type__" if by_type else "")
    for number in np.unique(kind_of[any_step(block.valid)]).tolist():
        name, kind = kinds[number]
        if not name:
            continue
        if by_type:
            if kind not in ("counter", "histogram"):
                evaluation.notes.possible_non_counter_type(name, kind, vector.position)
        elif not name.endswith(_COUNTER_SUFFIXES):
            evaluation.notes.possible_non_counter(name, vector.position)


def _with_histogram_windows(evaluation: Evaluation, c: _Call, block: Block) -> Block:
    """Correct the windows that contain histograms.

    Uniform windows are computed as columns; the result of the others depends on all their samples, so that they are
    done one by one.
    """
    samples, vector = c.vector.samples, c.vector
    points = samples.hist_points
    begin, end = windows(points.offsets, points.ts, *_reach(vector))
    function: Callable[[Evaluation, Window], float | Histogram | None] = HISTOGRAM_FUNCTIONS[c.name]
    cells: list[tuple[int, int, Histogram]] = []
    values, valid = block.values, block.valid
    filled = end > begin
    evaluation.spend_histograms(int(filled.sum()))
    evaluation.check_time()
    grid = None
    if not vector.anchored and not vector.smoothed:
        grid = uniform_windows(evaluation, c.name, vector, (begin, end), filled, c.end > c.begin)
    for row, step in zip(*filled.nonzero(), strict=True):
        evaluation.check_time_sometimes()
        window = Window(
            samples, int(row), int(c.begin[row, step]), int(c.end[row, step]), int(begin[row, step]),
            int(end[row, step]), int(vector.after[step]), int(vector.until[step]), vector,
            float(values[row, step]) if valid[row, step] else None, c.name,
        )  # fmt: skip
        result = function(evaluation, window)
        valid[row, step] = isinstance(result, float)
        if isinstance(result, float):
            values[row, step] = result
        elif result is not None:
            cells.append((int(row), int(step), result))
    return with_histograms(block, cells, grid)
