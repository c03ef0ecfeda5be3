"""Binary operators between vectors: who meets whom, computed once per pair of series and for all steps at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lakerunner.model.labels import METRIC_NAME, LabelSet
from lakerunner.query.promql.ast import ARITHMETIC, COMPARISONS, TRIM_OPERATORS, Binary, Cardinality, Matching
from lakerunner.query.series.block import (
    Block,
    Bools,
    EvaluationError,
    any_series,
    with_histograms,
)
from lakerunner.query.series.histograms.histogram import Floats, Histogram, Ints
from lakerunner.query.syntax.strings import quote
from lakerunner.query.vectors.annotations import Annotations, LastOfStep, plain_or_quoted
from lakerunner.query.vectors.context import Evaluation
from lakerunner.query.vectors.operators import arithmetic, compared, histogram_operation

Signature = tuple[str, ...] | LabelSet


def signature_of(matching: Matching) -> Callable[[LabelSet], Signature]:
    """What two series must have in common to meet."""
    if matching.on:
        names = matching.labels
        return lambda labels: tuple(labels.get(name) for name in names)
    ignored = (METRIC_NAME, *matching.labels)
    return lambda labels: labels.without(*ignored)


def shown(labels: LabelSet) -> str:
    """Labels as messages show them: the metric's name among the others."""
    return "{" + ", ".join(f"{plain_or_quoted(name)}={quote(value)}" for name, value in labels) + "}"


@dataclass(slots=True)
class Pairs:
    """The meetings: row of the many side, row of the one side (-1: filled in), and the cells where both are there."""

    many: list[int]
    one: list[int]
    cells: list[Bools]
    labels: list[LabelSet]


