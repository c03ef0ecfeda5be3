"""Native histograms of many samples as columns, in the layout of stored segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from lakerunner.query.series.histograms.histogram import Floats, Histogram, Ints, ResetHint


class Arrays(NamedTuple):
    """A column's arrays as compiled loops take them. All are read-only, so that each loop is compiled only once."""

    schema: npt.NDArray[np.int8]
    hint: npt.NDArray[np.int8]
    #: The column's `count`; tuples already have a method of that name.
    observations: Floats
    sum: Floats
    zero_threshold: Floats
    zero_count: Floats
    pos_offsets: Ints
    pos_index: Ints
    pos_count: Floats
    neg_offsets: Ints
    neg_index: Ints
    neg_count: Floats
    bounds_offsets: Ints
    bounds: Floats


@dataclass(slots=True)
class HistogramColumn:
    """`row[i]` is the histogram of sample i, or -1 where the sample is a float.

    Histogram r has the buckets `index[offsets[r]:offsets[r + 1]]`, with the counts at the same places. Positive and
    negative buckets are separate. Custom bounds are stored in the same way.
    """

    row: Ints
    schema: npt.NDArray[np.int8]
    hint: npt.NDArray[np.int8]
    count: Floats
    sum: Floats
    zero_threshold: Floats
    zero_count: Floats
    pos_offsets: Ints
    pos_index: Ints
    pos_count: Floats
    neg_offsets: Ints
    neg_index: Ints
    neg_count: Floats
    bounds_offsets: Ints
    bounds: Floats
    _built: dict[int, Histogram] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.schema)

    def at(self, row: int) -> Histogram:
        """The histogram of one row. Built once: later calls return the same object."""
        histogram = self._built.get(row)
        if histogram is None:
            pos = slice(self.pos_offsets[row], self.pos_offsets[row + 1])
            neg = slice(self.neg_offsets[row], self.neg_offsets[row + 1])
            bounds = self.bounds[self.bounds_offsets[row] : self.bounds_offsets[row + 1]]
            histogram = self._built[row] = Histogram(
                schema=int(self.schema[row]),
                count=float(self.count[row]),
                sum=float(self.sum[row]),
                zero_threshold=float(self.zero_threshold[row]),
                zero_count=float(self.zero_count[row]),
                pos_index=self.pos_index[pos],
                pos_count=self.pos_count[pos],
                neg_index=self.neg_index[neg],
                neg_count=self.neg_count[neg],
                bounds=tuple(bounds.tolist()),
                hint=ResetHint(int(self.hint[row])),
            )
        return histogram

    def arrays(self) -> Arrays:
        return Arrays(
            _frozen(self.schema), _frozen(self.hint), _frozen(self.count), _frozen(self.sum),
            _frozen(self.zero_threshold), _frozen(self.zero_count),
            _frozen(self.pos_offsets), _frozen(self.pos_index), _frozen(self.pos_count),
            _frozen(self.neg_offsets), _frozen(self.neg_index), _frozen(self.neg_count),
            _frozen(self.bounds_offsets), _frozen(self.bounds),
        )  # fmt: skip

    @classmethod
    def of(cls, samples: Sequence[Histogram | None]) -> HistogramColumn:
        """The column of a list of samples, in which floats are None."""
        present = [sample for sample in samples if sample is not None]
        row = np.full(len(samples), -1, dtype=np.int64)
        row[[i for i, sample in enumerate(samples) if sample is not None]] = np.arange(len(present))
        return cls(
            row=row,
            schema=np.array([h.schema for h in present], dtype=np.int8),
            hint=np.array([h.hint for h in present], dtype=np.int8),
            count=np.array([h.count for h in present], dtype=np.float64),
            sum=np.array([h.sum for h in present], dtype=np.float64),
            zero_threshold=np.array([h.zero_threshold for h in present], dtype=np.float64),
            zero_count=np.array([h.zero_count for h in present], dtype=np.float64),
            pos_offsets=_offsets([len(h.pos_index) for h in present]),
            pos_index=_joined_ints([h.pos_index for h in present]),
            pos_count=_joined([h.pos_count for h in present]),
            neg_offsets=_offsets([len(h.neg_index) for h in present]),
            neg_index=_joined_ints([h.neg_index for h in present]),
            neg_count=_joined([h.neg_count for h in present]),
            bounds_offsets=_offsets([len(h.bounds) for h in present]),
            bounds=_joined([np.array(h.bounds, dtype=np.float64) for h in present]),
            _built=dict(enumerate(present)),
        )


class ColumnHistograms(Sequence[Histogram]):
    """Rows of a column as a sequence of histograms, which are built on access."""

    def __init__(self, column: HistogramColumn, rows: Ints) -> None:
        self.column = column
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> Histogram: ...
    @overload
    def __getitem__(self, index: slice) -> ColumnHistograms: ...
    def __getitem__(self, index: int | slice) -> Histogram | ColumnHistograms:
        if isinstance(index, slice):
            return ColumnHistograms(self.column, self.rows[index])
        return self.column.at(int(self.rows[index]))


def stacked(columns: Sequence[HistogramColumn]) -> HistogramColumn:
    """Concatenate columns. In the result, every histogram is one sample."""
    if len(columns) == 1:
        return columns[0]
    return HistogramColumn(
        row=np.arange(sum(map(len, columns)), dtype=np.int64),
        schema=np.concatenate([np.zeros(0, np.int8), *(column.schema for column in columns)]),
        hint=np.concatenate([np.zeros(0, np.int8), *(column.hint for column in columns)]),
        count=_joined([column.count for column in columns]),
        sum=_joined([column.sum for column in columns]),
        zero_threshold=_joined([column.zero_threshold for column in columns]),
        zero_count=_joined([column.zero_count for column in columns]),
        pos_offsets=_joined_offsets([column.pos_offsets for column in columns]),
        pos_index=_joined_ints([column.pos_index for column in columns]),
        pos_count=_joined([column.pos_count for column in columns]),
        neg_offsets=_joined_offsets([column.neg_offsets for column in columns]),
        neg_index=_joined_ints([column.neg_index for column in columns]),
        neg_count=_joined([column.neg_count for column in columns]),
        bounds_offsets=_joined_offsets([column.bounds_offsets for column in columns]),
        bounds=_joined([column.bounds for column in columns]),
    )


def gather_lists(offsets: Ints, values: Floats, rows: Ints) -> tuple[Ints, Floats]:
    """The lists of the given rows, as new offsets and values."""
    lengths = np.diff(offsets)[rows]
    out = _offsets(lengths)
    if not out[-1]:
        return out, values[:0]
    return out, values[np.arange(out[-1]) + np.repeat(offsets[rows] - out[:-1], lengths)]


def _frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = np.require(array, requirements=["C", "A"]).view()
    view.flags.writeable = False
    return view


def _offsets(lengths: Sequence[int] | Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(np.asarray(lengths, dtype=np.int64))]).astype(np.int64)


def _joined(parts: Sequence[Floats]) -> Floats:
    return np.concatenate([np.zeros(0), *parts])


def _joined_ints(parts: Sequence[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


def _joined_offsets(parts: Sequence[Ints]) -> Ints:
    return _offsets(_joined_ints([np.diff(part) for part in parts]))


def with_rows(column: HistogramColumn, row: Ints) -> HistogramColumn:
    """The same histograms beside other samples."""
    return replace(column, row=row)
