"""Merges the samples of several segments into one batch: each series once, ordered by time, without duplicate times."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash
from numba import njit

from lakerunner.query.scan.samples.histograms import concatenated
from lakerunner.query.scan.samples.runs import Samples, within
from lakerunner.query.scan.samples.series_table import SeriesTable, TableLabels
from lakerunner.query.series.arrays import allocated, offsets_of
from lakerunner.query.series.batch import SeriesBatch
from lakerunner.query.series.histograms.column import with_rows
from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.query.series.label_columns import LabelColumns
from lakerunner.query.series.label_columns import concatenated as concatenated_labels
from lakerunner.query.series.label_list import LabelList, in_order
from lakerunner.query.series.rollup import Rollup, rollup_of_raw
from lakerunner.runtime.byte_lru import ByteLru

Array = npt.NDArray[Any]

_KNOWN_BYTES, _ORDERS_BYTES = 64 << 20, 256 << 20


def merge(parts: Sequence[Samples], org_id: uuid.UUID, since_ms: int = 0) -> SeriesBatch:
    """Merge all parts. Series are ordered by their labels, as in Prometheus.

    `org_id` is the owner of the samples: the id of a series identifies its labels only within an org.
    `since_ms` is the earliest time of the query: starts before it are left out if they carry no information.
    If two parts have a sample of the same series and time, the earlier part's sample stays.
    """
    parts = [part for part in parts if len(part)]
    if not parts:
        return SeriesBatch.empty()
    if len(parts) == 1 and parts[0].merged:
        return _batch(parts[0])
    gathered, tidy = _gathered(parts, _known_series(parts, org_id), since_ms)
    return _batch(gathered if tidy else _once(gathered))


def joined(parts: Sequence[Samples], org_id: uuid.UUID) -> Samples:
    """All parts as one that `merge` need not merge again, for a query of any time."""
    parts = [part for part in parts if len(part)]
    if not parts:
        return Samples.none()
    gathered, tidy = _gathered(parts, _known_series(parts, org_id), since_ms=0)
    return replace(gathered if tidy else _once(gathered), merged=True)


def _batch(samples: Samples) -> SeriesBatch:
    return SeriesBatch(
        samples.labels,
        samples.offsets,
        samples.timestamps_ms,
        samples.values,
        samples.start_timestamps_ms,
        samples.histograms,
        samples.may_be_stale,
        samples.rollup,
    )


def _gathered(parts: Sequence[Samples], series_of: Known, since_ms: int) -> tuple[Samples, bool]:
    """The runs of each series next to each other, earlier ones first; and whether times ascend within each series."""
    places = [part.places for part in parts]
    lengths = np.concatenate([np.diff(part.offsets) for part in parts])
    first_ms = np.concatenate([part.timestamps_ms[place] for part, place in zip(parts, places, strict=True)])
    last_ms = np.concatenate(
        [part.timestamps_ms[place + np.diff(part.offsets) - 1] for part, place in zip(parts, places, strict=True)]
    )
    series = series_of.place
    order, tidy = _order_of_runs(series, first_ms, last_ms, parts)
    to = np.empty(len(series), np.int64)
    to[order] = offsets_of(lengths[order])[:-1]
    counts = np.cumsum([len(part.tids) for part in parts])[:-1]
    targets = np.split(to, counts)

    times = allocated(int(lengths.sum()), np.int64)
    for part, place, target in zip(parts, places, targets, strict=True):
        tidy &= bool(_copy_times(part.timestamps_ms, place, np.diff(part.offsets), target, times))

    def moved(arrays: Sequence[Array | None], kind: type) -> Array:
        out = allocated(len(times), kind)
        for part, array, place, target in zip(parts, arrays, places, targets, strict=True):
            if array is None:
                _fill_runs(np.zeros(len(part.tids), np.int64), np.diff(part.offsets), target, out)
            else:
                _copy_runs(array, place, np.diff(part.offsets), target, out)
        return out

    histograms = None
    if any(part.histograms is not None for part in parts):
        joined = concatenated([part.histograms for part in parts], [len(part.timestamps_ms) for part in parts])
        rows = np.split(joined.row, np.cumsum([len(part.timestamps_ms) for part in parts])[:-1])
        histograms = with_rows(joined, moved(rows, np.int64))
    starts = None
    if any(part.has_starts for part in parts) and not _starts_are_redundant(parts, series, since_ms):
        starts = moved([part.start_timestamps_ms for part in parts], np.int64)
        for part, target in zip(parts, targets, strict=True):
            if part.run_starts_ms is not None:
                _fill_runs(part.run_starts_ms, np.diff(part.offsets), target, starts)
    samples = Samples(
        series_of.tids,
        series_of.labels,
        offsets_of(np.bincount(series, weights=lengths, minlength=len(series_of.tids)).astype(np.int64)),
        times,
        moved([part.values for part in parts], np.float64),
        starts,
        histograms,
        may_be_stale=any(part.may_be_stale for part in parts),
        rollup=_rollup(parts, moved),
    )
    return samples, tidy


def _rollup(parts: Sequence[Samples], moved: Callable[[Sequence[Array | None], type], Array]) -> Rollup | None:
    """What the samples stand for, if any part is of a tier. Raw samples stand for themselves."""
    need = next((part.rollup.need for part in parts if part.rollup is not None), None)
    if need is None:
        return None
    if not all(part.rollup is None or part.rollup.derivable for part in parts):
        # Nobody reads it. The parts may differ in what they have.
        return Rollup(need, moved([None] * len(parts), np.int64), (), derivable=False)
    each = [rollup_of_raw(need, part.values) if part.rollup is None else part.rollup for part in parts]
    return Rollup(
        need,
        moved([one.count for one in each], np.int64),
        tuple(moved(list(of_parts), np.float64) for of_parts in zip(*(one.aggregates for one in each), strict=True)),
    )


def _order_of_runs(series: Ints, first_ms: Ints, last_ms: Ints, parts: Sequence[Samples]) -> tuple[Ints, bool]:
    """The order of runs by series and time; and whether each run of a series begins after the previous one ended.

    Parts usually arrive ordered by time, so a stable sort by series alone is usually enough.
    """
    order = np.argsort(series, kind="stable")
    if _runs_ascend(series[order], first_ms[order], last_ms[order]):
        return order, True
    by_time = np.lexsort((np.arange(len(series)), first_ms, series))
    if _runs_ascend(series[by_time], first_ms[by_time], last_ms[by_time]):
        return by_time, True
    # The samples must be sorted anyway. In the order of parts, so that of two equal times the earlier part's is first.
    return order, False


def _starts_are_redundant(parts: Sequence[Samples], series: Ints, since_ms: int) -> bool:
    """Whether every series has one constant start before the query's time, so that no start marks a reset."""
    if any(part.run_starts_ms is None for part in parts):
        return False
    starts = np.concatenate([part.run_starts_ms for part in parts if part.run_starts_ms is not None])
    if not len(starts) or int(starts.max()) >= since_ms:
        return False
    of_series = np.empty(int(series.max()) + 1, np.int64)
    of_series[series] = starts
    return bool((of_series[series] == starts).all())


