"""Reading the samples of a selector: once per evaluation, within the query's limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lakerunner.query.series.batch import SeriesBatch
from lakerunner.query.series.histograms.column import HistogramColumn
from lakerunner.query.series.histograms.histogram import Ints, ResetHint
from lakerunner.query.series.histograms.math import is_reset
from lakerunner.query.series.matchers import Matcher
from lakerunner.query.series.reading import RAW, Reading
from lakerunner.query.vectors.context import Evaluation
from lakerunner.query.vectors.histograms.kernels import detect_resets
from lakerunner.query.vectors.kernels_window import mark_jumps
from lakerunner.query.vectors.range_samples import stale_mask


def select(
    evaluation: Evaluation,
    matchers: tuple[Matcher, ...],
    start_ms: int,
    end_ms: int,
    windows: tuple[Ints, Ints] | None = None,
    reading: Reading = RAW,
) -> SeriesBatch:
    """Read samples from `start_ms` to `end_ms`. `windows`: where the window of every step begins and ends."""
    evaluation.check_time()
    # Queries often repeat a selector, for instance on both sides of a division.
    key = (matchers, start_ms, end_ms, reading)
    batch = evaluation.selected.get(key)
    if batch is None:
        batch = evaluation.source.select(*key)
        if batch.rollup is not None and not batch.rollup.derivable:
            batch = evaluation.source.select(matchers, start_ms, end_ms, RAW)
        evaluation.selected[key] = batch
        evaluation.check_series(len(batch.labels))
        evaluation.spend(len(batch.values))
    if evaluation.histogram_stats and batch.histograms is not None:
        return _counts_and_sums(batch, windows)
    return batch


def _counts_and_sums(batch: SeriesBatch, windows: tuple[Ints, Ints] | None) -> SeriesBatch:
    """Remove the buckets. Unknown reset hints are determined first, while the buckets are still there.

    Where a window begins after the last sample read so far, Prometheus skips ahead to it and forgets the sample
    before, so that the hint stays unknown.
    """
    column = batch.histograms
    assert column is not None
    hint = column.hint.copy()
    previous_row = np.full(len(column), -1, dtype=np.int64)
    # A float between two histograms makes the hint unknown, too, unless the float is a stale marker.
    forgets = (column.row < 0) & ~stale_mask(batch.values)
    if windows is not None:
        mark_jumps(batch.offsets, batch.timestamps_ms, *windows, forgets)
    detect_resets(column.arrays(), column.row, batch.offsets, forgets, hint, previous_row)
    for row in (previous_row >= 0).nonzero()[0].tolist():
        reset = is_reset(column.at(row), column.at(int(previous_row[row])))
        hint[row] = ResetHint.RESET if reset else ResetHint.NOT_RESET
    no_counts, no_buckets = np.zeros(0), np.zeros(len(column) + 1, dtype=np.int64)
    stats = HistogramColumn(
        column.row, column.schema, hint, column.count, column.sum, np.zeros(len(column)), np.zeros(len(column)),
        no_buckets, no_buckets[:0], no_counts, no_buckets, no_buckets[:0], no_counts, no_buckets, no_counts,
    )  # fmt: skip
    return replace(batch, histograms=stats)
