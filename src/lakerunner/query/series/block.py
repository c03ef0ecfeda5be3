"""The value of an instant vector over all steps at once: a matrix of series by steps, with a mask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lakerunner.model.errors import BadInput
from lakerunner.model.labels import LabelSet
from lakerunner.query.series.histograms.column import HistogramColumn
from lakerunner.query.series.histograms.grid import HistogramGrid, joined
from lakerunner.query.series.histograms.histogram import Floats, Histogram, Ints
from lakerunner.query.series.label_list import computed, distinct, taken

Bools = npt.NDArray[np.bool_]

SAME_LABELSET = "vector cannot contain metrics with the same labelset"


class EvaluationError(BadInput):
    """The query is well formed, but its data does not allow an answer."""


def any_step(mask: Bools) -> Bools:
    """For every series, whether any step is set."""
    out: Bools = np.logical_or.reduce(mask, axis=1)
    return out


def any_series(mask: Bools) -> Bools:
    """For every step, whether any series is set."""
    out: Bools = np.logical_or.reduce(mask, axis=0)
    return out


@dataclass(slots=True)
class Block:
    """Cell (i, s) is a float where `valid`, a histogram where `hmask`, and empty elsewhere.

    NaN is a value like any other; only the masks say which cells are empty. `hists` is None without histograms.
    """

    labels: Sequence[LabelSet]
    values: Floats
    valid: Bools
    #: The result loses the metric name of series i. Until then the name stays, for functions that need it.
    drop_name: Bools
    hists: HistogramGrid | None = None
    hmask: Bools | None = None

    @classmethod
    def empty(cls, steps: int) -> Block:
        return cls([], np.zeros((0, steps)), np.zeros((0, steps), dtype=bool), np.zeros(0, dtype=bool))

    @classmethod
    def single(cls, labels: LabelSet, values: Floats, valid: Bools | None = None) -> Block:
        mask = np.ones((1, len(values)), dtype=bool) if valid is None else valid[np.newaxis]
        return cls([labels], values[np.newaxis], mask, np.zeros(1, dtype=bool))

    @property
    def shape(self) -> tuple[int, int]:
        rows, steps = self.values.shape
        return rows, steps

    @property
    def present(self) -> Bools:
        return self.valid if self.hmask is None else self.valid | self.hmask

    def histogram_cells(self) -> list[tuple[int, int, Histogram]]:
        if self.hmask is None or self.hists is None:
            return []
        rows, steps = self.hmask.nonzero()
        hists = self.hists
        return [(row, step, hists[row, step]) for row, step in zip(rows.tolist(), steps.tolist(), strict=True)]

    def rows(self, index: Ints | Sequence[int] | Bools) -> Block:
        chosen = np.asarray(index)
        if chosen.dtype == bool:
            chosen = chosen.nonzero()[0]
        chosen = chosen.astype(np.int64)
        return Block(
            taken(self.labels, chosen),
            self.values[chosen],
            self.valid[chosen],
            self.drop_name[chosen],
            None if self.hists is None else self.hists[chosen],
            None if self.hmask is None else self.hmask[chosen],
        )

    def pruned(self) -> Block:
        """Without the series that are empty at all steps."""
        keep = any_step(self.present)
        return self if keep.all() else self.rows(keep)

    def masked(self, keep: Bools) -> Block:
        """The block with all other cells emptied."""
        hmask = None if self.hmask is None else self.hmask & keep
        return Block(self.labels, self.values, self.valid & keep, self.drop_name, self.hists, hmask)

    def floats(self) -> Block:
        """Without histograms."""
        return self if self.hmask is None else Block(self.labels, self.values, self.valid, self.drop_name)

    def mapped(self, values: Floats) -> Block:
        """New floats for the same series, whose metric names no longer describe them."""
        return Block(self.labels, values, self.valid, np.ones(len(self.labels), dtype=bool)).pruned()

    def repeated(self, steps: int) -> Block:
        """A block of one step, repeated for `steps` steps."""
        rows = len(self.labels)

        def spread(matrix: np.ndarray) -> np.ndarray:
            return np.repeat(matrix, steps, axis=1) if rows else np.zeros((0, steps), dtype=matrix.dtype)

        return Block(
            self.labels,
            spread(self.values),
            spread(self.valid),
            self.drop_name,
            None if self.hists is None else self.hists.repeated(steps),
            None if self.hmask is None else spread(self.hmask),
        )

    def relabelled(self, labels: Sequence[LabelSet], drop_name: Bools | None = None) -> Block:
        drop = self.drop_name if drop_name is None else drop_name
        return Block(labels, self.values, self.valid, drop, self.hists, self.hmask)

    def merged(self, by_first_step: bool = False) -> Block:
        """Merge series that have equal labels. Two samples at one step are an error.

        A series that will lose its name differs from one that keeps it, because their results differ. With
        `by_first_step` the two are equal, and the one that occurs first in time decides about the name.
        """
        if by_first_step and len(set(self.labels)) < len(self.labels):
            return self._named_by_first_step().merged()
        first: dict[tuple[LabelSet, bool], int] = {}
        keys = zip(self.labels, self.drop_name.tolist(), strict=True)
        target = [first.setdefault(key, len(first)) for key in keys]
        if len(first) == len(self.labels):
            return self
        index = np.array(target)
        rows, steps = len(first), self.values.shape[1]
        counts = np.zeros((rows, steps), dtype=np.int64)
        np.add.at(counts, index, self.present.astype(np.int64))
        if (counts > 1).any():
            raise EvaluationError(SAME_LABELSET)
        leaders = np.full(rows, -1)
        leaders[index[::-1]] = np.arange(len(index))[::-1]
        out = self.rows(leaders)
        out.values, out.valid = out.values.copy(), out.valid.copy()
        if out.hists is not None and out.hmask is not None:
            out.hists, out.hmask = out.hists.copy(), out.hmask.copy()
        for row in np.setdiff1d(np.arange(len(index)), leaders).tolist():
            _overlay(out, target[row], self, row)
        return out

    def _named_by_first_step(self) -> Block:
        begins = self.present.argmax(axis=1).tolist()
        earliest: dict[LabelSet, int] = {}
        for row, label_set in enumerate(self.labels):
            first = earliest.setdefault(label_set, row)
            if begins[row] < begins[first]:
                earliest[label_set] = row
        return self.relabelled(self.labels, self.drop_name[[earliest[label_set] for label_set in self.labels]])

    def finished(self) -> Block:
        """The block as a result: metric names are removed where `drop_name` is set."""
        labels: Sequence[LabelSet]
        if not self.drop_name.any():
            labels = self.labels
        elif self.drop_name.all():
            labels = computed(self.labels)
        else:
            labels = [
                label_set.of_computed() if drop else label_set
                for label_set, drop in zip(self.labels, self.drop_name.tolist(), strict=True)
            ]
        finished = self.relabelled(labels, np.zeros_like(self.drop_name))
        return finished if distinct(labels) else finished.merged()


def _overlay(out: Block, target: int, block: Block, row: int) -> None:
    cells = block.valid[row]
    out.values[target, cells] = block.values[row, cells]
    out.valid[target] |= cells
    if block.hists is not None and block.hmask is not None and out.hists is not None and out.hmask is not None:
        hist_cells = block.hmask[row]
        out.hists.row[target, hist_cells] = block.hists.row[row, hist_cells]
        out.hmask[target] |= hist_cells


def concatenated(blocks: Sequence[Block], steps: int) -> Block:
    """Stack blocks that have the same steps."""
    blocks = [block for block in blocks if block.labels]
    if not blocks:
        return Block.empty(steps)
    if len(blocks) == 1:
        return blocks[0]
    hists = hmask = None
    if any(block.hmask is not None for block in blocks):
        grids = joined([block.hists for block in blocks], [block.shape for block in blocks])
        hists = HistogramGrid(grids[0].column, np.concatenate([grid.row for grid in grids]))
        hmask = np.concatenate(
            [np.zeros(block.shape, dtype=bool) if block.hmask is None else block.hmask for block in blocks]
        )
    return Block(
        [labels for block in blocks for labels in block.labels],
        np.concatenate([block.values for block in blocks]),
        np.concatenate([block.valid for block in blocks]),
        np.concatenate([block.drop_name for block in blocks]),
        hists,
        hmask,
    )


def with_histograms(
    block: Block, cells: Sequence[tuple[int, int, Histogram]], grid: HistogramGrid | None = None
) -> Block:
    """Set the histograms of `cells` and of `grid`, replacing what the block had in those cells."""
    grids = [] if grid is None or not (grid.row >= 0).any() else [grid]
    if cells:
        grids.append(_grid(block.shape, cells))
    if not grids:
        return block
    if len(grids) > 1:
        grids = joined(grids, [block.shape, block.shape])
    row = grids[0].row if len(grids) == 1 else np.maximum(grids[0].row, grids[1].row)
    hmask = row >= 0
    hists = HistogramGrid(grids[0].column, row)
    return Block(block.labels, block.values, block.valid & ~hmask, block.drop_name, hists, hmask)


def _grid(shape: tuple[int, int], cells: Sequence[tuple[int, int, Histogram]]) -> HistogramGrid:
    row = np.full(shape, -1, dtype=np.int64)
    row[[row for row, _, _ in cells], [step for _, step, _ in cells]] = np.arange(len(cells))
    return HistogramGrid(HistogramColumn.of([histogram for _, _, histogram in cells]), row)