def _runs_ascend(series: Ints, first_ms: Ints, last_ms: Ints) -> bool:
    """Whether each run of a series begins after the previous run of that series ended."""
    return not bool(((series[1:] == series[:-1]) & (first_ms[1:] <= last_ms[:-1])).any())


@dataclass(frozen=True, slots=True)
class Known:
    """The series of some parts, ordered by their labels, and the index of each run's series."""

    tids: Ints
    labels: LabelList
    place: Ints


def _known_series(parts: Sequence[Samples], org_id: uuid.UUID) -> Known:
    """Cached for recently queried sets of series: sorting labels costs more than reading samples."""
    tids = np.concatenate([part.tids for part in parts])
    key = org_id.bytes + xxhash.xxh3_128_digest(tids.data)
    known = _KNOWN.get(key)
    if known is None:
        known = _known(tids, parts, org_id)
        _KNOWN.put(key, known, 8 * len(tids))
    return known


def _known(tids: Ints, parts: Sequence[Samples], org_id: uuid.UUID) -> Known:
    distinct, first_run, place = np.unique(tids, return_index=True, return_inverse=True)
    key = org_id.bytes + xxhash.xxh3_128_digest(distinct.data)
    ordered = _ORDERS.get(key)
    if ordered is None:
        ordered = _ordered(_labels_of(distinct, first_run, parts))
        _ORDERS.put(key, ordered, ordered[1].size_bytes)
    rank, labels = ordered
    tids = np.empty(len(labels), np.int64)
    tids[rank] = distinct
    return Known(tids, labels, rank[place])


