"""Anchored and smoothed range vectors shown raw: a sample at each edge of the window, and those between."""

from __future__ import annotations

import numpy as np

from lakerunner.query.series.block import EvaluationError
from lakerunner.query.vectors.ranges import RangeVector
from lakerunner.query.vectors.samples import Points, Samples


def extended_samples(vector: RangeVector) -> Samples:
    """One window per series; histograms have no raw extended form."""
    samples = vector.samples
    if samples.has_histograms:
        word = "anchored" if vector.anchored else "smoothed"
        raise EvaluationError(f"{word} modifier is not supported with histograms")
    after, until = int(vector.after[0]), int(vector.until[0])
    pieces = [_extended(vector, row, after, until) for row in range(len(samples.labels))]
    offsets = np.concatenate([[0], np.cumsum([len(ts) for ts, _ in pieces])]).astype(np.int64)
    ts = np.concatenate([np.zeros(0, dtype=np.int64), *(ts for ts, _ in pieces)])
    values = np.concatenate([np.zeros(0), *(values for _, values in pieces)])
    points = Points(offsets, ts, np.zeros(len(ts), dtype=np.int64))
    return Samples(samples.labels, samples.drop_name, points, values, samples.hist_points, samples.hists)


def _extended(vector: RangeVector, row: int, after: int, until: int) -> tuple[np.ndarray, np.ndarray]:
    points = vector.samples.floats
    here = slice(points.offsets[row], points.offsets[row + 1])
    ts, values = points.ts[here], vector.samples.values[here]
    reach_until = until + (vector.lookback_ms if vector.smoothed else 0)
    inside = (ts > after - vector.lookback_ms) & (ts <= reach_until)
    ts, values = ts[inside], values[inside]
    nothing = np.zeros(0, dtype=np.int64), np.zeros(0)
    if not len(ts):
        return nothing
    last = len(ts) - 1
    first = max(0, min(int(np.searchsorted(ts, after, side="right")), last) - 1)
    if vector.smoothed:
        last = min(int(np.searchsorted(ts, until)), last)
    if ts[last] <= after:
        return nothing
    left, right = values[first], values[last]
    if vector.smoothed:
        left = np.interp(after, ts, values) if ts[first] < after else left
        right = np.interp(until, ts, values) if ts[last] > until else right
    between = (ts > after) & (ts < until) & (np.arange(len(ts)) >= first) & (np.arange(len(ts)) <= last)
    return np.array([after, *ts[between], until]), np.array([left, *values[between], right])
