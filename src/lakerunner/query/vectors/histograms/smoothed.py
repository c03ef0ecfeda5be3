"""Smoothed instant vectors of native histograms: interpolated between the two samples around the time."""

from __future__ import annotations

import numpy as np

from lakerunner.model.labels import METRIC_NAME
from lakerunner.query.series.block import Block, with_histograms
from lakerunner.query.series.histograms.histogram import Histogram, Ints, ResetHint
from lakerunner.query.series.histograms.math import IncompatibleSchemas, Sum, add, is_reset, subtract
from lakerunner.query.vectors.context import Evaluation
from lakerunner.query.vectors.kernels_window import windows
from lakerunner.query.vectors.range_samples import RangeSamples


def between(
    first: Histogram, first_ms: int, second: Histogram, second_ms: int, at_ms: int, counter: bool
) -> tuple[Histogram, list[Sum]]:
    """Interpolate between two histograms, and return the sums taken. After a reset, a counter rises from zero."""
    if at_ms == first_ms:
        return first, []
    if at_ms == second_ms:
        return second, []
    if first.custom != second.custom:
        raise IncompatibleSchemas
    share = (at_ms - first_ms) / (second_ms - first_ms)
    if counter and is_reset(second, first):
        return second.scaled(share), []
    difference = subtract(second, first)
    total = add(difference.value.scaled(share), first)
    return total.value, [difference, total]


def smooth_histograms(evaluation: Evaluation, samples: RangeSamples, block: Block, at: Ints, position: int) -> Block:
    """Correct a block of smoothed floats at the steps that have histograms within the look-back."""
    lookback_ms = evaluation.options.lookback_ms
    after, until = at - lookback_ms, at + lookback_ms
    hists, floats = samples.hist_points, samples.floats
    begin, end = windows(hists.offsets, hists.ts, after, until)
    float_begin, float_end = windows(floats.offsets, floats.ts, after, until)
    cells: list[tuple[int, int, Histogram]] = []
    for row, step in zip(*(axis.tolist() for axis in (end > begin).nonzero()), strict=True):
        block.valid[row, step] = False
        name = samples.labels[row].get(METRIC_NAME)
        if float_end[row, step] > float_begin[row, step]:
            evaluation.notes.mixed_samples(name, position)
            continue
        within = slice(int(begin[row, step]), int(end[row, step]))
        smoothed = _smoothed_at(evaluation, samples, within, int(at[step]), name, position)
        if smoothed is not None:
            cells.append((row, step, smoothed))
    return with_histograms(block, cells)


def _smoothed_at(
    evaluation: Evaluation, samples: RangeSamples, within: slice, at_ms: int, name: str, position: int
) -> Histogram | None:
    times, hists = samples.hist_points.ts[within], samples.hists[within]
    i = int(np.searchsorted(times, at_ms))
    if i < len(times) and times[i] == at_ms:
        return hists[i]
    if i == 0:
        return None
    before = hists[i - 1]
    if i == len(times):
        # Once carried forward, its hint no longer refers to the sample before it.
        return before.with_hint(ResetHint.UNKNOWN)
    counter = not before.hint is hists[i].hint is ResetHint.GAUGE
    try:
        smoothed, sums = between(before, int(times[i - 1]), hists[i], int(times[i]), at_ms, counter)
    except IncompatibleSchemas:
        evaluation.notes.mixed_schemas(name, position)
        return None
    for index, sum_ in enumerate(sums):
        if sum_.bounds_reconciled:
            evaluation.notes.bounds_reconciled("subtraction" if index == 0 else "addition", position)
    return smoothed
