"""Aggregations over native histograms, for the cells that have any."""

from __future__ import annotations

import numpy as np

from lakerunner.model.labels import METRIC_NAME
from lakerunner.query.promql.ast import Aggregate, unwrapped
from lakerunner.query.series.block import Block, with_histograms
from lakerunner.query.series.histograms.grid import HistogramGrid
from lakerunner.query.series.histograms.histogram import Histogram, Ints, ResetHint
from lakerunner.query.vectors.context import Evaluation
from lakerunner.query.vectors.histograms.columnar import sums
from lakerunner.query.vectors.histograms.kernels import members
from lakerunner.query.vectors.histograms.ranges import mean_of, sum_of

#: The histograms of a group at one step, each with its row in the vector.
_Members = list[tuple[int, Histogram]]


def fold_histograms(evaluation: Evaluation, expr: Aggregate, block: Block, group: Ints, result: Block) -> Block:
    """Correct the floats' result where groups hold histograms: sums and means of them, otherwise a message."""
    if block.hmask is None or block.hists is None or not block.hmask.any():
        return result
    position = unwrapped(expr.expr).start
    if expr.op not in ("sum", "avg"):
        evaluation.notes.histogram_ignored(expr.op, position)
        return result
    offsets, rows, series = members(block.hists.row, block.hmask, group, len(result.labels))
    mixed = result.valid & (np.diff(offsets) > 0).reshape(result.shape)
    found = sums(block.hists.column, rows, offsets[:-1], offsets[1:], expr.op == "avg", mixed.ravel())
    if found.collision.any():
        evaluation.notes.hint_collision("aggregation", position)
    cells: list[tuple[int, int, Histogram]] = []
    for cell in (found.careful | mixed.ravel()).nonzero()[0].tolist():
        g, step = divmod(cell, result.shape[1])
        here = slice(offsets[cell], offsets[cell + 1])
        held = [
            (row, block.hists.column.at(at)) for row, at in zip(series[here].tolist(), rows[here].tolist(), strict=True)
        ]
        first_float = int(((group == g) & block.valid[:, step]).argmax()) if mixed[g, step] else None
        made = _with_care(evaluation, expr, block, held, first_float)
        if made is not None:
            cells.append((g, step, made))
    result.valid &= ~mixed
    return with_histograms(result, cells, HistogramGrid(found.column, found.row.reshape(result.shape)))


def _with_care(
    evaluation: Evaluation, expr: Aggregate, block: Block, held: _Members, first_float: int | None
) -> Histogram | None:
    """Members that differ, in the order of their rows: `first_float` is that of the first float among them."""
    position = unwrapped(expr.expr).start
    stranger = _stranger(held)
    if first_float is not None:
        # What follows two histograms that do not fit is not looked at; nor are histograms after a float.
        if stranger is None or first_float < stranger:
            evaluation.notes.mixed_aggregation(position)
        if first_float < held[0][0]:
            return None
    made = _folded(evaluation, expr, held, position)
    if stranger is not None:
        evaluation.notes.mixed_schemas(block.labels[stranger].get(METRIC_NAME), position)
    return made if stranger is None and first_float is None else None


def _stranger(members: _Members) -> int | None:
    """The row of the first histogram whose buckets are of another kind than those before it."""
    return next((row for row, histogram in members if histogram.custom != members[0][1].custom), None)


def _folded(evaluation: Evaluation, expr: Aggregate, members: _Members, position: int) -> Histogram:
    """Of those before the first that does not fit."""
    stranger = _stranger(members)
    histograms = [histogram for row, histogram in members if stranger is None or row < stranger]
    made, reconciled = (sum_of if expr.op == "sum" else mean_of)(histograms)
    hints = {histogram.hint for histogram in histograms}
    if {ResetHint.RESET, ResetHint.NOT_RESET} <= hints:
        evaluation.notes.hint_collision("aggregation", position)
    if reconciled:
        evaluation.notes.bounds_reconciled("aggregation", position)
    return made.compact()
