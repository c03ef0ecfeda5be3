"""Selectors: which times they look at, and what they find there."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from lakerunner.query.promql.ast import AtEdge, Subquery, VectorSelector
from lakerunner.query.promql.durations import duration_ms
from lakerunner.query.series.batch import STALE_BITS, SeriesBatch
from lakerunner.query.series.block import Block
from lakerunner.query.series.histograms.column import HistogramColumn
from lakerunner.query.series.histograms.grid import HistogramGrid
from lakerunner.query.series.histograms.histogram import Ints, ResetHint
from lakerunner.query.series.histograms.math import is_reset
from lakerunner.query.series.label_list import label_list
from lakerunner.query.vectors.context import Evaluation
from lakerunner.query.vectors.histograms.kernels import told_hints
from lakerunner.query.vectors.histograms.smoothed import smooth_histograms
from lakerunner.query.vectors.kernels_rate import smoothed_at
from lakerunner.query.vectors.kernels_window import latest, latest_values, mark_jumps
from lakerunner.query.vectors.samples import from_batch, stale_mask


def reference_times(evaluation: Evaluation, node: VectorSelector | Subquery, times: Ints) -> tuple[Ints, bool]:
    """The times that the node looks at, and whether they are one time for all steps (with `@`).

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
class Latest:
    """The sample shown at every step: its place in the batch, or -1."""

    batch: SeriesBatch
    index: Ints
    #: The same for all steps, and so computed once.
    fixed: bool


def select(
    evaluation: Evaluation,
    node: VectorSelector,
    start_ms: int,
    end_ms: int,
    windows: tuple[Ints, Ints] | None = None,
) -> SeriesBatch:
    """The samples of a selector. `windows` are the beginnings and ends of what every step looks at."""
    evaluation.check_time()
    # The same selector often stands twice in a query: above and below a division, say.
    asked = (node.matchers, start_ms, end_ms)
    batch = evaluation.selected.get(asked)
    if batch is None:
        batch = evaluation.selected[asked] = evaluation.source.select(*asked)
        evaluation.check_series(len(batch.labels))
        evaluation.spend(len(batch.values))
    if evaluation.histogram_stats and batch.histograms is not None:
        return _counts_and_sums(batch, windows)
    return batch


def _counts_and_sums(batch: SeriesBatch, windows: tuple[Ints, Ints] | None) -> SeriesBatch:
    """Without buckets; so the hints are worked out here against the sample before, where the store did not know.

    Where a window begins after the last sample that was read, Prometheus jumps there, and what lies before is unknown.
    """
    column = batch.histograms
    assert column is not None
    hint = column.hint.copy()
    careful = np.full(len(column), -1, dtype=np.int64)
    # A float that is no stale marker makes what was before unknown, too.
    forgets = (column.row < 0) & ~stale_mask(batch.values)
    if windows is not None:
        mark_jumps(batch.offsets, batch.timestamps_ms, *windows, forgets)
    told_hints(column.arrays(), column.row, batch.offsets, forgets, hint, careful)
    for row in (careful >= 0).nonzero()[0].tolist():
        reset = is_reset(column.at(row), column.at(int(careful[row])))
        hint[row] = ResetHint.RESET if reset else ResetHint.NOT_RESET
    nothing, none = np.zeros(0), np.zeros(len(column) + 1, dtype=np.int64)
    stats = HistogramColumn(
        column.row, column.schema, hint, column.count, column.sum, np.zeros(len(column)), np.zeros(len(column)),
        none, none[:0], nothing, none, none[:0], nothing, none, nothing,
    )  # fmt: skip
    return replace(batch, histograms=stats)


def select_latest(evaluation: Evaluation, node: VectorSelector, times: Ints) -> Latest:
    batch, at, fixed = _looked_at(evaluation, node, times)
    return Latest(batch, latest_in(batch, at, evaluation.options.lookback_ms), fixed)


def _looked_at(evaluation: Evaluation, node: VectorSelector, times: Ints) -> tuple[SeriesBatch, Ints, bool]:
    """The samples that an instant selector may show, and its reference times."""
    at, fixed = reference_times(evaluation, node, times)
    lookback_ms = evaluation.options.lookback_ms
    batch = select(evaluation, node, int(at[0]) - lookback_ms + 1, int(at[-1]), (at - lookback_ms, at))
    evaluation.spend(len(batch.labels) * len(at))
    return batch, at, fixed


def latest_in(batch: SeriesBatch, at: Ints, lookback_ms: int) -> Ints:
    stale = stale_mask(batch.values)
    if batch.histograms is not None:
        column = batch.histograms
        held = column.row >= 0
        stale[held] = stale_mask(column.sum)[column.row[held]]
    return latest(batch.offsets, batch.timestamps_ms, stale, at, lookback_ms)


def vector(evaluation: Evaluation, node: VectorSelector, times: Ints) -> Block:
    """An instant selector at every step."""
    if node.smoothed:
        return _smoothed(evaluation, node, times)
    batch, at, fixed = _looked_at(evaluation, node, times)
    lookback_ms = evaluation.options.lookback_ms
    if batch.histograms is None:
        block = _latest_floats(batch, at, lookback_ms)
    else:
        index = latest_in(batch, at, lookback_ms)
        evaluation.spend_histograms(int((batch.histograms.row[index[index >= 0]] >= 0).sum()))
        block = latest_block(batch, index)
    return repeated(evaluation, block, len(times)) if fixed else block


def repeated(evaluation: Evaluation, block: Block, steps: int) -> Block:
    """The one step of a block, at every step of the query."""
    evaluation.spend(len(block.labels) * steps)
    return block.repeated(steps)


def _latest_floats(batch: SeriesBatch, at: Ints, lookback_ms: int) -> Block:
    shape = len(batch.offsets) - 1, len(at)
    out, ok = np.empty(shape), np.empty(shape, dtype=bool)
    bits = batch.values.view(np.uint64)
    latest_values(
        batch.offsets, batch.timestamps_ms, batch.values, bits, np.uint64(STALE_BITS), at, lookback_ms, out, ok
    )
    return Block(label_list(batch.labels), out, ok, np.zeros(shape[0], dtype=bool)).pruned()


def latest_block(batch: SeriesBatch, index: Ints) -> Block:
    valid = index >= 0
    values = batch.values[index] if len(batch.values) else np.zeros(index.shape)
    block = Block(label_list(batch.labels), values, valid, np.zeros(len(batch.labels), dtype=bool))
    if batch.histograms is not None:
        column = batch.histograms
        row = np.where(valid, column.row[index], -1)
        hmask = row >= 0
        if hmask.any():
            hists = HistogramGrid(column, row)
            block = Block(block.labels, values, valid & ~hmask, block.drop_name, hists, hmask)
    return block.pruned()


def _smoothed(evaluation: Evaluation, node: VectorSelector, times: Ints) -> Block:
    at, fixed = reference_times(evaluation, node, times)
    lookback_ms = evaluation.options.lookback_ms
    batch = select(evaluation, node, int(at[0]) - lookback_ms + 1, int(at[-1]) + lookback_ms)
    samples = from_batch(batch)
    evaluation.spend(len(samples.labels) * len(at))
    out = np.zeros((len(samples.labels), len(at)))
    ok = np.zeros(out.shape, dtype=bool)
    smoothed_at(samples.floats.offsets, samples.floats.ts, samples.values, at, lookback_ms, out, ok)
    block = Block(samples.labels, out, ok, samples.drop_name)
    if samples.has_histograms:
        block = smooth_histograms(evaluation, node, samples, block, at)
    block = block.pruned()
    return repeated(evaluation, block, len(times)) if fixed else block
