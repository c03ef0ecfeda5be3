"""Binary operators: between two vectors, between a vector and a scalar, and the set operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lakerunner.model.labels import LabelSet
from lakerunner.query.series.block import Block, Bools, concatenated, with_histograms
from lakerunner.query.series.histograms.histogram import Floats, Histogram, Ints
from lakerunner.query.vectors.annotations import LastOfStep
from lakerunner.query.vectors.context import Evaluation
from lakerunner.query.vectors.matching import BinaryOperation, Matching, Signature, VectorMatch
from lakerunner.query.vectors.operators import (
    ARITHMETIC,
    COMPARISONS,
    TRIM_OPERATORS,
    arithmetic,
    compared,
    histogram_operation,
)


def vector_vector(evaluation: Evaluation, operation: BinaryOperation, left: Block, right: Block) -> Block:
    steps = left.shape[1]
    match = VectorMatch(evaluation, operation, left, right)
    pairs = match.pairs()
    if not pairs.many:
        match.notes.flush()
        return Block.empty(steps)
    evaluation.check_series(len(pairs.many))
    evaluation.spend(len(pairs.many) * steps)
    many, one = np.array(pairs.many), np.array(pairs.one)
    cells = np.array(pairs.cells)
    fill_many, fill_one = match.matching.fill_left, match.matching.fill_right
    many_values, many_floats = _side(match.many, many, fill_many)
    one_values, one_floats = _side(match.one, one, fill_one)
    if match.swapped:
        lhs, rhs = one_values, many_values
    else:
        lhs, rhs = many_values, one_values
    values, keep = _float_results(operation, lhs, rhs)
    # As in Prometheus, samples that pass a comparison keep their name, even if a function was about to drop it.
    drop = np.full(len(many), operation.return_bool)
    valid = cells & many_floats & one_floats
    if operation.op in TRIM_OPERATORS:
        for pair, step in zip(*(axis.tolist() for axis in valid.nonzero()), strict=True):
            match.note_float_trim(pairs.many[pair], pairs.one[pair], step)
        valid = np.zeros_like(valid)
    block = Block(pairs.labels, values, valid & keep, drop)
    mixed = cells & ~(many_floats & one_floats)
    if mixed.any():
        block = _with_histogram_results(match, block, (many, one), mixed)
    match.notes.flush()
    if steps == 1:
        # An instant answer may be in order: pairs keep that of the many side, and those without it are last.
        block = block.rows(np.argsort(np.where(many < 0, len(match.many.labels), many), kind="stable"))
    return block.pruned().merged()


def _side(block: Block, rows: Ints, fill: float | None) -> tuple[Floats, Bools]:
    """The values of one side of every pair, and which cells are floats: all cells of a filled-in row are."""
    filled = (rows < 0)[:, np.newaxis]
    if not len(block.labels):
        shape = (len(rows), block.shape[1])
        return np.full(shape, 0.0 if fill is None else fill), np.ones(shape, dtype=bool)
    values = np.where(filled, 0.0 if fill is None else fill, block.values[rows])
    return values, np.where(filled, True, block.valid[rows])


def _float_results(operation: BinaryOperation, lhs: Floats, rhs: Floats) -> tuple[Floats, Bools]:
    """The results, and which of them to keep."""
    if operation.op in COMPARISONS:
        keep = compared(operation.op, lhs, rhs)
        if operation.return_bool:
            return keep.astype(np.float64), np.ones_like(keep)
        return lhs, keep
    if operation.op in TRIM_OPERATORS:
        return lhs, np.zeros(lhs.shape, dtype=bool)
    return arithmetic(operation.op, lhs, rhs), np.ones(lhs.shape, dtype=bool)


def _with_histogram_results(match: VectorMatch, block: Block, rows: tuple[Ints, Ints], mixed: Bools) -> Block:
    """Add the results of the cells in which at least one side is a histogram."""
    cells: list[tuple[int, int, Histogram]] = []
    for pair, step in zip(*(axis.tolist() for axis in mixed.nonzero()), strict=True):
        match.evaluation.check_time_sometimes()
        result = match.histogram_result(int(rows[0][pair]), int(rows[1][pair]), step)
        if result is None:
            continue
        histogram, holds = result
        if match.operation.return_bool:
            block.values[pair, step], block.valid[pair, step] = float(holds), True
        elif holds:
            cells.append((pair, step, histogram))
    return with_histograms(block, cells)


def vector_scalar(
    evaluation: Evaluation, operation: BinaryOperation, block: Block, scalar: Floats, swapped: bool
) -> Block:
    """`swapped`: the scalar is the left operand. A comparison always keeps the vector's value."""
    op, return_bool = operation.op, operation.return_bool
    lhs, rhs = (np.broadcast_to(scalar, block.shape), block.values) if swapped else (block.values, scalar)
    valid = block.valid
    notes = LastOfStep(evaluation.notes)
    if op in COMPARISONS:
        keep = compared(op, lhs, rhs)
        values = keep.astype(np.float64) if return_bool else block.values
        valid = valid if return_bool else valid & keep
    elif op in TRIM_OPERATORS:
        values = block.values
        for row, step in zip(*(axis.tolist() for axis in valid.nonzero()), strict=True):
            notes.at(step, (0, row)).incompatible_types("float", op, "float", operation.position)
        valid = np.zeros_like(valid)
    else:
        values = arithmetic(op, lhs, rhs)
    drop = block.drop_name | (op in ARITHMETIC or return_bool)
    out = Block(block.labels, values, valid, drop)
    cells: list[tuple[int, int, Histogram]] = []
    for row, step, histogram in block.histogram_cells():
        evaluation.check_time_sometimes()
        number = float(scalar[step])
        left, right = (number, histogram) if swapped else (histogram, number)
        result = histogram_operation(op, left, right, notes.at(step, (0, row)), operation.position)
        if result is not None and result[1]:
            cells.append((row, step, result[0]))
    notes.flush()
    return with_histograms(out, cells).pruned()


def set_operation(
    op: str,
    matching: Matching,
    left: Block,
    right: Block,
    matched_by: Callable[[Sequence[LabelSet]], Sequence[LabelSet]] = lambda labels: labels,
    *,
    apart: bool = False,
) -> Block:
    """`and`, `or`, `unless`: they depend on which series exist, never on values.

    `matched_by` returns the labels by which series are matched. The result has the labels that they had. With `apart`,
    series with equal labels are not merged.
    """
    signature = matching.signature()
    ordinals: dict[Signature, int] = {}
    left_ids, right_ids = (
        np.array([ordinals.setdefault(signature(each), len(ordinals)) for each in matched_by(side.labels)], dtype=int)
        for side in (left, right)
    )
    steps = left.shape[1]
    if op == "or":
        on_left = _present_signatures(left, left_ids, len(ordinals), steps)
        rest = right.masked(~on_left[right_ids]) if len(right.labels) else right
        both = concatenated([left, rest.pruned()], steps)
        return both if apart else both.merged(by_first_step=True)
    on_right = _present_signatures(right, right_ids, len(ordinals), steps)
    if not len(left.labels):
        return left
    cells = on_right[left_ids]
    return left.masked(cells if op == "and" else ~cells).pruned()


def _present_signatures(block: Block, ids: np.ndarray, number: int, steps: int) -> Bools:
    """One row per signature, one cell per step: whether any series with the signature has a sample there."""
    present = np.zeros((number, steps), dtype=bool)
    if len(ids):
        np.logical_or.at(present, ids, block.present)
    return present
