"""A range vector as the answer itself: the samples of the window, as they are."""

from __future__ import annotations

import numpy as np

from lakerunner.query.promql.ast import Expr
from lakerunner.query.promql.eval.evaluator import Evaluator
from lakerunner.query.promql.eval.extended_range import extended_samples
from lakerunner.query.promql.eval.kernels_window import windows
from lakerunner.query.promql.histogram import Ints
from lakerunner.query.promql.results import MatrixResult, Series


def raw_range(evaluator: Evaluator, expr: Expr, times: Ints) -> MatrixResult:
    vector = evaluator.range_vector(expr, times, "")
    samples = vector.samples
    if vector.anchored or vector.smoothed:
        samples = extended_samples(vector)
    floats, hists = samples.floats, samples.hist_points
    after = vector.after - 1 if vector.anchored or vector.smoothed else vector.after
    begin, end = windows(floats.offsets, floats.ts, after, vector.until)
    hist_begin, hist_end = windows(hists.offsets, hists.ts, vector.after, vector.until)
    series = []
    for row in sorted(range(len(samples.labels)), key=lambda i: samples.labels[i].pairs):
        some, held = slice(begin[row, 0], end[row, 0]), slice(hist_begin[row, 0], hist_end[row, 0])
        made = Series(
            samples.labels[row], floats.ts[some], samples.values[some], hists.ts[held], list(samples.hists[held])
        )
        if len(made.timestamps_ms) or made.histograms:
            series.append(made)
    evaluator.evaluation.spend(int(np.sum(end - begin)))
    return MatrixResult(series)
