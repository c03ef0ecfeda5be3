"""The histograms in the cells of a matrix, as rows of a column: objects are built on access only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from lakerunner.query.series.histograms.column import HistogramColumn, stacked
from lakerunner.query.series.histograms.histogram import Histogram, Ints


@dataclass(slots=True)
class HistogramGrid:
    """Cell (i, s) has the histogram `row[i, s]` of the column, or none where that is -1."""

    column: HistogramColumn
    row: Ints

    @property
    def shape(self) -> tuple[int, ...]:
        return self.row.shape

    @overload
    def __getitem__(self, key: tuple[int, int]) -> Histogram: ...
    @overload
    def __getitem__(self, key: Any) -> HistogramGrid: ...
    def __getitem__(self, key: Any) -> Histogram | HistogramGrid:
        """One cell's histogram, or the grid of several cells, possibly with one dimension."""
        chosen = self.row[key]
        return HistogramGrid(self.column, chosen) if isinstance(chosen, np.ndarray) else self.column.at(int(chosen))

    def tolist(self) -> list[Histogram | None]:
        """The histograms of a grid of one dimension."""
        return [None if row < 0 else self.column.at(row) for row in self.row.tolist()]

    def copy(self) -> HistogramGrid:
        return HistogramGrid(self.column, self.row.copy())

    def repeated(self, steps: int) -> HistogramGrid:
        """A grid of one step, repeated for `steps` steps."""
        return HistogramGrid(self.column, np.repeat(self.row, steps, axis=1))


def joined(grids: Sequence[HistogramGrid | None], shapes: Sequence[tuple[int, int]]) -> list[HistogramGrid]:
    """Rebase grids on one common column. None stands for a grid of that shape without histograms."""
    columns: list[HistogramColumn] = []
    first: dict[int, int] = {}
    total = 0
    for grid in grids:
        if grid is not None and id(grid.column) not in first:
            first[id(grid.column)] = total
            columns.append(grid.column)
            total += len(grid.column)
    column = stacked(columns)
    out = []
    for grid, shape in zip(grids, shapes, strict=True):
        row = np.full(shape, -1, dtype=np.int64)
        if grid is not None:
            row = np.where(grid.row < 0, -1, grid.row + first[id(grid.column)])
        out.append(HistogramGrid(column, row))
    return out
