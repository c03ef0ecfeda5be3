"""Aggregations over native histograms, for the cells that have any."""

from __future__ import annotations

import numpy as np

from lakerunner.model.labels import METRIC_NAME
from lakerunner.query.promql.ast import Aggregate, unwrapped
from lakerunner.query.promql.eval.block import Block, with_histograms
from lakerunner.query.promql.eval.columnar_histograms import sums
from lakerunner.query.promql.eval.context import Evaluation
from lakerunner.query.promql.eval.kernels_histogram import members
from lakerunner.query.promql.eval.ranges_histogram import mean_of, sum_of
from lakerunner.query.promql.histogram import Histogram, Ints, ResetHint
from lakerunner.query.promql.histogram_grid import HistogramGrid
from lakerunner.query.promql.histogram_math import IncompatibleSchemas


def fold_histograms(evaluation: Evaluation, expr: Aggregate, block: Block, group: Ints, result: Block) -> Block:
    """Correct the floats' result where groups hold histograms: sums and means of them, otherwise a message."""
    if block.hmask is None or block.hists is None or not block.hmask.any():
        return result
    position = unwrapped(expr.expr).start
    if expr.op not in ("sum", "avg"):
        evaluation.notes.histogram_ignored(expr.op, position)
        return result
    offsets, rows = members(block.hists.row, block.hmask, group, len(result.labels))
    mixed = result.valid & (np.diff(offsets) > 0).reshape(result.shape)
    if mixed.any():
        evaluation.notes.mixed_aggregation(position)
        result.valid &= ~mixed
    found = sums(block.hists.column, rows, offsets[:-1], offsets[1:], expr.op == "avg", mixed.ravel())
    if found.collision.any():
        evaluation.notes.hint_collision("aggregation", position)
    cells: list[tuple[int, int, Histogram]] = []
    for cell in found.careful.nonzero()[0].tolist():
        g, step = divmod(cell, result.shape[1])
        histograms = [block.hists.column.at(row) for row in rows[offsets[cell] : offsets[cell + 1]].tolist()]
        last = int((block.hmask[:, step] & (group == g)).nonzero()[0][-1])
        made = _folded(evaluation, expr, histograms, block.labels[last].get(METRIC_NAME), position)
        if made is not None:
            cells.append((g, step, made))
    return with_histograms(result, cells, HistogramGrid(found.column, found.row.reshape(result.shape)))


def _folded(
    evaluation: Evaluation, expr: Aggregate, histograms: list[Histogram], name: str, position: int
) -> Histogram | None:
    try:
        made, reconciled = (sum_of if expr.op == "sum" else mean_of)(histograms)
    except IncompatibleSchemas:
        evaluation.notes.mixed_schemas(name, position)
        return None
    hints = {histogram.hint for histogram in histograms}
    if {ResetHint.RESET, ResetHint.NOT_RESET} <= hints:
        evaluation.notes.hint_collision("aggregation", position)
    if reconciled:
        evaluation.notes.bounds_reconciled("aggregation", position)
    return made.compact()
