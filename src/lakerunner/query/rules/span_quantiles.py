"""Quantiles of durations as TraceQL has them, from the histograms of a rule.

TraceQL leaves out spans that took less than two nanoseconds. They are in buckets of their own, so the same spans are
counted here. The value has the rank that TraceQL asks for, and lies in the bucket of the span of that rank.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lakerunner.query.rules.coverage import Bools
from lakerunner.query.series.block import Block
from lakerunner.query.series.histograms.grid import HistogramGrid
from lakerunner.query.series.histograms.histogram import Floats, Ints

#: Seconds: the bucket of one nanosecond ends before it, that of two after it.
_LEAST_S = 1.5e-9


def duration_quantiles(block: Block, quantiles: Sequence[float]) -> tuple[list[int], list[Floats]]:
    """For each series with a span that counts, its row, and a row of values per quantile; 0 where there is none."""
    if block.hists is None or block.hmask is None:
        return [], []
    rows: list[int] = []
    values: list[Floats] = []
    for row in range(len(block.labels)):
        found = _of_series(block.hists[row], block.hmask[row], quantiles)
        if found is not None:
            rows.append(row)
            values.append(found)
    return rows, values


def _of_series(grid: HistogramGrid, mask: Bools, quantiles: Sequence[float]) -> Floats | None:
    column, steps = grid.column, np.flatnonzero(mask)
    cells = grid.row[steps]
    if not len(cells):
        return None
    schema = int(column.schema[cells].min())
    lengths = np.diff(column.pos_offsets)[cells]
    ends = np.cumsum(lengths)
    places = np.arange(int(ends[-1])) + np.repeat(column.pos_offsets[cells] - ends + lengths, lengths)
    # A bucket of a finer schema lies within one of a coarser.
    index = ((column.pos_index[places] - 1) >> np.repeat(column.schema[cells].astype(np.int64) - schema, lengths)) + 1
    step, count = np.repeat(steps, lengths), column.pos_count[places]
    kept = (np.exp2(index / 2.0**schema) > _LEAST_S) & (count > 0)
    if not kept.any():
        return None
    return _interpolated(index[kept], step[kept], count[kept], len(mask), schema, quantiles)


def _interpolated(
    index: Ints, step: Ints, count: Floats, steps: int, schema: int, quantiles: Sequence[float]
) -> Floats:
    low = int(index.min())
    width = int(index.max()) - low + 1
    counts = np.bincount((index - low) * steps + step, weights=count, minlength=width * steps).reshape(width, steps)
    running = np.cumsum(counts, axis=0)
    totals, every = running[-1], np.arange(steps)
    found = np.zeros((len(quantiles), steps))
    for number, quantile in enumerate(quantiles):
        wanted = np.maximum(np.ceil(quantile * totals), 1)
        bucket = np.argmax(running >= wanted, axis=0)
        inside = counts[bucket, every]
        share = (wanted - running[bucket, every] + inside) / np.maximum(inside, 1)
        found[number] = np.where(totals > 0, np.exp2((bucket + low - 1 + share) / 2.0**schema), 0.0)
    return found
