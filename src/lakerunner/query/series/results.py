"""What a query gives back: typed, columnar, with the warnings and infos beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lakerunner.model.labels import LabelSet
from lakerunner.query.series.histograms.grid import HistogramGrid
from lakerunner.query.series.histograms.histogram import Floats, Histogram, Ints

NO_TIMES: Ints = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class ScalarResult:
    time_ms: int
    value: float


@dataclass(frozen=True, slots=True)
class StringResult:
    time_ms: int
    value: str


@dataclass(frozen=True, slots=True)
class VectorResult:
    """One sample per series, in the order of the answer. Where `histograms[i]` is set, it is the value."""

    time_ms: int
    labels: Sequence[LabelSet]
    values: Floats
    histograms: list[Histogram | None]


@dataclass(frozen=True, slots=True)
class Series:
    labels: LabelSet
    timestamps_ms: Ints
    values: Floats
    histogram_timestamps_ms: Ints
    histograms: list[Histogram]


@dataclass(frozen=True, slots=True)
class StepMatrix:
    """The result of a range query as it was computed: a row per series, a column per step.

    Cell (i, s) is a float where `valid`, a histogram where `hmask` (if there are any at all), and nothing elsewhere.
    """

    labels: Sequence[LabelSet]
    times_ms: Ints
    values: Floats
    valid: npt.NDArray[np.bool_]
    histograms: HistogramGrid | None = None
    hmask: npt.NDArray[np.bool_] | None = None

    def row(self, i: int) -> Series:
        valid, held = self.valid[i], None if self.hmask is None else self.hmask[i]
        if held is None or self.histograms is None:
            return Series(self.labels[i], self.times_ms[valid], self.values[i, valid], NO_TIMES, [])
        hists = self.histograms[i, held].tolist()
        return Series(self.labels[i], self.times_ms[valid], self.values[i, valid], self.times_ms[held], hists)


class MatrixResult:
    """Series sorted by their labels; made one by one when asked for, so that a writer of columns need not make any."""

    __slots__ = ("_series", "steps")

    def __init__(self, series: list[Series] | None = None, steps: StepMatrix | None = None) -> None:
        self._series = series
        #: Set for range queries; None for the raw samples of a range vector.
        self.steps = steps

    @property
    def series(self) -> list[Series]:
        if self._series is None:
            assert self.steps is not None
            self._series = [self.steps.row(i) for i in range(len(self.steps.labels))]
        return self._series

    def __iter__(self) -> Iterator[Series]:
        return iter(self.series)

    def __len__(self) -> int:
        return len(self.series) if self.steps is None else len(self.steps.labels)

    @property
    def samples(self) -> int:
        if self.steps is not None:
            held = 0 if self.steps.hmask is None else int(self.steps.hmask.sum())
            return int(self.steps.valid.sum()) + held
        return sum(len(one.timestamps_ms) + len(one.histograms) for one in self.series)


Value = ScalarResult | StringResult | VectorResult | MatrixResult


@dataclass(frozen=True, slots=True)
class QueryResult:
    value: Value
    warnings: list[str]
    infos: list[str]
    #: Samples read and cells computed.
    samples: int
