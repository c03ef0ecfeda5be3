"""Instant vectors: the latest sample of every series at every step, or a value interpolated around the step."""

from __future__ import annotations

import numpy as np

from lakerunner.model.samples import STALE_BITS
from lakerunner.query.series.batch import SeriesBatch
from lakerunner.query.series.block import Block
from lakerunner.query.series.histograms.grid import HistogramGrid
from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.query.series.label_list import label_list
from lakerunner.query.series.matchers import Matcher
from lakerunner.query.series.reading import Need, Reading
from lakerunner.query.vectors.context import Evaluation
from lakerunner.query.vectors.histograms.smoothed import smooth_histograms
from lakerunner.query.vectors.kernels_rate import smoothed_at
from lakerunner.query.vectors.kernels_window import latest, latest_values
from lakerunner.query.vectors.range_samples import from_batch, stale_mask
from lakerunner.query.vectors.selection import select


def select_latest(evaluation: Evaluation, matchers: tuple[Matcher, ...], at: Ints) -> SeriesBatch:
    """Read the samples that may be the latest ones at the times `at`."""
    lookback_ms = evaluation.options.lookback_ms
    reading = Reading.of(Need.KEPT, "the selector", at, 0, evaluation.options.max_tier_s)
    batch = select(evaluation, matchers, int(at[0]) - lookback_ms + 1, int(at[-1]), (at - lookback_ms, at), reading)
    evaluation.spend(len(batch.labels) * len(at))
    return batch


def latest_samples(batch: SeriesBatch, at: Ints, lookback_ms: int) -> Ints:
    """One row per series, one cell per time: the index of the latest sample, or -1 if it is stale or too old."""
    stale = stale_mask(batch.values)
    if batch.histograms is not None:
        column = batch.histograms
        is_histogram = column.row >= 0
        stale[is_histogram] = stale_mask(column.sum)[column.row[is_histogram]]
    return latest(batch.offsets, batch.timestamps_ms, stale, at, lookback_ms)


def latest_vector(evaluation: Evaluation, matchers: tuple[Matcher, ...], at: Ints) -> Block:
    """The latest values at the times `at`."""
    batch = select_latest(evaluation, matchers, at)
    lookback_ms = evaluation.options.lookback_ms
    if batch.histograms is None:
        return _latest_floats(batch, at, lookback_ms)
    index = latest_samples(batch, at, lookback_ms)
    evaluation.spend_histograms(int((batch.histograms.row[index[index >= 0]] >= 0).sum()))
    return _block_of(batch, index)


def _latest_floats(batch: SeriesBatch, at: Ints, lookback_ms: int) -> Block:
    shape = len(batch.offsets) - 1, len(at)
    out, ok = np.empty(shape), np.empty(shape, dtype=bool)
    bits = batch.values.view(np.uint64)
    latest_values(
        batch.offsets, batch.timestamps_ms, batch.values, bits, np.uint64(STALE_BITS), at, lookback_ms, out, ok
    )
    return Block(label_list(batch.labels), out, ok, np.zeros(shape[0], dtype=bool)).pruned()


def _block_of(batch: SeriesBatch, index: Ints) -> Block:
    """The block whose cells are the samples at `index`; cells with -1 are empty."""
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


def smoothed_vector(evaluation: Evaluation, matchers: tuple[Matcher, ...], at: Ints, position: int) -> Block:
    """The values at the times `at`, interpolated between the samples before and after each."""
    lookback_ms = evaluation.options.lookback_ms
    reading = Reading.of(Need.RAW, "a smoothed selector", at, 0, evaluation.options.max_tier_s)
    start_ms, end_ms = int(at[0]) - lookback_ms + 1, int(at[-1]) + lookback_ms
    batch = select(evaluation, matchers, start_ms, end_ms, reading=reading)
    samples = from_batch(batch)
    evaluation.spend(len(samples.labels) * len(at))
    out = np.zeros((len(samples.labels), len(at)))
    ok = np.zeros(out.shape, dtype=bool)
    smoothed_at(samples.floats.offsets, samples.floats.ts, samples.values, at, lookback_ms, out, ok)
    block = Block(samples.labels, out, ok, samples.drop_name)
    if samples.has_histograms:
        block = smooth_histograms(evaluation, samples, block, at, position)
    return block.pruned()


def repeated(evaluation: Evaluation, block: Block, steps: int) -> Block:
    """A block of one step, repeated for every step of the query."""
    evaluation.spend(len(block.labels) * steps)
    return block.repeated(steps)
