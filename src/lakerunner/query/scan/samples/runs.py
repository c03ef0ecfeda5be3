"""Samples of many series in shared arrays: one run of samples after another, each with its series' id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from lakerunner.model.labels import LabelSet
from lakerunner.query.series.arrays import offsets_of
from lakerunner.query.series.histograms.column import HistogramColumn, with_rows
from lakerunner.query.series.histograms.histogram import Floats, Ints
from lakerunner.query.series.rollup import Rollup


@dataclass(frozen=True, slots=True)
class Samples:
    """Runs of samples. Run i has at least one sample, all of the series `tids[i]`; a series may have several runs.

    Times never descend within a run, but may be equal. One segment yields such runs; `merge` makes a batch of several.
    """

    tids: Ints
    labels: Sequence[LabelSet]
    #: Run i has `offsets[i + 1] - offsets[i]` samples. Without `begins`, they start at `offsets[i]` of the arrays.
    offsets: Ints
    timestamps_ms: Ints
    values: Floats
    #: 0 if unknown. None: unknown for all samples.
    start_timestamps_ms: Ints | None = None
    histograms: HistogramColumn | None = None
    #: One flag per histogram: whether it was sent without a sum. None: all have a sum.
    sumless: npt.NDArray[np.bool_] | None = None
    #: Where run i begins in the arrays, so that runs chosen from larger arrays need not be copied.
    begins: Ints | None = None
    #: Replaces the start timestamps if they are the same for all samples of each run, as for most counters.
    run_starts_ms: Ints | None = None
    #: False if no float is a stale marker.
    may_be_stale: bool = True
    #: What the samples of a tier stand for, where a query needs more than the samples themselves.
    rollup: Rollup | None = None
    #: Whether each series has one run, with ascending times, and the series are in the order of their labels.
    merged: bool = False

    @classmethod
    def none(cls) -> Samples:
        empty = np.zeros(0, np.int64)
        return cls(empty, [], np.zeros(1, np.int64), empty, np.zeros(0))

    def __len__(self) -> int:
        return int(self.offsets[-1])

    @property
    def places(self) -> Ints:
        """Where each run begins."""
        return self.offsets[:-1] if self.begins is None else self.begins

    @property
    def has_starts(self) -> bool:
        return self.start_timestamps_ms is not None or self.run_starts_ms is not None

    @property
    def size_bytes(self) -> int:
        """The size of these samples, also if they are part of larger arrays."""
        numbers = 2 + (self.start_timestamps_ms is not None) + (self.histograms is not None)
        size = 8 * (numbers * len(self) + len(self.offsets))
        if self.rollup is not None:
            size += 8 * (1 + len(self.rollup.aggregates)) * len(self)
        if self.histograms is not None:
            column = self.histograms
            arrays = [column.count, column.sum, column.pos_index, column.pos_count, column.bounds, column.neg_index]
            size += sum(array.nbytes for array in (*arrays, column.neg_count, column.zero_count, column.zero_threshold))
        return size

    def chosen(self, runs: Ints, begins: Ints, lengths: Ints) -> Samples:
        """Some runs, or parts of them, without copying samples. The caller must set the labels."""
        return Samples(
            self.tids[runs],
            [],
            offsets_of(lengths),
            self.timestamps_ms,
            self.values,
            self.start_timestamps_ms,
            self.histograms,
            self.sumless,
            begins,
            None if self.run_starts_ms is None else self.run_starts_ms[runs],
            self.may_be_stale,
            self.rollup,
        )

    def tight(self) -> Samples:
        """The same runs, copied so that they follow each other."""
        if self.begins is None and self.run_starts_ms is None:
            return self
        at = within(self.places, np.diff(self.offsets))
        starts = None if self.start_timestamps_ms is None else self.start_timestamps_ms[at]
        if self.run_starts_ms is not None:
            starts = np.repeat(self.run_starts_ms, np.diff(self.offsets))
        return replace(
            self,
            timestamps_ms=self.timestamps_ms[at],
            values=self.values[at],
            start_timestamps_ms=starts,
            histograms=None if self.histograms is None else with_rows(self.histograms, self.histograms.row[at]),
            begins=None,
            run_starts_ms=None,
            rollup=None if self.rollup is None else self.rollup.at(at),
        )


def within(starts: Ints, lengths: Ints) -> Ints:
    """The indexes of all elements of runs that begin at `starts`.

    >>> within(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    places: Ints = np.arange(total, dtype=np.int64) + np.repeat(starts - (ends - lengths), lengths)
    return places
