"""Vector matching: which series of two vectors belong together, decided once per pair and for all steps at once."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lakerunner.model.labels import METRIC_NAME, LabelSet
from lakerunner.query.series.block import Block, Bools, EvaluationError, any_series
from lakerunner.query.series.histograms.histogram import Histogram
from lakerunner.query.vectors.annotations import Annotations, LastOfStep, format_labels
from lakerunner.query.vectors.context import Evaluation
from lakerunner.query.vectors.operators import ARITHMETIC, TRIM_OPERATORS, histogram_operation

#: The labels that two series must have in common to match.
Signature = tuple[str, ...] | LabelSet


class Cardinality(enum.Enum):
    ONE_TO_ONE = "one-to-one"
    MANY_TO_ONE = "many-to-one"
    ONE_TO_MANY = "one-to-many"
    MANY_TO_MANY = "many-to-many"


@dataclass(frozen=True, slots=True)
class Matching:
    """How the series of the left and the right side are matched."""

    cardinality: Cardinality = Cardinality.ONE_TO_ONE
    #: True: match on `labels` alone. False: on all labels except `labels` and the metric name.
    on: bool = False
    labels: tuple[str, ...] = ()
    #: The labels that results copy from the "one" side.
    include: tuple[str, ...] = ()
    #: The value that stands in for a missing series of that side. None: without a match there is no result.
    fill_left: float | None = None
    fill_right: float | None = None

    @property
    def fills(self) -> bool:
        return self.fill_left is not None or self.fill_right is not None

    def signature(self) -> Callable[[LabelSet], Signature]:
        """Return the function from a series' labels to its signature."""
        if self.on:
            names = self.labels
            return lambda labels: tuple(labels.get(name) for name in names)
        ignored = (METRIC_NAME, *self.labels)
        return lambda labels: labels.without(*ignored)

    def group_labels(self, labels: LabelSet) -> LabelSet:
        """The labels that all series of a match group share."""
        return labels.keep(*self.labels) if self.on else labels.without(METRIC_NAME, *self.labels)


@dataclass(frozen=True, slots=True)
class BinaryOperation:
    """A binary operator between two vectors, or a vector and a scalar."""

    op: str
    matching: Matching = Matching()
    #: A comparison yields 0 or 1 instead of dropping samples.
    return_bool: bool = False
    #: Offset of the expression in the query text, for annotations.
    position: int = 0
    #: The series of the "one" side must be unique even where the other side has none.
    always_unique: bool = False


@dataclass(slots=True)
class MatchedPairs:
    """Pairs of series: the row on the many side, the row on the one side (-1: filled in), the steps both have."""

    many: list[int]
    one: list[int]
    cells: list[Bools]
    labels: list[LabelSet]


