"""Samples of several segments as one batch: each series once, in order of time, each moment once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from lakerunner.model.labels import LabelSet
from lakerunner.query.promql.histogram import Ints
from lakerunner.query.promql.source import SeriesBatch
from lakerunner.query.scan.histograms import concatenated
from lakerunner.query.scan.samples import Samples, offsets_of, with_rows, within

Array = npt.NDArray[Any]


def merge(parts: Sequence[Samples]) -> SeriesBatch:
    """All parts together. Where two have the same moment of a series, the earlier part's sample stays."""
    parts = [part for part in parts if len(part)]
    if not parts:
        return SeriesBatch.empty()
    if len(parts) == 1 and _is_batch(parts[0]):
        return _batch(parts[0])
    return _batch(_once(_gathered(parts)))


def concatenate(parts: Sequence[Samples]) -> Samples:
    """The series of all parts, one part after another. A series of two parts is there twice."""
    if len(parts) < 2:
        return parts[0] if parts else Samples.none()
    sizes = [len(part) for part in parts]
    starts = None
    if any(part.start_timestamps_ms is not None for part in parts):
        starts = np.concatenate(
            [
                np.zeros(len(part), np.int64) if part.start_timestamps_ms is None else part.start_timestamps_ms
                for part in parts
            ]
        )
    histograms = None
    if any(part.histograms is not None for part in parts):
        histograms = concatenated([part.histograms for part in parts], sizes)
    return Samples(
        np.concatenate([part.tids for part in parts]),
        [labels for part in parts for labels in part.labels],
        offsets_of(np.concatenate([np.diff(part.offsets) for part in parts])),
        np.concatenate([part.timestamps_ms for part in parts]),
        np.concatenate([part.values for part in parts]),
        starts,
        histograms,
    )


def _is_batch(part: Samples) -> bool:
    lengths = np.diff(part.offsets)
    unique = len(np.unique(part.tids)) == len(part.tids)
    return bool(unique and (lengths > 0).all() and _ascending(part.offsets, part.timestamps_ms))


def _batch(samples: Samples) -> SeriesBatch:
    return SeriesBatch(
        samples.labels,
        samples.offsets,
        samples.timestamps_ms,
        samples.values,
        samples.start_timestamps_ms,
        samples.histograms,
    )


def _gathered(parts: Sequence[Samples]) -> Samples:
    """The runs of each series beside each other, earlier ones first. Runs may still overlap."""
    tids = np.concatenate([part.tids for part in parts])
    lengths = np.concatenate([np.diff(part.offsets) for part in parts])
    part_of = np.repeat(np.arange(len(parts)), [len(part.tids) for part in parts])
    first_ms = np.concatenate([_firsts(part) for part in parts])
    distinct, first_row, series = np.unique(tids, return_index=True, return_inverse=True)
    order = np.lexsort((part_of, first_ms, series))
    to = np.empty(len(tids), np.int64)
    to[order] = offsets_of(lengths[order])[:-1]
    total = int(lengths.sum())

    def moved(arrays: Sequence[Array | None], kind: type) -> Array:
        out = np.zeros(total, kind)
        row = 0
        for part, array in zip(parts, arrays, strict=True):
            if array is not None:
                _copy_runs(array, part.offsets, to[row : row + len(part.tids)], out)
            row += len(part.tids)
        return out

    histograms = None
    if any(part.histograms is not None for part in parts):
        joined = concatenated([part.histograms for part in parts], [len(part) for part in parts])
        ends = np.cumsum([len(part) for part in parts])
        rows = np.split(joined.row, ends[:-1])
        histograms = with_rows(joined, moved(rows, np.int64))
    labels = _labels(parts, first_row)
    offsets = offsets_of(np.bincount(series, weights=lengths, minlength=len(distinct)).astype(np.int64))
    has_starts = any(part.start_timestamps_ms is not None for part in parts)
    return Samples(
        distinct,
        labels,
        offsets,
        moved([part.timestamps_ms for part in parts], np.int64),
        moved([part.values for part in parts], np.float64),
        moved([part.start_timestamps_ms for part in parts], np.int64) if has_starts else None,
        histograms,
    )


def _labels(parts: Sequence[Samples], rows: Ints) -> list[LabelSet]:
    if len(parts) == 1:
        return [parts[0].labels[row] for row in rows.tolist()]
    whole = [labels for part in parts for labels in part.labels]
    return [whole[row] for row in rows.tolist()]


def _once(samples: Samples) -> Samples:
    """Sorted by time within each series, and each moment once. Most often both are so already."""
    if _ascending(samples.offsets, samples.timestamps_ms):
        return samples
    untidy = np.flatnonzero(_untidy(samples.offsets, samples.timestamps_ms))
    lengths = np.diff(samples.offsets)
    at = within(samples.offsets[untidy], lengths[untidy])
    series = np.repeat(untidy, lengths[untidy])
    times = samples.timestamps_ms[at]
    order = np.lexsort((times, series))
    source = np.arange(len(samples))
    source[at] = at[order]
    keep = np.ones(len(samples), np.bool_)
    sorted_times, sorted_series = times[order], series[order]
    again = (sorted_times[1:] == sorted_times[:-1]) & (sorted_series[1:] == sorted_series[:-1])
    keep[at[1:][again]] = False
    source = source[keep]
    kept = np.add.reduceat(keep, samples.offsets[:-1], dtype=np.int64)
    starts, histograms = samples.start_timestamps_ms, samples.histograms
    return Samples(
        samples.tids,
        samples.labels,
        offsets_of(kept),
        samples.timestamps_ms[source],
        samples.values[source],
        None if starts is None else starts[source],
        None if histograms is None else with_rows(histograms, histograms.row[source]),
    )


def _firsts(part: Samples) -> Ints:
    """The first time of each series; of one without samples, anything."""
    firsts: Ints = part.timestamps_ms[np.minimum(part.offsets[:-1], len(part) - 1)]
    return firsts


@njit(cache=True, nogil=True)
def _copy_runs(source, offsets, to, out):  # type: ignore[no-untyped-def]
    for i in range(len(offsets) - 1):
        place = to[i]
        for at in range(offsets[i], offsets[i + 1]):
            out[place] = source[at]
            place += 1


@njit(cache=True, nogil=True)
def _ascending(offsets, times):  # type: ignore[no-untyped-def]
    for i in range(len(offsets) - 1):
        for at in range(offsets[i] + 1, offsets[i + 1]):
            if times[at] <= times[at - 1]:
                return False
    return True


@njit(cache=True, nogil=True)
def _untidy(offsets, times):  # type: ignore[no-untyped-def]
    out = np.zeros(len(offsets) - 1, np.bool_)
    for i in range(len(offsets) - 1):
        for at in range(offsets[i] + 1, offsets[i + 1]):
            if times[at] <= times[at - 1]:
                out[i] = True
                break
    return out
