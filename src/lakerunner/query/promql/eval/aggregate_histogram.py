"""Aggregations over native histograms, for the cells that have any."""

from __future__ import annotations

from collections import defaultdict

from lakerunner.model.labels import METRIC_NAME
from lakerunner.query.promql.ast import Aggregate, unwrapped
from lakerunner.query.promql.eval.block import Block, with_histograms
from lakerunner.query.promql.eval.context import Evaluation
from lakerunner.query.promql.eval.ranges_histogram import mean_of, sum_of
from lakerunner.query.promql.histogram import Histogram, Ints, ResetHint

#: The histograms of a group at one step, each with its row in the vector.
_Members = list[tuple[int, Histogram]]


def fold_histograms(evaluation: Evaluation, expr: Aggregate, block: Block, group: Ints, result: Block) -> Block:
    """Correct the floats' result where groups hold histograms: sums and means of them, otherwise a message."""
    position = unwrapped(expr.expr).start
    if expr.op not in ("sum", "avg"):
        if block.hmask is not None and block.hmask.any():
            evaluation.notes.histogram_ignored(expr.op, position)
        return result
    found: dict[tuple[int, int], _Members] = defaultdict(list)
    for row, step, histogram in block.histogram_cells():
        found[int(group[row]), step].append((row, histogram))
    cells: list[tuple[int, int, Histogram]] = []
    for (g, step), members in found.items():
        stranger = _stranger(members)
        if result.valid[g, step]:
            result.valid[g, step] = False
            first_float = int(((group == g) & block.valid[:, step]).argmax())
            # What follows two histograms that do not fit is not looked at; nor are histograms after a float.
            if stranger is None or first_float < stranger:
                evaluation.notes.mixed_aggregation(position)
            if first_float < members[0][0]:
                continue
            _folded(evaluation, expr, members, position)
        else:
            made = _folded(evaluation, expr, members, position)
            if stranger is None:
                cells.append((g, step, made))
        if stranger is not None:
            evaluation.notes.mixed_schemas(block.labels[stranger].get(METRIC_NAME), position)
    return with_histograms(result, cells)


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
