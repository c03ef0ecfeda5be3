"""A range vector as the answer itself: the samples of the window, as they are."""

from __future__ import annotations

import numpy as np

from lakerunner.model.labels import LabelSet
from lakerunner.query.promql.ast import Expr
from lakerunner.query.promql.eval.evaluator import Evaluator
from lakerunner.query.promql.eval.extended_range import extended_samples
from lakerunner.query.series.block import SAME_LABELSET, EvaluationError
from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.query.series.results import MatrixResult, Series
from lakerunner.query.vectors.kernels_window import windows


def raw_range(evaluator: Evaluator, expr: Expr, times: Ints) -> MatrixResult:
    vector = evaluator.range_vector(expr, times, "")
    samples = vector.samples
    if vector.anchored or vector.smoothed:
        samples = extended_samples(vector)
    floats, hists = samples.floats, samples.hist_points
    after = vector.after - 1 if vector.anchored or vector.smoothed else vector.after
    begin, end = windows(floats.offsets, floats.ts, after, vector.until)
    hist_begin, hist_end = windows(hists.offsets, hists.ts, vector.after, vector.until)
    series: dict[LabelSet, Series] = {}
    for row, (label_set, drop) in enumerate(zip(samples.labels, samples.drop_name.tolist(), strict=True)):
        some, held = slice(begin[row, 0], end[row, 0]), slice(hist_begin[row, 0], hist_end[row, 0])
        labels = label_set.of_computed() if drop else label_set
        made = Series(labels, floats.ts[some], samples.values[some], hists.ts[held], list(samples.hists[held]))
        if len(made.timestamps_ms) or made.histograms:
            series[labels] = _joined(series[labels], made) if labels in series else made
    evaluator.evaluation.spend(int(np.sum(end - begin)))
    return MatrixResult(sorted(series.values(), key=lambda one: one.labels.pairs))


def _joined(known: Series, more: Series) -> Series:
    """Two series that have become the same by the loss of their names, which is in order if they never meet."""
    times = np.concatenate([known.timestamps_ms, more.timestamps_ms])
    held = np.concatenate([known.histogram_timestamps_ms, more.histogram_timestamps_ms])
    if len(np.unique(np.concatenate([times, held]))) < len(times) + len(held):
        raise EvaluationError(SAME_LABELSET)
    order, held_order = np.argsort(times), np.argsort(held)
    histograms = [*known.histograms, *more.histograms]
    return Series(
        known.labels,
        times[order],
        np.concatenate([known.values, more.values])[order],
        held[held_order],
        [histograms[i] for i in held_order.tolist()],
    )
