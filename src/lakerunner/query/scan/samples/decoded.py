"""A decoded row group of a samples file: arrays that give fast access to the samples of any series and time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

from lakerunner.model.samples import STALE_BITS
from lakerunner.query.scan.samples import histograms
from lakerunner.query.scan.samples.rollups import rollup_of, with_aggregates
from lakerunner.query.scan.samples.runs import Samples
from lakerunner.query.scan.samples.sketched import sketched
from lakerunner.query.series.histograms.histogram import Floats, Ints
from lakerunner.query.series.reading import Need


@dataclass(frozen=True, slots=True)
class ClassicGroup:
    """The classic series with one suffix of a row group's histograms. Run i derives from the histogram `parents[i]`."""

    samples: Samples
    parents: Ints
    #: For buckets: the index in `les` of run i's bound.
    le_of: Ints
    les: list[str]


@dataclass(slots=True)
class DecodedGroup:
    """All samples of a row group, without labels: one run per series."""

    samples: Samples
    #: Suffix -> the classic series, made on first use. Two threads may make them twice, with the same result.
    classic: dict[str, ClassicGroup] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """The size, with that of the classic series that queries of histograms usually need."""
        return self.samples.size_bytes * (2 if self.samples.histograms is not None else 1)


def decoded(table: pa.Table, need: Need | None = None) -> DecodedGroup:
    """Decode the columns of one row group, which is sorted by series and time. With a need, it is a tier's."""
    if need is Need.SKETCH:
        return DecodedGroup(sketched(table))
    if need is not None:
        table = with_aggregates(table, need)
    tids = _ints(table, "tid")
    begins = np.append(0, np.flatnonzero(tids[1:] != tids[:-1]) + 1) if len(tids) else np.zeros(0, np.int64)
    column, sumless = None, None
    if "h_schema" in table.column_names:
        column, sumless = histograms.column_of(table)
    values = _values(table)
    whole = Samples(
        tids[begins],
        [],
        np.append(begins, len(tids)),
        _ints(table, "timestamp"),
        values,
        _ints(table, "start_timestamp") if "start_timestamp" in table.column_names else None,
        column if column is not None and len(column) else None,
        sumless if sumless is not None and sumless.any() else None,
        may_be_stale=bool((values.view(np.uint64) == np.uint64(STALE_BITS)).any()),
        rollup=None if need is None else rollup_of(table, need),
    )
    return DecodedGroup(with_run_starts(whole))


def choose(
    samples: Samples, keep: npt.NDArray[np.bool_], start_ms: int | None, end_ms: int | None
) -> tuple[Samples, Ints]:
    """The runs to keep, clipped to a time range with both ends included, and their indexes. None: no limit there."""
    runs = np.flatnonzero(keep)
    begins, lengths = samples.places[runs], np.diff(samples.offsets)[runs]
    if start_ms is not None or end_ms is not None:
        earliest = -(1 << 62) if start_ms is None else start_ms
        latest = 1 << 62 if end_ms is None else end_ms
        begins, lengths = begins.copy(), lengths.copy()
        _clip_runs(samples.timestamps_ms, earliest, latest, begins, lengths)
        some = lengths > 0
        runs, begins, lengths = runs[some], begins[some], lengths[some]
    return samples.chosen(runs, begins, lengths), runs


def contained(tids: Ints, wanted: Ints) -> npt.NDArray[np.bool_]:
    """Whether each id is among the wanted ones, which must be sorted."""
    if not len(wanted):
        return np.zeros(len(tids), np.bool_)
    at = np.minimum(np.searchsorted(wanted, tids), len(wanted) - 1)
    found: npt.NDArray[np.bool_] = wanted[at] == tids
    return found


@njit(cache=True, nogil=True)
def _clip_runs(times, start_ms, end_ms, begins, lengths):  # type: ignore[no-untyped-def]
    """Clip every run to the time range. By binary search, because runs are long."""
    for i in range(len(begins)):
        first, last = begins[i], begins[i] + lengths[i]
        lo, hi = first, last
        if lo < hi and times[lo] < start_ms:
            while lo < hi:
                middle = (lo + hi) // 2
                if times[middle] < start_ms:
                    lo = middle + 1
                else:
                    hi = middle
        first = lo
        hi = last
        if lo < hi and times[hi - 1] > end_ms:
            while lo < hi:
                middle = (lo + hi) // 2
                if times[middle] <= end_ms:
                    lo = middle + 1
                else:
                    hi = middle
        begins[i], lengths[i] = first, hi - first


def with_run_starts(samples: Samples) -> Samples:
    """Store the start timestamps once per run, if they are constant within each run."""
    starts = samples.start_timestamps_ms
    if starts is None or not len(samples):
        return samples
    first = starts[samples.offsets[:-1]]
    if (starts == np.repeat(first, np.diff(samples.offsets))).all():
        return replace(samples, start_timestamps_ms=None, run_starts_ms=first)
    return samples


def _ints(table: pa.Table, name: str) -> Ints:
    """Numbers or times as integers; null becomes 0."""
    column = table.column(name)
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
    if array.null_count:
        array = array.fill_null(0)
    numbers: Ints = array.to_numpy()
    return numbers


def _values(table: pa.Table) -> Floats:
    if "value" not in table.column_names:
        return np.zeros(table.num_rows)
    column = table.column("value")
    # fill_null instead of to_numpy's own NaN: the bits of a stale marker must not change.
    column = column.fill_null(0.0) if column.null_count else column
    values: npt.NDArray[Any] = column.to_numpy()
    return values
