"""Evaluates a metric query: every node of the tree once, for all steps together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lakerunner.model.errors import Bug
from lakerunner.model.labels import LabelSet
from lakerunner.query.logql import ast
from lakerunner.query.logql.entries import Check, Ints
from lakerunner.query.logql.eval.aggregations import aggregated
from lakerunner.query.logql.eval.facts import SORTS, is_sorted
from lakerunner.query.logql.eval.needs import Needs, absorbed, groups_of_entries, needs_of
from lakerunner.query.logql.eval.source import EntrySource
from lakerunner.query.logql.eval.windows import Windows
from lakerunner.query.series.block import Block
from lakerunner.query.series.histograms.histogram import Floats
from lakerunner.query.series.label_list import in_order, valued
from lakerunner.query.series.memory_source import MemorySource
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.vectors.aggregate import Aggregation, aggregate
from lakerunner.query.vectors.annotations import Annotations
from lakerunner.query.vectors.binary import set_operation, vector_scalar, vector_vector
from lakerunner.query.vectors.context import EngineOptions, Evaluation
from lakerunner.query.vectors.label_functions import relabelled, sorted_by_value
from lakerunner.query.vectors.matching import BinaryOperation
from lakerunner.query.vectors.operators import COMPARISONS, SET_OPERATORS, arithmetic, compared

#: Scalars have one value per step.
Value = Floats | Block

#: Aggregations whose result has series of their vector.
_CHOICES = frozenset({"topk", "bottomk"})
#: Division by zero has no value, not even an infinite one.
_DIVISIONS = frozenset({"/", "%"})


def evaluate(
    expr: ast.MetricExpr,
    steps_ns: Ints,
    source: EntrySource,
    check: Check,
    limits: EngineOptions,
    *,
    ranged: bool = False,
) -> Block:
    """The value at every step; a scalar is one series without labels.

    In an instant query, `label_replace` may yield several series with the same labels, as in Loki. `ranged` tells a
    range query of one step from it.
    """
    return Evaluator(source, check, limits, ranged=ranged).block(expr, steps_ns)


class Evaluator:
    """Evaluates the steps of one query. Scalars are arrays, vectors are blocks."""

    def __init__(
        self,
        source: EntrySource,
        check: Check,
        limits: EngineOptions,
        given: Sequence[Block] = (),
        *,
        ranged: bool = False,
    ) -> None:
        self._source = source
        self._given = given
        self._ranged = ranged
        #: Whether several series may have the same labels.
        self._relabelled = False
        # The shared operations on vectors never read series.
        notes = Annotations("", "LogQL")
        self.evaluation = Evaluation(MemorySource(), QueryTimes(0, 0, 0), limits, notes, cancelled=check)
        self._ranges: dict[tuple[ast.RangeAggregate, Needs], Block] = {}

    def block(self, expr: ast.MetricExpr, steps_ns: Ints) -> Block:
        """The value of the query. The series of an instant query are in the order of the answer."""
        found = self._vector(expr, steps_ns)
        if self._ranged or len(steps_ns) != 1:
            # A series has one value at a step.
            return found.merged() if self._relabelled else found
        if is_sorted(expr):
            return found
        order = in_order(found.labels)
        return found if order is None else found.rows(order)

    def _vector(self, expr: ast.MetricExpr, steps: Ints) -> Block:
        found = self._value(expr, steps)
        return found if isinstance(found, Block) else Block.single(LabelSet(()), found)

    def _value(self, expr: ast.MetricExpr, steps: Ints) -> Value:
        self.evaluation.check_time()
        match expr:
            case ast.Number(value=number):
                return np.full(len(steps), number)
            case ast.VectorLiteral(value=number):
                return Block.single(LabelSet(()), np.full(len(steps), number))
            case ast.RangeAggregate():
                return self._range(expr, None, steps)
            case ast.VectorAggregate():
                return self._aggregate(expr, steps)
            case ast.Binary():
                return self._chain(expr, steps)
            case ast.LabelReplace():
                return self._label_replace(expr, steps)
            case ast.Given(number=place):
                return self._given[place]
            case _:
                raise Bug(f"cannot evaluate {type(expr).__name__}: it has no value at a step")

    def _range(self, node: ast.RangeAggregate, outer: ast.Grouping | None, steps: Ints, outer_op: str = "") -> Block:
        """The range aggregation; with `outer`, as grouped by the vector aggregation `outer_op`.

        A query often repeats one, for instance on both sides of a division.
        """
        needs = needs_of(node, outer, outer_op)
        if (node, needs) not in self._ranges:
            windows = Windows.of(steps, node.range.range_ns, node.range.offset_ns)
            self._ranges[node, needs] = aggregated(self.evaluation, self._source, node, needs, windows)
        return self._ranges[node, needs]

    def _aggregate(self, node: ast.VectorAggregate, steps: Ints) -> Block:
        grouping = absorbed(node)
        if grouping is not None:
            assert isinstance(node.expr, ast.RangeAggregate)
            block = self._range(node.expr, grouping, steps, node.op)
            labels = valued(block.labels) if grouping.without else block.labels
            if labels is block.labels:
                return block
            return aggregate(self.evaluation, Aggregation(node.op, without=True), block.relabelled(labels), None)
        block = self._members(node, steps)
        if node.op in SORTS:
            return sorted_by_value(block, node.op == "sort_desc") if len(steps) == 1 else block
        op = "topk" if node.op == "approx_topk" else node.op
        grouping = node.grouping or ast.Grouping()
        if grouping.without and op not in _CHOICES:
            # As in Loki, the result has no empty labels.
            block = block.relabelled(valued(block.labels))
        param = None if node.param is None else np.full(len(steps), float(node.param))
        found = aggregate(self.evaluation, Aggregation(op, grouping.labels, grouping.without), block, param)
        if op not in ("stddev", "stdvar"):
            return found
        # One value does not deviate, not even NaN. Prometheus says NaN there.
        count = aggregate(self.evaluation, Aggregation("count", grouping.labels, grouping.without), block, None)
        return replace(found, values=np.where(count.values == 1, 0.0, found.values))

    def _members(self, node: ast.VectorAggregate, steps: Ints) -> Block:
        """The vector to aggregate. A count of groups only asks which there are, not what they amount to."""
        inner = node.expr
        if node.op == "count" and isinstance(inner, ast.VectorAggregate) and (groups := groups_of_entries(inner)):
            return self._range(*groups, steps, inner.op)
        return self._vector(inner, steps)

    def _chain(self, expr: ast.Binary, steps: Ints) -> Value:
        """Evaluate a chain of left-associative operators in a loop: generated queries have long ones."""
        spine = [expr]
        while isinstance(spine[-1].left, ast.Binary):
            spine.append(spine[-1].left)
        found = self._value(spine[-1].left, steps)
        for node in reversed(spine):
            found = self._binary(node, found, self._value(node.right, steps))
        return found

    def _binary(self, node: ast.Binary, left: Value, right: Value) -> Value:
        op = node.op
        if op in _DIVISIONS:
            right = _without_zeros(right)
        if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
            if op in COMPARISONS:
                return compared(op, left, right).astype(np.float64)
            return arithmetic(op, left, right)
        operation = BinaryOperation(op, node.matching, node.return_bool and op in COMPARISONS, always_unique=True)
        if isinstance(left, np.ndarray):
            assert isinstance(right, Block)
            block = vector_scalar(self.evaluation, operation, right, left, swapped=True)
        elif isinstance(right, np.ndarray):
            block = vector_scalar(self.evaluation, operation, left, right, swapped=False)
        elif op in SET_OPERATORS:
            block = set_operation(op, node.matching, left, right, matched_by=valued, apart=self._relabelled)
        else:
            # As in Loki, an empty label matches an absent one, and the result has no empty labels.
            sides = (side.relabelled(valued(side.labels)) for side in (left, right))
            block = vector_vector(self.evaluation, operation, *sides)
        # Series of logs have no metric name that could be dropped.
        return replace(block, drop_name=np.zeros(len(block.labels), np.bool_))

    def _label_replace(self, node: ast.LabelReplace, steps: Ints) -> Block:
        block = self._vector(node.expr, steps)
        # As in Loki, whatever reads the series tells apart those that came to have the same labels.
        self._relabelled = True
        return relabelled(self.evaluation, block, node.target, node.replacement, node.source, node.pattern)


def _without_zeros(divisor: Value) -> Value:
    if isinstance(divisor, Block):
        return replace(divisor, values=np.where(divisor.values == 0, np.nan, divisor.values))
    return np.where(divisor == 0, np.nan, divisor)
