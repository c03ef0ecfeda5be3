"""The results of queries: typed and columnar, with their warnings and infos."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lakerunner.model.labels import LabelSet
from lakerunner.query.series.block import Block
from lakerunner.query.series.histograms.grid import HistogramGrid
from lakerunner.query.series.histograms.grid import joined as joined_grids
from lakerunner.query.series.histograms.histogram import Floats, Histogram, Ints
from lakerunner.query.series.label_list import in_order

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
    """One sample per series, in result order. Where `histograms[i]` is set, it is the value."""

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
    """The result of a range query as computed: one row per series, one column per step.

    Cell (i, s) is a float where `valid`, a histogram where `hmask`, and empty elsewhere.
    """

    labels: Sequence[LabelSet]
    times_ms: Ints
    values: Floats
    valid: npt.NDArray[np.bool_]
    histograms: HistogramGrid | None = None
    hmask: npt.NDArray[np.bool_] | None = None

    def row(self, i: int) -> Series:
        valid, hmask = self.valid[i], None if self.hmask is None else self.hmask[i]
        if hmask is None or self.histograms is None:
            return Series(self.labels[i], self.times_ms[valid], self.values[i, valid], NO_TIMES, [])
        hists = self.histograms[i, hmask].tolist()
        return Series(self.labels[i], self.times_ms[valid], self.values[i, valid], self.times_ms[hmask], hists)


class MatrixResult:
    """Series sorted by their labels. They are built on first use: writers that read `steps` do without them."""

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
            histograms = 0 if self.steps.hmask is None else int(self.steps.hmask.sum())
            return int(self.steps.valid.sum()) + histograms
        return sum(len(one.timestamps_ms) + len(one.histograms) for one in self.series)


Value = ScalarResult | StringResult | VectorResult | MatrixResult


@dataclass(frozen=True, slots=True)
class QueryResult:
    value: Value
    warnings: list[str]
    infos: list[str]
    #: Samples read and cells computed.
    samples: int


def vector_of(block: Block, time_ms: int) -> VectorResult:
    """A block of one step as the result of an instant query."""
    hists: list[Histogram | None] = [None] * len(block.labels)
    if block.hists is not None and block.hmask is not None:
        for row in block.hmask[:, 0].nonzero()[0].tolist():
            hists[row] = block.hists[row, 0]
    return VectorResult(time_ms, block.labels, block.values[:, 0], hists)


def matrix_of(block: Block, times_ms: Ints) -> MatrixResult:
    """A block as the result of a range query, its series in the order of their labels."""
    order = in_order(block.labels)
    block = block if order is None else block.rows(order)
    return MatrixResult(steps=StepMatrix(block.labels, times_ms, block.values, block.valid, block.hists, block.hmask))


def joined_steps(parts: Sequence[StepMatrix]) -> StepMatrix:
    """The step matrices of one query side by side. A series that is missing from a part has no values there."""
    if len(parts) == 1:
        return parts[0]
    labels = parts[0].labels if parts else []
    same = all(part.labels == labels for part in parts)
    if not same:
        labels = sorted({one for part in parts for one in part.labels}, key=lambda one: one.pairs)
    place = {} if same else {one: row for row, one in enumerate(labels)}
    steps = [len(part.times_ms) for part in parts]
    shape = len(labels), sum(steps)
    values, valid = np.zeros(shape), np.zeros(shape, dtype=bool)
    histograms = hmask = None
    grids: Sequence[HistogramGrid | None] = [None] * len(parts)
    if any(part.hmask is not None for part in parts):
        shapes = [(len(part.labels), len(part.times_ms)) for part in parts]
        grids = found = joined_grids([part.histograms for part in parts], shapes)
        histograms = HistogramGrid(found[0].column, np.full(shape, -1, dtype=np.int64))
        hmask = np.zeros(shape, dtype=bool)
    at = 0
    for part, grid, width in zip(parts, grids, steps, strict=True):
        rows = slice(None) if same else np.array([place[one] for one in part.labels], dtype=np.int64)
        values[rows, at : at + width] = part.values
        valid[rows, at : at + width] = part.valid
        if histograms is not None and hmask is not None and grid is not None and part.hmask is not None:
            hmask[rows, at : at + width] = part.hmask
            histograms.row[rows, at : at + width] = grid.row
        at += width
    times = np.concatenate([part.times_ms for part in parts]) if parts else np.zeros(0, dtype=np.int64)
    return StepMatrix(labels, times, values, valid, histograms, hmask)


def since(matrix: MatrixResult, from_ms: int) -> MatrixResult:
    """The matrix without the steps before a time."""
    steps = matrix.steps
    assert steps is not None
    begin = int(np.searchsorted(steps.times_ms, from_ms))
    if begin == 0:
        return matrix
    valid = steps.valid[:, begin:]
    hmask = None if steps.hmask is None else steps.hmask[:, begin:]
    rows = np.flatnonzero((valid if hmask is None else valid | hmask).any(axis=1))
    return MatrixResult(
        steps=StepMatrix(
            [steps.labels[row] for row in rows.tolist()],
            steps.times_ms[begin:],
            steps.values[rows, begin:],
            valid[rows],
            None if steps.histograms is None else steps.histograms[rows, begin:],
            None if hmask is None else hmask[rows],
        )
    )
