"""The evaluator: walks the tree and evaluates every node once, for all steps together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from lakerunner.model.errors import Bug
from lakerunner.model.labels import LabelSet
from lakerunner.query.promql.ast import (
    Aggregate,
    Binary,
    Call,
    Expr,
    MatrixSelector,
    Number,
    Paren,
    String,
    Subquery,
    Unary,
    VectorSelector,
    unwrapped,
)
from lakerunner.query.promql.durations import positive_duration_ms
from lakerunner.query.promql.eval.calls import Calls
from lakerunner.query.promql.eval.pinned import is_pinned
from lakerunner.query.promql.eval.selectors import instant_vector, reference_times
from lakerunner.query.promql.functions import ANCHORED_SAFE, SMOOTHED_SAFE
from lakerunner.query.series.block import Block, EvaluationError, with_histograms
from lakerunner.query.series.histograms.histogram import Floats, Ints
from lakerunner.query.series.reading import Need, Reading
from lakerunner.query.series.results import MatrixResult
from lakerunner.query.vectors import ranges
from lakerunner.query.vectors.aggregate import Aggregation, aggregate, check_value_label, count_values
from lakerunner.query.vectors.binary import set_operation, vector_scalar, vector_vector
from lakerunner.query.vectors.context import Evaluation
from lakerunner.query.vectors.instant import repeated
from lakerunner.query.vectors.matching import BinaryOperation
from lakerunner.query.vectors.operators import COMPARISONS, SET_OPERATORS, TRIM_OPERATORS, arithmetic, compared
from lakerunner.query.vectors.range_samples import RangeSamples, from_batch, from_block
from lakerunner.query.vectors.ranges import RangeVector
from lakerunner.query.vectors.raw_range import raw_matrix
from lakerunner.query.vectors.selection import select

#: Scalars have one value per step.
Value = Floats | Block | str


class Evaluator(Calls):
    """Evaluates expressions at ascending times. Scalars are arrays, vectors are blocks."""

    def __init__(self, evaluation: Evaluation) -> None:
        self.evaluation = evaluation
        self.start_ms = evaluation.query.start_ms
        self.end_ms = evaluation.query.end_ms

    @contextmanager
    def _between(self, start_ms: int, end_ms: int) -> Iterator[None]:
        """While evaluating the steps of a subquery, or a pinned expression at its one time."""
        before = self.start_ms, self.end_ms
        self.start_ms, self.end_ms = start_ms, end_ms
        yield
        self.start_ms, self.end_ms = before

    def value(self, expr: Expr, times: Ints) -> Value:
        self.evaluation.check_time()
        if self.start_ms == self.end_ms or not is_pinned(expr):
            return self._value(expr, times)
        first_ms = self.start_ms
        with self._between(first_ms, first_ms):
            found = self._value(expr, np.array([first_ms], dtype=np.int64))
        if isinstance(found, Block):
            return repeated(self.evaluation, found, len(times))
        return found if isinstance(found, str) else np.repeat(found, len(times))

    def _value(self, expr: Expr, times: Ints) -> Value:
        match expr:
            case Number(value=number):
                return np.full(len(times), number)
            case String(value=text):
                return text
            case Paren(expr=inner):
                return self.value(inner, times)
            case VectorSelector():
                return instant_vector(self.evaluation, expr, times)
            case Unary():
                return self._unary(expr, times)
            case Binary():
                return self._binaries(expr, times)
            case Aggregate():
                return self._aggregate(expr, times)
            case Call():
                return self.call(expr, times)
            case _:
                raise Bug(f"cannot evaluate {type(expr).__name__} as an instant value")

    def block(self, expr: Expr, times: Ints) -> Block:
        found = self.value(expr, times)
        if isinstance(found, Block):
            return found
        if isinstance(found, str):
            raise Bug("cannot use a string as a vector")
        return Block.single(LabelSet(()), found)

    def scalar(self, expr: Expr, times: Ints) -> Floats:
        found = self.value(expr, times)
        if not isinstance(found, np.ndarray):
            raise Bug("cannot use a vector as a scalar")
        return found

    def _unary(self, expr: Unary, times: Ints) -> Value:
        found = self.value(expr.expr, times)
        if expr.op == "+" or isinstance(found, str):
            return found
        if isinstance(found, np.ndarray):
            return -found
        cells = [(row, step, histogram.scaled(-1)) for row, step, histogram in found.histogram_cells()]
        negated = Block(found.labels, -found.values, found.valid, np.ones(len(found.labels), dtype=bool))
        return with_histograms(negated, cells)

    def _binaries(self, expr: Binary, times: Ints) -> Value:
        """Evaluate a chain of left-associative operators in a loop: generated queries have long ones."""
        spine = [expr]
        while isinstance(spine[-1].left, Binary):
            spine.append(spine[-1].left)
        if any(node.op in TRIM_OPERATORS for node in spine):
            with self.evaluation.reading_buckets():
                return self._chain(spine, times)
        return self._chain(spine, times)

    def _chain(self, spine: list[Binary], times: Ints) -> Value:
        found = self.value(spine[-1].left, times)
        for node in reversed(spine):
            found = self._binary(node, found, self.value(node.right, times))
        return found

    def _binary(self, expr: Binary, left: Value, right: Value) -> Value:
        if isinstance(left, str) or isinstance(right, str):
            raise Bug("cannot compute with strings")
        if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
            if expr.op in COMPARISONS:
                return compared(expr.op, left, right).astype(np.float64)
            if expr.op in TRIM_OPERATORS:
                raise EvaluationError(f'operator "{expr.op}" not allowed for Scalar operations')
            return arithmetic(expr.op, left, right)
        operation = BinaryOperation(expr.op, expr.matching, expr.return_bool, expr.start)
        if isinstance(left, np.ndarray):
            assert isinstance(right, Block)
            return vector_scalar(self.evaluation, operation, right, left, swapped=True)
        if isinstance(right, np.ndarray):
            return vector_scalar(self.evaluation, operation, left, right, swapped=False)
        if expr.op in SET_OPERATORS:
            return set_operation(expr.op, expr.matching, left, right)
        return vector_vector(self.evaluation, operation, left, right)

    def _aggregate(self, expr: Aggregate, times: Ints) -> Block:
        literal = None if expr.param is None else unwrapped(expr.param)
        aggregation = Aggregation(
            expr.op,
            expr.grouping,
            expr.without,
            position=expr.start,
            vector_position=unwrapped(expr.expr).start,
            param_position=0 if literal is None else literal.start,
        )
        if expr.op == "count_values":
            assert isinstance(literal, String)
            # An invalid label is reported before the vector is evaluated.
            check_value_label(literal.value)
            return count_values(self.evaluation, aggregation, literal.value, self.block(expr.expr, times))
        param = None if expr.param is None else self.scalar(expr.param, times)
        return aggregate(self.evaluation, aggregation, self.block(expr.expr, times), param)

    # -- range vectors -----------------------------------------------------------------------------------------

    def range_vector(self, expr: Expr, times: Ints, function: str) -> RangeVector:
        node = unwrapped(expr)
        if isinstance(node, Subquery):
            return self._subquery(node, times)
        assert isinstance(node, MatrixSelector)
        return self._matrix(node, times, function)

    def _matrix(self, node: MatrixSelector, times: Ints, function: str) -> RangeVector:
        selector = node.vector
        _check_extended(selector, function)
        range_ms = positive_duration_ms(node.range, self.evaluation.query)
        until, fixed = reference_times(self.evaluation, selector, times)
        after = until - range_ms
        lookback_ms = self.evaluation.options.lookback_ms
        reach = lookback_ms if selector.anchored or selector.smoothed else 0
        start_ms = int(after[0]) - reach + 1
        end_ms = int(until[-1]) + (reach if selector.smoothed else 0)
        options = self.evaluation.options
        need = Need.RAW if reach else ranges.need_of(function, approximate=options.approximate)
        reading = Reading.of(need, function or "a range vector", until, range_ms, options.max_tier_s)
        batch = select(self.evaluation, selector.matchers, start_ms, end_ms, (after, until), reading)
        return RangeVector(
            from_batch(batch), after, until, fixed, range_ms, node.start, selector.anchored, selector.smoothed, reach
        )

    def _subquery(self, node: Subquery, times: Ints) -> RangeVector:
        range_ms = positive_duration_ms(node.range, self.evaluation.query)
        until, fixed = reference_times(self.evaluation, node, times)
        samples = self.subquery_samples(node, until, range_ms)
        # As in Prometheus, annotations about a subquery point at the beginning of the query.
        return RangeVector(samples, until - range_ms, until, fixed, range_ms, position=0)

    def subquery_samples(self, node: Subquery, until: Ints, range_ms: int) -> RangeSamples:
        """Evaluate the inner expression at all multiples of the step that lie in a window."""
        step_ms = self.evaluation.options.default_step_ms
        if node.step is not None:
            step_ms = positive_duration_ms(node.step, self.evaluation.query)
        first = (until - range_ms) // step_ms + 1
        last = until // step_ms
        total = int(np.maximum(last - first + 1, 0).sum())
        span = int(last.max() - first.min()) + 1
        self.evaluation.spend(min(total, max(span, 0)))
        if span <= total:
            grid = np.arange(first.min(), last.max() + 1, dtype=np.int64)
        else:
            pieces = [np.arange(a, b + 1, dtype=np.int64) for a, b in zip(first.tolist(), last.tolist(), strict=True)]
            grid = np.unique(np.concatenate(pieces))
        inner = grid * step_ms
        if not len(inner):
            return from_block(Block.empty(0), inner)
        with self.evaluation.reading_buckets(), self._between(*self._span(node, range_ms, step_ms)):
            return from_block(self.block(node.expr, inner), inner)

    def _span(self, node: Subquery, range_ms: int, step_ms: int) -> tuple[int, int]:
        """The first step of the subquery, and its end, which need not be a step."""
        edges, _ = reference_times(self.evaluation, node, np.array([self.start_ms, self.end_ms], dtype=np.int64))
        return (int(edges[0]) - range_ms) // step_ms * step_ms + step_ms, int(edges[-1])


def raw_range(evaluator: Evaluator, expr: Expr, times: Ints) -> MatrixResult:
    """The samples of a range vector that is the complete query."""
    return raw_matrix(evaluator.evaluation, evaluator.range_vector(expr, times, ""))


def _check_extended(selector: VectorSelector, function: str) -> None:
    for on, word, safe in (
        (selector.anchored, "anchored", ANCHORED_SAFE),
        (selector.smoothed, "smoothed", SMOOTHED_SAFE),
    ):
        if on and function not in safe and function:
            raise EvaluationError(f"{word} modifier can only be used with: {', '.join(safe)} - not with {function}")
