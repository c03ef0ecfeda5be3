"""A smoothed instant selector over native histograms: a histogram between the two around the time."""

from __future__ import annotations

import numpy as np

from lakerunner.model.labels import METRIC_NAME
from lakerunner.query.promql.ast import VectorSelector
from lakerunner.query.promql.eval.block import Block, with_histograms
from lakerunner.query.promql.eval.context import Evaluation
from lakerunner.query.promql.eval.samples import Samples
from lakerunner.query.promql.histogram import Histogram, Ints, ResetHint
from lakerunner.query.promql.histogram_math import IncompatibleSchemas, Sum, add, is_reset, subtract


def between(
    first: Histogram, first_ms: int, second: Histogram, second_ms: int, at_ms: int, counter: bool
) -> tuple[Histogram, list[Sum]]:
    """The histogram at a time between two. After a reset, a counter is taken to rise from zero."""
    if at_ms == first_ms:
        return first, []
    if at_ms == second_ms:
        return second, []
    share = (at_ms - first_ms) / (second_ms - first_ms)
    if counter and is_reset(second, first):
        return second.scaled(share), []
    difference = subtract(second, first)
    total = add(difference.value.scaled(share), first)
    return total.value, [difference, total]


def smooth_histograms(evaluation: Evaluation, node: VectorSelector, samples: Samples, block: Block, at: Ints) -> Block:
    cells: list[tuple[int, int, Histogram]] = []
    dropped: list[tuple[int, int]] = []
    for row, labels in enumerate(samples.labels):
        begin, end = samples.hist_points.offsets[row : row + 2].tolist()
        if begin == end:
            continue
        name = labels.get(METRIC_NAME)
        for step, at_ms in enumerate(at.tolist()):
            made = _at(evaluation, node, samples, row, begin, end, at_ms, name)
            if made is None:
                dropped.append((row, step))
            elif isinstance(made, Histogram):
                cells.append((row, step, made))
    for row, step in dropped:
        block.valid[row, step] = False
    return with_histograms(block, cells)


def _at(
    evaluation: Evaluation,
    node: VectorSelector,
    samples: Samples,
    row: int,
    begin: int,
    end: int,
    at_ms: int,
    name: str,
) -> Histogram | bool | None:
    """A histogram; None for nothing; True where only floats are near, so that the float result stands."""
    lookback_ms = evaluation.options.lookback_ms
    times = samples.hist_points.ts[begin:end]
    after = begin + int(np.searchsorted(times, at_ms))
    next_ms = int(samples.hist_points.ts[after]) if after < end else None
    previous_ms = int(samples.hist_points.ts[after - 1]) if after > begin else None
    if next_ms is not None and next_ms > at_ms + lookback_ms:
        next_ms = None
    if previous_ms is not None and previous_ms <= at_ms - lookback_ms:
        previous_ms = None
    floats = samples.floats.ts[samples.floats.offsets[row] : samples.floats.offsets[row + 1]]
    split = int(np.searchsorted(floats, at_ms))
    float_next = int(floats[split]) if split < len(floats) and floats[split] <= at_ms + lookback_ms else None
    float_previous = int(floats[split - 1]) if split and floats[split - 1] > at_ms - lookback_ms else None
    if next_ms == at_ms:
        return samples.hists[after]
    if float_next == at_ms:
        return True
    hist_next = next_ms is not None and (float_next is None or next_ms < float_next)
    hist_previous = previous_ms is not None and (float_previous is None or previous_ms > float_previous)
    any_next, any_previous = hist_next or float_next is not None, hist_previous or float_previous is not None
    if not any_previous:
        return None
    if any_next and hist_next != hist_previous:
        evaluation.notes.mixed_samples(name, node.start)
        return None
    if not hist_previous:
        return True
    first = samples.hists[after - 1]
    if not any_next:
        return first
    assert previous_ms is not None and next_ms is not None
    try:
        counter = first.hint is not ResetHint.GAUGE and samples.hists[after].hint is not ResetHint.GAUGE
        made, steps = between(first, previous_ms, samples.hists[after], next_ms, at_ms, counter)
    except IncompatibleSchemas:
        evaluation.notes.mixed_schemas(name, node.start)
        return None
    for index, step in enumerate(steps):
        if step.bounds_reconciled:
            evaluation.notes.bounds_reconciled("subtraction" if index == 0 else "addition", node.start)
    return made
