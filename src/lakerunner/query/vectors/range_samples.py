"""The samples of selected series for range functions: floats and histograms in separate arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lakerunner.model.labels import LabelSet
from lakerunner.model.samples import STALE_BITS
from lakerunner.query.series.batch import SeriesBatch
from lakerunner.query.series.block import Block, Bools
from lakerunner.query.series.histograms.column import ColumnHistograms, HistogramColumn
from lakerunner.query.series.histograms.histogram import Floats, Ints, ResetHint
from lakerunner.query.series.label_list import label_list
from lakerunner.query.series.rollup import Rollup

NO_HISTOGRAMS = ColumnHistograms(HistogramColumn.of([]), np.zeros(0, dtype=np.int64))


def stale_mask(values: Floats) -> Bools:
    """Where the value is the stale marker. Only its bits distinguish the marker from other NaN values."""
    mask: Bools = values.view(np.uint64) == np.uint64(STALE_BITS)
    return mask


@dataclass(slots=True)
class SampleTimes:
    """The times of all floats, or of all histograms: series i has `offsets[i]` up to `offsets[i + 1]`."""

    offsets: Ints
    ts: Ints
    #: Start timestamps: 0 where unknown; empty if no sample has one.
    starts: Ints


@dataclass(slots=True)
class RangeSamples:
    """Samples without stale markers."""

    labels: Sequence[LabelSet]
    #: Series that will lose their metric name (results of subqueries).
    drop_name: Bools
    floats: SampleTimes
    values: Floats
    hist_points: SampleTimes
    hists: ColumnHistograms
    #: What the floats, and what the histograms stand for, if some are rows of tiers.
    rollup: Rollup | None = None
    hist_rollup: Rollup | None = None

    @property
    def has_histograms(self) -> bool:
        return len(self.hists) > 0


def from_batch(batch: SeriesBatch) -> RangeSamples:
    no_drop = np.zeros(len(batch.labels), dtype=bool)
    labels = label_list(batch.labels)
    starts = batch.start_timestamps_ms
    if batch.histograms is None and not (batch.may_be_stale and stale_mask(batch.values).any()):
        none = batch.timestamps_ms[:0]
        floats = SampleTimes(batch.offsets, batch.timestamps_ms, none if starts is None else starts)
        empty = SampleTimes(np.zeros_like(batch.offsets), none, none)
        return RangeSamples(labels, no_drop, floats, batch.values, empty, NO_HISTOGRAMS, batch.rollup)
    stale = stale_mask(batch.values)
    if starts is None:
        starts = np.zeros(len(batch.values), dtype=np.int64)
    if batch.histograms is None:
        is_hist = np.zeros(len(stale), dtype=bool)
    else:
        is_hist = batch.histograms.row >= 0
        stale &= ~is_hist
    column = batch.histograms
    hists = NO_HISTOGRAMS
    if column is not None:
        # The sum of a stale histogram is the stale marker.
        live_hist = is_hist.copy()
        live_hist[is_hist] = ~stale_mask(column.sum)[column.row[is_hist]]
        hists = ColumnHistograms(column, column.row[live_hist])
    else:
        live_hist = is_hist
    is_float = ~is_hist & ~stale
    return RangeSamples(
        labels,
        no_drop,
        _times_of(batch.offsets, batch.timestamps_ms, starts, is_float),
        batch.values[is_float],
        _times_of(batch.offsets, batch.timestamps_ms, starts, live_hist),
        hists,
        None if batch.rollup is None else batch.rollup.at(is_float),
        None if batch.rollup is None else batch.rollup.at(live_hist),
    )


def _times_of(offsets: Ints, ts: Ints, starts: Ints, keep: Bools) -> SampleTimes:
    before = np.concatenate([[0], np.cumsum(keep)])
    return SampleTimes(before[offsets].astype(np.int64), ts[keep], starts[keep])


def from_block(block: Block, times: Ints) -> RangeSamples:
    """The steps of a block as samples. Start timestamps are lost."""
    rows, steps = block.valid.nonzero()
    floats = _grid_points(block.valid, times[steps])
    hists = NO_HISTOGRAMS
    hist_points = SampleTimes(np.zeros(len(block.labels) + 1, dtype=np.int64), times[:0], times[:0])
    if block.hmask is not None and block.hists is not None:
        hist_rows, hist_steps = block.hmask.nonzero()
        hist_points = _grid_points(block.hmask, times[hist_steps])
        # A stored hint refers to the sample before, which need not be the value at the step before.
        stored = block.hists.column.hint
        hint = np.where(stored == ResetHint.GAUGE, stored, np.int8(ResetHint.UNKNOWN))
        hists = ColumnHistograms(
            replace(block.hists.column, hint=hint, _built={}), block.hists.row[hist_rows, hist_steps]
        )
    return RangeSamples(block.labels, block.drop_name, floats, block.values[rows, steps], hist_points, hists)


def _grid_points(mask: Bools, ts: Ints) -> SampleTimes:
    offsets = np.concatenate([[0], np.cumsum(mask.sum(axis=1))]).astype(np.int64)
    return SampleTimes(offsets, ts, np.zeros(len(ts), dtype=np.int64))
