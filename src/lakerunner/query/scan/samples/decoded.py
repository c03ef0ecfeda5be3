"""One row group of a samples file, decoded: arrays from which the samples of any series and time are found at once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

from lakerunner.query.scan.samples import histograms
from lakerunner.query.scan.samples.runs import Samples
from lakerunner.query.series.batch import STALE_BITS
from lakerunner.query.series.histograms.histogram import Floats, Ints


@dataclass(frozen=True, slots=True)
class ClassicGroup:
    """The classic series of a row group's histograms, of one suffix. Run i is of the histogram `parents[i]`."""

    samples: Samples
    parents: Ints
    #: For buckets: which of `les` run i is of.
    le_of: Ints
    les: list[str]


@dataclass(slots=True)
class DecodedGroup:
    """All samples of a row group, without labels, a run a series."""

    samples: Samples
    #: Suffix -> what was made of its histograms, once somebody asked. Threads may make the same twice: it is the same.
    classic: dict[str, ClassicGroup] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """With the classic series that may be made of it: of histograms, those are what is asked for."""
        return self.samples.size_bytes * (2 if self.samples.histograms is not None else 1)


def decoded(table: pa.Table) -> DecodedGroup:
    """From the columns of samples of one row group, which is sorted by series and time."""
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
    )
    return DecodedGroup(with_run_starts(whole))


def choose(
    samples: Samples, keep: npt.NDArray[np.bool_], start_ms: int | None, end_ms: int | None
) -> tuple[Samples, Ints]:
    """The runs to keep, cut to a time, both ends included; None: that end cuts nothing. And which runs those were."""
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
    """Which of some ids are among others, which are sorted."""
    if not len(wanted):
        return np.zeros(len(tids), np.bool_)
    at = np.minimum(np.searchsorted(wanted, tids), len(wanted) - 1)
    found: npt.NDArray[np.bool_] = wanted[at] == tids
    return found


@njit(cache=True, nogil=True)
def _clip_runs(times, start_ms, end_ms, begins, lengths):  # type: ignore[no-untyped-def]
    """Move the ends of every run into the time. By halves: runs are long."""
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
    """Start timestamps once a run, where that says the same."""
    starts = samples.start_timestamps_ms
    if starts is None or not len(samples):
        return samples
    first = starts[samples.offsets[:-1]]
    if (starts == np.repeat(first, np.diff(samples.offsets))).all():
        return replace(samples, start_timestamps_ms=None, run_starts_ms=first)
    return samples


def _ints(table: pa.Table, name: str) -> Ints:
    """Numbers or times as integers, 0 where null."""
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
    # fill_null and not to_numpy's own NaN: the bits of a stale marker must stay as they are.
    column = column.fill_null(0.0) if column.null_count else column
    values: npt.NDArray[Any] = column.to_numpy()
    return values
