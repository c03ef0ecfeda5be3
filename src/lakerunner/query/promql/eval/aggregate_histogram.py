"""Aggregations over native histograms, for the cells that have any."""

from __future__ import annotations

from collections import defaultdict

from lakerunner.model.labels import METRIC_NAME
from lakerunner.query.promql.ast import Aggregate, unwrapped
from lakerunner.query.promql.eval.block import Block, Bools, with_histograms
from lakerunner.query.promql.eval.context import Evaluation
from lakerunner.query.promql.eval.ranges_histogram import mean_of, sum_of
from lakerunner.query.promql.histogram import Histogram, Ints, ResetHint
from lakerunner.query.promql.histogram_math import IncompatibleSchemas


def fold_histograms(evaluation: Evaluation, expr: Aggregate, block: Block, group: Ints, result: Block) -> Block:
    """Correct the floats' result where groups hold histograms: sums and means of them, otherwise a message."""
    position = unwrapped(expr.expr).start
    if expr.op not in ("sum", "avg"):
        if block.hmask is not None and block.hmask.any():
            evaluation.notes.histogram_ignored(expr.op, position)
        return result
    members: dict[tuple[int, int], list[Histogram]] = defaultdict(list)
    last_row: dict[tuple[int, int], int] = {}
    for row, step, histogram in block.histogram_cells():
        cell = (int(group[row]), step)
        members[cell].append(histogram)
        last_row[cell] = row
    cells: list[tuple[int, int, Histogram]] = []
    for (g, step), histograms in members.items():
        name = block.labels[last_row[g, step]].get(METRIC_NAME)
        mixed = bool(result.valid[g, step])
        result.valid[g, step] = False
        made: Histogram | None = histograms[0]
        # After a float, histograms are not even looked at.
        if not mixed or _begins_with_histogram(block, group == g, step):
            made = _folded(evaluation, expr, histograms, name, position)
        if mixed and made is not None:
            evaluation.notes.mixed_aggregation(position)
        elif made is not None:
            cells.append((g, step, made))
    return with_histograms(result, cells)


def _begins_with_histogram(block: Block, members: Bools, step: int) -> bool:
    assert block.hmask is not None
    first = int((members & block.present[:, step]).argmax())
    return bool(block.hmask[first, step])


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
