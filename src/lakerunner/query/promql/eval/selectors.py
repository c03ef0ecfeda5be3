"""Selectors: the times that they refer to, and their values at these times."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lakerunner.query.promql.ast import AtEdge, Subquery, VectorSelector
from lakerunner.query.promql.durations import duration_ms
from lakerunner.query.series.batch import SeriesBatch
from lakerunner.query.series.block import Block
from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.query.vectors.context import Evaluation
from lakerunner.query.vectors.instant import latest_samples, latest_vector, repeated, select_latest, smoothed_vector


def reference_times(evaluation: Evaluation, node: VectorSelector | Subquery, times: Ints) -> tuple[Ints, bool]:
    """The times that the node refers to, and whether `@` fixes them to a single time.

    With `@` the result has one element, whatever the number of steps.
    """
    offset = 0 if node.offset is None else duration_ms(node.offset, evaluation.query)
    if node.at is None:
        return times - offset, False
    at = node.at
    if isinstance(at, AtEdge):
        at = evaluation.query.start_ms if at is AtEdge.START else evaluation.query.end_ms
    return np.array([at - offset], dtype=np.int64), True


@dataclass(slots=True)
class LatestSamples:
    """The latest sample of every series at every step: its index in the batch, or -1."""

    batch: SeriesBatch
    index: Ints
    #: The same at all steps; `index` has one column.
    fixed: bool


def latest_of(evaluation: Evaluation, node: VectorSelector, times: Ints) -> LatestSamples:
    at, fixed = reference_times(evaluation, node, times)
    batch = select_latest(evaluation, node.matchers, at)
    return LatestSamples(batch, latest_samples(batch, at, evaluation.options.lookback_ms), fixed)


def instant_vector(evaluation: Evaluation, node: VectorSelector, times: Ints) -> Block:
    """The value of an instant selector at every step."""
    at, fixed = reference_times(evaluation, node, times)
    if node.smoothed:
        block = smoothed_vector(evaluation, node.matchers, at, node.start)
    else:
        block = latest_vector(evaluation, node.matchers, at)
    return repeated(evaluation, block, len(times)) if fixed else block
