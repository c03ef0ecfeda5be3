"""Aggregations over native histograms, for the groups that contain any."""

from __future__ import annotations

import numpy as np

from lakerunner.model.labels import METRIC_NAME
from lakerunner.query.series.block import Block, with_histograms
from lakerunner.query.series.histograms.grid import HistogramGrid
from lakerunner.query.series.histograms.histogram import Histogram, Ints, ResetHint
from lakerunner.query.vectors.context import Evaluation
from lakerunner.query.vectors.histograms.columnar import sums
from lakerunner.query.vectors.histograms.kernels import members
from lakerunner.query.vectors.histograms.ranges import mean_of, sum_of

#: The histograms of a group at one step, each with its row in the vector.
_Members = list[tuple[int, Histogram]]


def fold_histograms(evaluation: Evaluation, op: str, block: Block, group: Ints, result: Block, position: int) -> Block:
    """Correct the result of the floats where groups contain histograms. Only `sum` and `avg` can aggregate them."""
    if block.hmask is None or block.hists is None or not block.hmask.any():
        return result
    if op not in ("sum", "avg"):
        evaluation.notes.histogram_ignored(op, position)
        return result
    offsets, rows, series = members(block.hists.row, block.hmask, group, len(result.labels))
    mixed = result.valid & (np.diff(offsets) > 0).reshape(result.shape)
    found = sums(block.hists.column, rows, offsets[:-1], offsets[1:], op == "avg", mixed.ravel())
    if found.collision.any():
        evaluation.notes.hint_collision("aggregation", position)
    cells: list[tuple[int, int, Histogram]] = []
    for cell in (found.skipped | mixed.ravel()).nonzero()[0].tolist():
        g, step = divmod(cell, result.shape[1])
        within = slice(offsets[cell], offsets[cell + 1])
        histograms = [
            (row, block.hists.column.at(at))
            for row, at in zip(series[within].tolist(), rows[within].tolist(), strict=True)
        ]
        first_float = int(((group == g) & block.valid[:, step]).argmax()) if mixed[g, step] else None
        total = _fold_mixed(evaluation, op, block, histograms, first_float, position)
        if total is not None:
            cells.append((g, step, total))
    result.valid &= ~mixed
    return with_histograms(result, cells, HistogramGrid(found.column, found.row.reshape(result.shape)))


def _fold_mixed(
    evaluation: Evaluation, op: str, block: Block, members: _Members, first_float: int | None, position: int
) -> Histogram | None:
    """Fold members that differ in layout, or that have floats among them.

    `first_float` is the row of the group's first float. Members are visited in row order, as Prometheus does: what
    comes after two histograms that cannot be combined is ignored, and so are histograms after a float.
    """
    misfit = _first_misfit(members)
    if first_float is not None:
        if misfit is None or first_float < misfit:
            evaluation.notes.mixed_aggregation(position)
        if first_float < members[0][0]:
            return None
    total = _fold_until_misfit(evaluation, op, members, position)
    if misfit is not None:
        evaluation.notes.mixed_schemas(block.labels[misfit].get(METRIC_NAME), position)
    return total if misfit is None and first_float is None else None


def _first_misfit(members: _Members) -> int | None:
    """The row of the first histogram whose kind of buckets differs from that of the first one."""
    return next((row for row, histogram in members if histogram.custom != members[0][1].custom), None)


def _fold_until_misfit(evaluation: Evaluation, op: str, members: _Members, position: int) -> Histogram:
    misfit = _first_misfit(members)
    histograms = [histogram for row, histogram in members if misfit is None or row < misfit]
    total, reconciled = (sum_of if op == "sum" else mean_of)(histograms)
    hints = {histogram.hint for histogram in histograms}
    if {ResetHint.RESET, ResetHint.NOT_RESET} <= hints:
        evaluation.notes.hint_collision("aggregation", position)
    if reconciled:
        evaluation.notes.bounds_reconciled("aggregation", position)
    return total.compact()
