"""Native histograms of many samples as columns, in the shape that segments store them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import overload

import numpy as np
import numpy.typing as npt

from lakerunner.query.promql.histogram import Floats, Histogram, Ints, ResetHint


@dataclass(slots=True)
class HistogramColumn:
    """`row[i]` is the histogram of sample i, or -1 where the sample is a float.

    Buckets of histogram r are `index[offsets[r]:offsets[r + 1]]` and the counts beside them; positive and negative
    apart; custom bounds likewise.
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
    _made: dict[int, Histogram] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.schema)

    def at(self, row: int) -> Histogram:
        """The histogram of one row. Made once: the same object each time."""
        made = self._made.get(row)
        if made is None:
            pos = slice(self.pos_offsets[row], self.pos_offsets[row + 1])
            neg = slice(self.neg_offsets[row], self.neg_offsets[row + 1])
            bounds = self.bounds[self.bounds_offsets[row] : self.bounds_offsets[row + 1]]
            made = self._made[row] = Histogram(
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
        return made

    @classmethod
    def of(cls, samples: Sequence[Histogram | None]) -> HistogramColumn:
        """The column of samples, `None` where a sample is a float."""
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
        )


class ColumnHistograms(Sequence[Histogram]):
    """Rows of a column as a sequence of histograms, made only when looked at."""

    def __init__(self, column: HistogramColumn, rows: Ints) -> None:
        self.column = column
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> Histogram: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Histogram]: ...
    def __getitem__(self, index: int | slice) -> Histogram | Sequence[Histogram]:
        if isinstance(index, slice):
            return ColumnHistograms(self.column, self.rows[index])
        return self.column.at(int(self.rows[index]))


def _offsets(lengths: list[int]) -> Ints:
    return np.concatenate([[0], np.cumsum(np.array(lengths, dtype=np.int64))]).astype(np.int64)


def _joined(parts: list[Floats]) -> Floats:
    return np.concatenate([np.zeros(0), *parts])


def _joined_ints(parts: list[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])