class VectorMatch:
    """Matches the series of two sides. Names follow Prometheus: "many" is the left side unless `group_right`."""

    def __init__(self, evaluation: Evaluation, operation: BinaryOperation, left: Block, right: Block) -> None:
        self.evaluation = evaluation
        self.notes = LastOfStep(evaluation.notes)
        #: Why the match fails: (step, 0 for the one side or 1 for the many side, reason).
        self.failures: list[tuple[int, int, str]] = []
        self.operation = operation
        self.matching = operation.matching
        self.swapped = self.matching.cardinality is Cardinality.ONE_TO_MANY
        self.many, self.one = (right, left) if self.swapped else (left, right)
        signature = self.matching.signature()
        self.many_groups = _match_groups(self.many, signature)
        self.one_groups = _match_groups(self.one, signature)
        self.many_present = self.many.present
        self.one_present = self.one.present
        # A step at which one side is empty has no result, unless missing series are filled in.
        self.live = any_series(self.many_present) & any_series(self.one_present)
        if self.matching.fills or operation.always_unique:
            self.live = np.ones_like(self.live)

    def pairs(self) -> MatchedPairs:
        simple = self._simple_pairs()
        if simple is not None:
            return simple
        pairs = MatchedPairs([], [], [], [])
        self._check_one_side()
        if self.failures and self.failures[0][0] == int(self.live.argmax()):
            # No failure can come earlier than this one, and matching on could make very many pairs.
            raise EvaluationError(self.failures[0][2])
        for signature, ones in self.one_groups.items():
            if signature not in self.many_groups:
                self._fill_many(pairs, ones, np.zeros_like(self.live))
        for signature, manys in self.many_groups.items():
            self._match_group(pairs, manys, self.one_groups.get(signature, []))
        if self.failures:
            # Report the first step's failure; within a step, the one side's first.
            raise EvaluationError(min(self.failures)[2])
        return pairs

    def _simple_pairs(self) -> MatchedPairs | None:
        """The common case, without looking at single cells: at most one series per group on the one side, no fills."""
        if self.matching.fills:
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
        return MatchedPairs(many, one, list(cells), labels)

    def _match_group(self, pairs: MatchedPairs, manys: list[int], ones: list[int]) -> None:
        """Pair the series of one group.

        Two samples that the operator cannot combine do not count as matched: either one may still match another
        sample, or be filled in.
        """
        one_there = any_series(self.one_present[ones]) if ones else np.zeros_like(self.live)
        before = len(pairs.many)
        for many in manys:
            for one in ones:
                self.evaluation.check_time_sometimes()
                cells = self._with_result(many, one, self.many_present[many] & self.one_present[one])
                if cells.any():
                    self._add(pairs, many, one, cells)
            if self.matching.fill_right is not None:
                cells = self._with_result(many, -1, self.many_present[many] & ~one_there)
                if cells.any():
                    self._add(pairs, many, -1, cells)
        if ones:
            self._fill_many(pairs, ones, any_series(np.array([self.live & False, *pairs.cells[before:]])))
        self._check_many_side(pairs, before)

    def _with_result(self, many: int, one: int, cells: Bools) -> Bools:
        """The cells for which the operator has a result. Where a histogram takes part, the operation is tried."""
        trims = self.operation.op in TRIM_OPERATORS
        has_histogram = _histogram_steps(self.many, many, cells) | _histogram_steps(self.one, one, cells)
        if not has_histogram.any() and not (trims and cells.any()):
            return cells
        out = cells.copy()
        if trims:
            for step in (cells & ~has_histogram).nonzero()[0].tolist():
                self.note_float_trim(many, one, step)
            out &= has_histogram
        for step in (has_histogram & cells).nonzero()[0].tolist():
            out[step] = self.histogram_result(many, one, step) is not None
        return out

    def histogram_result(self, many: int, one: int, step: int) -> tuple[Histogram, bool] | None:
        """The result of a pair at a step where at least one of the two is a histogram."""
        many_cell = _cell(self.many, many, step, self.matching.fill_left)
        one_cell = _cell(self.one, one, step, self.matching.fill_right)
        left, right = (one_cell, many_cell) if self.swapped else (many_cell, one_cell)
        notes = self._notes_at(many, one, step)
        return histogram_operation(self.operation.op, left, right, notes, self.operation.position)

    def note_float_trim(self, many: int, one: int, step: int) -> None:
        notes = self._notes_at(many, one, step)
        notes.incompatible_types("float", self.operation.op, "float", self.operation.position)

    def _notes_at(self, many: int, one: int, step: int) -> Annotations:
        """Pairs are ordered by the many side; pairs with a filled-in many side come last."""
        return self.notes.at(step, (0, many) if many >= 0 else (1, one))

    def _fill_many(self, pairs: MatchedPairs, ones: list[int], many_there: Bools) -> None:
        if self.matching.fill_left is None:
            return
        for one in ones:
            cells = self._with_result(-1, one, self.one_present[one] & ~many_there)
            if cells.any():
                self._add(pairs, -1, one, cells)

    def _add(self, pairs: MatchedPairs, many: int, one: int, cells: Bools) -> None:
        pairs.many.append(many)
        pairs.one.append(one)
        pairs.cells.append(cells)
        group_labels = self.matching.group_labels
        many_labels = group_labels(self.one.labels[one]) if many < 0 else self.many.labels[many]
        one_labels = group_labels(self.many.labels[many]) if one < 0 else self.one.labels[one]
        pairs.labels.append(self._result_labels(many_labels, one_labels))

    def _result_labels(self, many: LabelSet, one: LabelSet) -> LabelSet:
        out = many
        if self.operation.op in ARITHMETIC:
            out = out.of_computed()
        if self.matching.cardinality is Cardinality.ONE_TO_ONE:
            out = out.keep(*self.matching.labels) if self.matching.on else out.without(*self.matching.labels)
        for name in self.matching.include:
            out = out.with_label(name, one.get(name))
        return out

    def _check_one_side(self) -> None:
        """Fail if two series of a group exist at the same step. The message names the first two, in vector order."""
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
        group = format_labels(self.matching.group_labels(first))
        reason = (
            f"found duplicate series for the match group {group} on the {side} hand-side of the operation: "
            f"[{format_labels(first)}, {format_labels(second)}];many-to-many matching not allowed: "
            "matching labels must be unique on one side"
        )
        self.failures.append((step, 0, reason))

    def _check_many_side(self, pairs: MatchedPairs, before: int) -> None:
        """Fail if two pairs of one match group yield the same series at the same step."""
        found = range(before, len(pairs.many))
        if len(found) < 2:
            return
        if self.matching.cardinality is Cardinality.ONE_TO_ONE:
            reason = "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)"
            self._fail_at(np.sum([pairs.cells[i] for i in found], axis=0) > 1, reason)
            return
        used_cells: dict[LabelSet, Bools] = {}
        for i in found:
            used = used_cells.get(pairs.labels[i])
            if used is not None:
                reason = "multiple matches for labels: grouping labels must ensure unique matches"
                self._fail_at(used & pairs.cells[i], reason)
            used_cells[pairs.labels[i]] = pairs.cells[i] if used is None else used | pairs.cells[i]

    def _fail_at(self, steps: Bools, reason: str) -> None:
        if steps.any():
            self.failures.append((int(steps.argmax()), 1, reason))


def _match_groups(block: Block, signature: Callable[[LabelSet], Signature]) -> dict[Signature, list[int]]:
    groups: dict[Signature, list[int]] = defaultdict(list)
    for row, labels in enumerate(block.labels):
        groups[signature(labels)].append(row)
    return groups


def _histogram_steps(block: Block, row: int, cells: Bools) -> Bools:
    """The steps at which the row is a histogram; a filled-in row never is."""
    return np.zeros_like(cells) if row < 0 or block.hmask is None else block.hmask[row]


def _cell(block: Block, row: int, step: int, fill: float | None) -> float | Histogram:
    if row < 0:
        return 0.0 if fill is None else fill
    if block.hmask is not None and block.hists is not None and block.hmask[row, step]:
        histogram: Histogram = block.hists[row, step]
        return histogram
    return float(block.values[row, step])