def _ordered(labels: LabelList) -> tuple[Ints, LabelList]:
    """Each id's place in the order of labels, and the labels in that order.

    Ids with equal labels share a place. A series has two ids if some of its segments are older than the key of the ids,
    or if it was sent as a series of its own and as part of a histogram.
    """
    order = in_order(labels)
    if order is not None:
        # Not `take` where there are columns: the taken rows would keep the unordered list in memory.
        columns = labels.columns
        labels = labels.take(order) if columns is None else LabelList.of_columns(columns.take(order))
    new = ~_repeats(labels)
    rank = np.empty(len(labels), np.int64)
    rank[slice(None) if order is None else order] = np.cumsum(new) - 1
    return rank, labels if new.all() else LabelList(labels.take(np.flatnonzero(new)))


def _repeats(labels: LabelList) -> npt.NDArray[np.bool_]:
    if labels.columns is not None:
        return labels.columns.repeats()
    return np.array([False, *(one == before for before, one in pairwise(labels))][: len(labels)], np.bool_)


def _labels_of(tids: Ints, runs: Ints, parts: Sequence[Samples]) -> LabelList:
    """The labels of some series. Each series' labels come from its first run."""
    ends = np.cumsum([len(part.tids) for part in parts])
    part_of = np.searchsorted(ends, runs, side="right")
    # Usually one source: the labels of the same series in later segments are not read.
    sources: dict[int, SeriesTable | LabelColumns] = {}
    source_of_part = np.zeros(len(parts), np.int64)
    for number in np.unique(part_of).tolist():
        labels = parts[number].labels
        source = labels.table if isinstance(labels, TableLabels) else getattr(labels, "columns", None)
        if source is None:
            all_labels = [each for part in parts for each in part.labels]
            return LabelList([all_labels[run] for run in runs.tolist()])
        sources[id(source)] = source
        source_of_part[number] = id(source)
    begins = ends - [len(part.tids) for part in parts]
    columns, indexes = [], []
    for known, source in sources.items():
        index = np.flatnonzero(source_of_part[part_of] == known)
        indexes.append(index)
        if isinstance(source, LabelColumns):
            columns.append(source.take(runs[index] - begins[part_of[index]]))
        else:
            columns.append(source.columns(source.rows_of(tids[index])))
    if len(columns) == 1:
        return LabelList.of_columns(columns[0])
    back = np.empty(len(tids), np.int64)
    back[np.concatenate(indexes)] = np.arange(len(tids))
    return LabelList.of_columns(concatenated_labels(columns).take(back))


#: By the org and the ids of all runs.
_KNOWN: ByteLru[Known] = ByteLru(_KNOWN_BYTES)
#: By the org and the distinct ids, which queries of many time ranges share.
_ORDERS: ByteLru[tuple[Ints, LabelList]] = ByteLru(_ORDERS_BYTES)


def _once(samples: Samples) -> Samples:
    """Sort each series by time and drop duplicate times."""
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
        rollup=None if samples.rollup is None else samples.rollup.at(source),
    )


@njit(cache=True, nogil=True)
def _copy_runs(source, begins, lengths, to, out):  # type: ignore[no-untyped-def]
    for i in range(len(begins)):
        place, begin = to[i], begins[i]
        for at in range(lengths[i]):
            out[place + at] = source[begin + at]


@njit(cache=True, nogil=True)
def _copy_times(source, begins, lengths, to, out):  # type: ignore[no-untyped-def]
    """Like `_copy_runs`. Returns whether times ascend strictly within every run."""
    descents = 0
    for i in range(len(begins)):
        place, begin = to[i], begins[i]
        out[place] = source[begin]
        for at in range(1, lengths[i]):
            out[place + at] = source[begin + at]
            descents += source[begin + at] <= source[begin + at - 1]
    return descents == 0


@njit(cache=True, nogil=True)
def _fill_runs(values, lengths, to, out):  # type: ignore[no-untyped-def]
    for i in range(len(lengths)):
        out[to[i] : to[i] + lengths[i]] = values[i]


@njit(cache=True, nogil=True)
def _untidy(offsets, times):  # type: ignore[no-untyped-def]
    out = np.zeros(len(offsets) - 1, np.bool_)
    for i in range(len(offsets) - 1):
        for at in range(offsets[i] + 1, offsets[i + 1]):
            if times[at] <= times[at - 1]:
                out[i] = True
                break
    return out