class VectorMatch:
    """Matches the series of two sides. Names follow Prometheus: "many" is the left side unless `group_right`."""

    def __init__(self, evaluation: Evaluation, expr: Binary, left: Block, right: Block) -> None:
        self.evaluation = evaluation
        self.notes = LastOfStep(evaluation.notes)
        #: (step, 0 for the one side or 1 for the many side, reason)
        self.refusals: list[tuple[int, int, str]] = []
        self.expr = expr
        self.matching = expr.matching
        self.swapped = expr.matching.cardinality is Cardinality.ONE_TO_MANY
        self.many, self.one = (right, left) if self.swapped else (left, right)
        signature = signature_of(expr.matching)
        self.many_groups = _grouped(self.many, signature)
        self.one_groups = _grouped(self.one, signature)
        self.many_present = self.many.present
        self.one_present = self.one.present
        # A step where one side has nothing at all is passed over, unless missing series are filled in.
        filled = self.matching.fill_left is not None or self.matching.fill_right is not None
        self.live = any_series(self.many_present) & any_series(self.one_present)
        if filled:
            self.live = np.ones_like(self.live)

    def pairs(self) -> Pairs:
        simple = self._simple_pairs()
        if simple is not None:
            return simple
        pairs = Pairs([], [], [], [])
        self._check_one_side()
        if self.refusals and self.refusals[0][0] == int(self.live.argmax()):
            # Nothing can come before it, and there may be very many pairs.
            raise EvaluationError(self.refusals[0][2])
        for signature, ones in self.one_groups.items():
            if signature not in self.many_groups:
                self._fill_many(pairs, ones, np.zeros_like(self.live))
        for signature, manys in self.many_groups.items():
            self._meet(pairs, manys, self.one_groups.get(signature, []))
        if self.refusals:
            # That of the first step; at one step, of the one side first.
            raise EvaluationError(min(self.refusals)[2])
        return pairs

    def _simple_pairs(self) -> Pairs | None:
        """The common case, without a look at single cells: one series a group on the one side, nothing filled in."""
        if self.matching.fill_left is not None or self.matching.fill_right is not None:
            return None
        if any(len(ones) > 1 for ones in self.one_groups.values()):
            return None
        one_to_one = self.matching.cardinality is Cardinality.ONE_TO_ONE
        if one_to_one and any(len(manys) > 1 for manys in self.many_groups.values()):
            return None
        many, one = [], []
        for signature, manys in self.many_groups.items():
            ones = self.one_groups.get(signature)
            if ones:
                many += manys
                one += ones * len(manys)
        labels = [self._result_labels(self.many.labels[m], self.one.labels[o]) for m, o in zip(many, one, strict=True)]
        if len(set(labels)) < len(labels):
            return None
        cells = self.many_present[many] & self.one_present[one]
        return Pairs(many, one, list(cells), labels)

    def _meet(self, pairs: Pairs, manys: list[int], ones: list[int]) -> None:
        """Two samples that the operator cannot combine have not met: either may still meet another, or a fill-in."""
        one_there = any_series(self.one_present[ones]) if ones else np.zeros_like(self.live)
        before = len(pairs.many)
        for many in manys:
            for one in ones:
                self.evaluation.look_now_and_then()
                cells = self._meaningful(many, one, self.many_present[many] & self.one_present[one])
                if cells.any():
                    self._add(pairs, many, one, cells)
            if self.matching.fill_right is not None:
                cells = self._meaningful(many, -1, self.many_present[many] & ~one_there)
                if cells.any():
                    self._add(pairs, many, -1, cells)
        if ones:
            self._fill_many(pairs, ones, any_series(np.array([self.live & False, *pairs.cells[before:]])))
        self._check_many_side(pairs, before)

    def _meaningful(self, many: int, one: int, cells: Bools) -> Bools:
        """The cells for which the operator has a result. Beside a histogram every operation is tried."""
        trims = self.expr.op in TRIM_OPERATORS
        held = _held(self.many, many, cells) | _held(self.one, one, cells)
        if not held.any() and not (trims and cells.any()):
            return cells
        out = cells.copy()
        if trims:
            for step in (cells & ~held).nonzero()[0].tolist():
                self.notes_at(many, one, step).incompatible_types("float", self.expr.op, "float", self.expr.start)
            out &= held
        for step in (held & cells).nonzero()[0].tolist():
            out[step] = self.operation(many, one, step) is not None
        return out

    def operation(self, many: int, one: int, step: int) -> tuple[Histogram, bool] | None:
        """The result of a pair at a step where one of the two is a histogram."""
        many_cell = _cell(self.many, many, step, self.matching.fill_left)
        one_cell = _cell(self.one, one, step, self.matching.fill_right)
        left, right = (one_cell, many_cell) if self.swapped else (many_cell, one_cell)
        return histogram_operation(self.expr.op, left, right, self.notes_at(many, one, step), self.expr.start)

    def notes_at(self, many: int, one: int, step: int) -> Annotations:
        """Pairs come in the order of the many side; what is filled in there comes last."""
        return self.notes.at(step, (0, many) if many >= 0 else (1, one))

    def _fill_many(self, pairs: Pairs, ones: list[int], many_there: Bools) -> None:
        if self.matching.fill_left is None:
            return
        for one in ones:
            cells = self._meaningful(-1, one, self.one_present[one] & ~many_there)
            if cells.any():
                self._add(pairs, -1, one, cells)

    def _add(self, pairs: Pairs, many: int, one: int, cells: Bools) -> None:
        pairs.many.append(many)
        pairs.one.append(one)
        pairs.cells.append(cells)
        many_labels = self._group_labels(self.one.labels[one]) if many < 0 else self.many.labels[many]
        one_labels = self._group_labels(self.many.labels[many]) if one < 0 else self.one.labels[one]
        pairs.labels.append(self._result_labels(many_labels, one_labels))

    def _group_labels(self, labels: LabelSet) -> LabelSet:
        if self.matching.on:
            return labels.keep(*self.matching.labels)
        return labels.without(METRIC_NAME, *self.matching.labels)

    def _result_labels(self, many: LabelSet, one: LabelSet) -> LabelSet:
        out = many
        if self.expr.op in ARITHMETIC:
            out = out.of_computed()
        if self.matching.cardinality is Cardinality.ONE_TO_ONE:
            out = out.keep(*self.matching.labels) if self.matching.on else out.without(*self.matching.labels)
        for name in self.matching.include:
            out = out.with_label(name, one.get(name))
        return out

    def _check_one_side(self) -> None:
        """At no step may two series of a group be there. The first two found are named, in the order of the vector."""
        found: list[tuple[int, int, int]] = []
        for ones in self.one_groups.values():
            if len(ones) > 1:
                there = self.one_present[ones] & self.live
                for step in (there.sum(axis=0) > 1).nonzero()[0][:1].tolist():
                    one, other = there[:, step].nonzero()[0][:2].tolist()
                    found.append((step, ones[other], ones[one]))
        if not found:
            return
        step, later, earlier = min(found)
        first, second = self.one.labels[earlier], self.one.labels[later]
        side = "left" if self.swapped else "right"
        group = shown(self._group_labels(first))
        reason = (
            f"found duplicate series for the match group {group} on the {side} hand-side of the operation: "
            f"[{shown(first)}, {shown(second)}];many-to-many matching not allowed: "
            "matching labels must be unique on one side"
        )
        self.refusals.append((step, 0, reason))

    def _check_many_side(self, pairs: Pairs, before: int) -> None:
        """The pairs of one match group: at no step may two of them give the same series."""
        found = range(before, len(pairs.many))
        if len(found) < 2:
            return
        if self.matching.cardinality is Cardinality.ONE_TO_ONE:
            reason = "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)"
            self._refuse(np.sum([pairs.cells[i] for i in found], axis=0) > 1, reason)
            return
        taken: dict[LabelSet, Bools] = {}
        for i in found:
            known = taken.get(pairs.labels[i])
            if known is not None:
                reason = "multiple matches for labels: grouping labels must ensure unique matches"
                self._refuse(known & pairs.cells[i], reason)
            taken[pairs.labels[i]] = pairs.cells[i] if known is None else known | pairs.cells[i]

    def _refuse(self, steps: Bools, reason: str) -> None:
        if steps.any():
            self.refusals.append((int(steps.argmax()), 1, reason))


