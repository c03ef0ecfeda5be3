"""Samples of selected series, floats and histograms apart, ready for windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lakerunner.model.labels import LabelSet
from lakerunner.query.series.batch import STALE_BITS, SeriesBatch
from lakerunner.query.series.block import Block, Bools
from lakerunner.query.series.histograms.column import ColumnHistograms, HistogramColumn
from lakerunner.query.series.histograms.histogram import Floats, Ints, ResetHint
from lakerunner.query.series.label_list import label_list

NO_HISTOGRAMS = ColumnHistograms(HistogramColumn.of([]), np.zeros(0, dtype=np.int64))


def stale_mask(values: Floats) -> Bools:
    """Where the value is the stale marker: by its bits, since every NaN looks the same to comparisons."""
    mask: Bools = values.view(np.uint64) == np.uint64(STALE_BITS)
    return mask


@dataclass(slots=True)
class Points:
    """One kind of sample, series after series."""

    offsets: Ints
    ts: Ints
    #: 0 where unknown; empty where known for no sample.
    starts: Ints


@dataclass(slots=True)
class Samples:
    """Range-vector material: no stale markers in it."""

    labels: Sequence[LabelSet]
    #: Whether the series' names are already to be dropped (results of subqueries).
    drop_name: Bools
    floats: Points
    values: Floats
    hist_points: Points
    hists: ColumnHistograms

    @property
    def has_histograms(self) -> bool:
        return len(self.hists) > 0


def from_batch(batch: SeriesBatch) -> Samples:
    no_drop = np.zeros(len(batch.labels), dtype=bool)
    labels = label_list(batch.labels)
    starts = batch.start_timestamps_ms
    if batch.histograms is None and not (batch.may_be_stale and stale_mask(batch.values).any()):
        none = batch.timestamps_ms[:0]
        floats = Points(batch.offsets, batch.timestamps_ms, none if starts is None else starts)
        empty = Points(np.zeros_like(batch.offsets), none, none)
        return Samples(labels, no_drop, floats, batch.values, empty, NO_HISTOGRAMS)
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
        kept = is_hist.copy()
        # A stale histogram is one whose sum is the stale marker.
        kept[is_hist] = ~stale_mask(column.sum)[column.row[is_hist]]
        hists = ColumnHistograms(column, column.row[kept])
    else:
        kept = is_hist
    is_float = ~is_hist & ~stale
    return Samples(
        labels,
        no_drop,
        _chosen(batch.offsets, batch.timestamps_ms, starts, is_float),
        batch.values[is_float],
        _chosen(batch.offsets, batch.timestamps_ms, starts, kept),
        hists,
    )


def _chosen(offsets: Ints, ts: Ints, starts: Ints, keep: Bools) -> Points:
    before = np.concatenate([[0], np.cumsum(keep)])
    return Points(before[offsets].astype(np.int64), ts[keep], starts[keep])


def from_block(block: Block, times: Ints) -> Samples:
    """The steps of a subquery as samples. Start timestamps do not pass through."""
    rows, steps = block.valid.nonzero()
    floats = _grid_points(block.valid, times[steps])
    hists = NO_HISTOGRAMS
    hist_points = Points(np.zeros(len(block.labels) + 1, dtype=np.int64), times[:0], times[:0])
    if block.hmask is not None and block.hists is not None:
        hist_rows, hist_steps = block.hmask.nonzero()
        hist_points = _grid_points(block.hmask, times[hist_steps])
        # What the store knew about the sample just before says nothing about the step before.
        told = block.hists.column.hint
        hint = np.where(told == ResetHint.GAUGE, told, np.int8(ResetHint.UNKNOWN))
        hists = ColumnHistograms(
            replace(block.hists.column, hint=hint, _made={}), block.hists.row[hist_rows, hist_steps]
        )
    return Samples(block.labels, block.drop_name, floats, block.values[rows, steps], hist_points, hists)


def _grid_points(mask: Bools, ts: Ints) -> Points:
    offsets = np.concatenate([[0], np.cumsum(mask.sum(axis=1))]).astype(np.int64)
    return Points(offsets, ts, np.zeros(len(ts), dtype=np.int64))
