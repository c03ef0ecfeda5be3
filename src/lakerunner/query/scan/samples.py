"""Samples of many series in arrays, one series after another, with the ids that tell series of several parts apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lakerunner.model.labels import LabelSet
from lakerunner.query.promql.histogram import Floats, Ints
from lakerunner.query.promql.histogram_column import HistogramColumn


@dataclass(frozen=True, slots=True)
class Samples:
    """Series i has the samples `offsets[i]` to `offsets[i + 1]`, at least one. A series may occur twice.

    Times never descend within it, but may tie: that is what one segment gives, and `merge` makes a batch of several.
    """

    tids: Ints
    labels: Sequence[LabelSet]
    offsets: Ints
    timestamps_ms: Ints
    values: Floats
    #: 0 where unknown; None: known for no sample.
    start_timestamps_ms: Ints | None = None
    histograms: HistogramColumn | None = None
    #: Beside the histograms: whose sum was not sent. None: all were.
    sumless: npt.NDArray[np.bool_] | None = None

    @classmethod
    def none(cls) -> Samples:
        empty = np.zeros(0, np.int64)
        return cls(empty, [], np.zeros(1, np.int64), empty, np.zeros(0))

    def __len__(self) -> int:
        return len(self.timestamps_ms)

    @property
    def size_bytes(self) -> int:
        held = [self.offsets, self.timestamps_ms, self.values, self.start_timestamps_ms]
        if self.histograms is not None:
            column = self.histograms
            held += [column.row, column.count, column.sum, column.pos_index, column.pos_count, column.bounds]
            held += [column.neg_index, column.neg_count, column.zero_count, column.zero_threshold]
        return sum(array.nbytes for array in held if array is not None)

    def of_series(self, rows: Ints) -> Samples:
        """Only those series, in that order."""
        lengths = np.diff(self.offsets)[rows]
        at = within(self.offsets[rows], lengths)
        return Samples(
            self.tids[rows],
            [self.labels[row] for row in rows.tolist()],
            offsets_of(lengths),
            self.timestamps_ms[at],
            self.values[at],
            None if self.start_timestamps_ms is None else self.start_timestamps_ms[at],
            None if self.histograms is None else with_rows(self.histograms, self.histograms.row[at]),
            self.sumless,
        )


def offsets_of(lengths: Ints) -> Ints:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def within(starts: Ints, lengths: Ints) -> Ints:
    """All places of runs that begin at `starts`.

    >>> within(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    places: Ints = np.arange(total, dtype=np.int64) + np.repeat(starts - (ends - lengths), lengths)
    return places


def with_rows(column: HistogramColumn, row: Ints) -> HistogramColumn:
    """The same histograms beside other samples."""
    return HistogramColumn(
        row,
        column.schema,
        column.hint,
        column.count,
        column.sum,
        column.zero_threshold,
        column.zero_count,
        column.pos_offsets,
        column.pos_index,
        column.pos_count,
        column.neg_offsets,
        column.neg_index,
        column.neg_count,
        column.bounds_offsets,
        column.bounds,
    )