def _grouped(block: Block, signature: Callable[[LabelSet], Signature]) -> dict[Signature, list[int]]:
    groups: dict[Signature, list[int]] = defaultdict(list)
    for row, labels in enumerate(block.labels):
        groups[signature(labels)].append(row)
    return groups


def vector_vector(evaluation: Evaluation, expr: Binary, left: Block, right: Block) -> Block:
    steps = left.shape[1]
    match = VectorMatch(evaluation, expr, left, right)
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
    values, keep = _floats(expr, lhs, rhs)
    # What a comparison lets through has its name again, even one that a function meant to drop: Prometheus does so.
    drop = np.full(len(many), expr.return_bool)
    valid = cells & many_floats & one_floats
    if expr.op in TRIM_OPERATORS:
        for pair, step in zip(*(axis.tolist() for axis in valid.nonzero()), strict=True):
            notes = match.notes_at(pairs.many[pair], pairs.one[pair], step)
            notes.incompatible_types("float", expr.op, "float", expr.start)
        valid = np.zeros_like(valid)
    block = Block(pairs.labels, values, valid & keep, drop)
    mixed = cells & ~(many_floats & one_floats)
    if mixed.any():
        block = _with_histograms(match, block, (many, one), mixed)
    match.notes.flush()
    return block.pruned().merged()


def _side(block: Block, rows: Ints, fill: float | None) -> tuple[Floats, Bools]:
    """The floats of one side of every pair, and where they are floats: filled-in rows are everywhere."""
    filled = (rows < 0)[:, np.newaxis]
    if not len(block.labels):
        shape = (len(rows), block.shape[1])
        return np.full(shape, 0.0 if fill is None else fill), np.ones(shape, dtype=bool)
    values = np.where(filled, 0.0 if fill is None else fill, block.values[rows])
    return values, np.where(filled, True, block.valid[rows])


def _floats(expr: Binary, lhs: Floats, rhs: Floats) -> tuple[Floats, Bools]:
    if expr.op in COMPARISONS:
        keep = compared(expr.op, lhs, rhs)
        if expr.return_bool:
            return keep.astype(np.float64), np.ones_like(keep)
        return lhs, keep
    if expr.op in TRIM_OPERATORS:
        return lhs, np.zeros(lhs.shape, dtype=bool)
    return arithmetic(expr.op, lhs, rhs), np.ones(lhs.shape, dtype=bool)


def _with_histograms(match: VectorMatch, block: Block, rows: tuple[Ints, Ints], mixed: Bools) -> Block:
    cells: list[tuple[int, int, Histogram]] = []
    for pair, step in zip(*(axis.tolist() for axis in mixed.nonzero()), strict=True):
        match.evaluation.look_now_and_then()
        result = match.operation(int(rows[0][pair]), int(rows[1][pair]), step)
        if result is None:
            continue
        histogram, holds = result
        if match.expr.return_bool:
            block.values[pair, step], block.valid[pair, step] = float(holds), True
        elif holds:
            cells.append((pair, step, histogram))
    return with_histograms(block, cells)


def _held(block: Block, row: int, cells: Bools) -> Bools:
    """Where the row is a histogram; a row that is filled in never is."""
    return np.zeros_like(cells) if row < 0 or block.hmask is None else block.hmask[row]


def _cell(block: Block, row: int, step: int, fill: float | None) -> float | Histogram:
    if row < 0:
        return 0.0 if fill is None else fill
    if block.hmask is not None and block.hists is not None and block.hmask[row, step]:
        histogram: Histogram = block.hists[row, step]
        return histogram
    return float(block.values[row, step])


def vector_scalar(evaluation: Evaluation, expr: Binary, block: Block, scalar: Floats, swapped: bool) -> Block:
    """`swapped` when the scalar stands on the left. A comparison always keeps the vector's value."""
    lhs, rhs = (np.broadcast_to(scalar, block.shape), block.values) if swapped else (block.values, scalar)
    valid = block.valid
    notes = LastOfStep(evaluation.notes)
    if expr.op in COMPARISONS:
        keep = compared(expr.op, lhs, rhs)
        values = keep.astype(np.float64) if expr.return_bool else block.values
        valid = valid if expr.return_bool else valid & keep
    elif expr.op in TRIM_OPERATORS:
        values = block.values
        for row, step in zip(*(axis.tolist() for axis in valid.nonzero()), strict=True):
            notes.at(step, (0, row)).incompatible_types("float", expr.op, "float", expr.start)
        valid = np.zeros_like(valid)
    else:
        values = arithmetic(expr.op, lhs, rhs)
    drop = block.drop_name | (expr.op in ARITHMETIC or expr.return_bool)
    out = Block(block.labels, values, valid, drop)
    cells: list[tuple[int, int, Histogram]] = []
    for row, step, histogram in block.histogram_cells():
        evaluation.look_now_and_then()
        number = float(scalar[step])
        left, right = (number, histogram) if swapped else (histogram, number)
        result = histogram_operation(expr.op, left, right, notes.at(step, (0, row)), expr.start)
        if result is not None and result[1]:
            cells.append((row, step, result[0]))
    notes.flush()
    return with_histograms(out, cells).pruned()
