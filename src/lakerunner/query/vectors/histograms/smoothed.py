"""A smoothed instant selector over native histograms: a histogram between the two around the time."""

from __future__ import annotations

import numpy as np

from lakerunner.model.labels import METRIC_NAME
from lakerunner.query.promql.ast import VectorSelector
from lakerunner.query.series.block import Block, with_histograms
from lakerunner.query.series.histograms.histogram import Histogram, Ints, ResetHint
from lakerunner.query.series.histograms.math import IncompatibleSchemas, Sum, add, is_reset, subtract
from lakerunner.query.vectors.context import Evaluation
from lakerunner.query.vectors.kernels_window import windows
from lakerunner.query.vectors.samples import Samples


def between(
    first: Histogram, first_ms: int, second: Histogram, second_ms: int, at_ms: int, counter: bool
) -> tuple[Histogram, list[Sum]]:
    """The histogram at a time between two. After a reset, a counter is taken to rise from zero."""
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


def smooth_histograms(evaluation: Evaluation, node: VectorSelector, samples: Samples, block: Block, at: Ints) -> Block:
    """The block of smoothed floats, corrected where there are histograms within reach."""
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
            evaluation.notes.mixed_samples(name, node.start)
            continue
        within = slice(int(begin[row, step]), int(end[row, step]))
        made = _at(evaluation, node, samples, within, int(at[step]), name)
        if made is not None:
            cells.append((row, step, made))
    return with_histograms(block, cells)


def _at(
    evaluation: Evaluation, node: VectorSelector, samples: Samples, within: slice, at_ms: int, name: str
) -> Histogram | None:
    times, hists = samples.hist_points.ts[within], samples.hists[within]
    i = int(np.searchsorted(times, at_ms))
    if i < len(times) and times[i] == at_ms:
        return hists[i]
    if i == 0:
        return None
    before = hists[i - 1]
    if i == len(times):
        # Carried forward, it says nothing about the sample before it any more.
        return before.with_hint(ResetHint.UNKNOWN)
    counter = not before.hint is hists[i].hint is ResetHint.GAUGE
    try:
        made, steps = between(before, int(times[i - 1]), hists[i], int(times[i]), at_ms, counter)
    except IncompatibleSchemas:
        evaluation.notes.mixed_schemas(name, node.start)
        return None
    for index, step in enumerate(steps):
        if step.bounds_reconciled:
            evaluation.notes.bounds_reconciled("subtraction" if index == 0 else "addition", node.start)
    return made
