"""The engine: a query text and a source of series to a typed result."""

from __future__ import annotations

import numpy as np

from lakerunner.model.errors import BadInput, Bug, LimitHit
from lakerunner.query.promql.ast import Expr, MatrixSelector, Subquery, ValueType, unwrapped
from lakerunner.query.promql.check import check
from lakerunner.query.promql.eval.evaluator import Evaluator, raw_range
from lakerunner.query.promql.lexer import LANGUAGE
from lakerunner.query.promql.parser import parse
from lakerunner.query.promql.part import Cancelled, Evaluated, Part, evaluated
from lakerunner.query.series.batch import SeriesSource
from lakerunner.query.series.block import Block
from lakerunner.query.series.histograms.histogram import Histogram, Ints
from lakerunner.query.series.label_list import in_order
from lakerunner.query.series.results import (
    MatrixResult,
    QueryResult,
    ScalarResult,
    StepMatrix,
    StringResult,
    Value,
    VectorResult,
)
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.vectors.annotations import Annotations
from lakerunner.query.vectors.context import EngineOptions, Evaluation


class Engine:
    def __init__(self, source: SeriesSource, options: EngineOptions | None = None) -> None:
        self._source = source
        self._options = options or EngineOptions()

    def instant(self, text: str, time_ms: int, cancelled: Cancelled | None = None) -> QueryResult:
        """The value of the expression at one time."""
        expr = parse(text)
        query = QueryTimes(time_ms, time_ms, 0)
        times = np.array([time_ms], dtype=np.int64)
        if check(text, expr) is ValueType.VECTOR:
            found = evaluated(self._source, Part(text, query, times, self._options), cancelled)
            return _result(found, _vector(found.block, time_ms))
        evaluation = Evaluation(self._source, query, self._options, Annotations(text, LANGUAGE), cancelled)
        value: Value
        with np.errstate(all="ignore"):
            if isinstance(unwrapped(expr), MatrixSelector | Subquery):
                value = raw_range(Evaluator(evaluation), unwrapped(expr), times)
            else:
                value = _single(Evaluator(evaluation).value(expr, times), time_ms)
        notes = evaluation.notes
        return QueryResult(value, notes.warnings(), notes.infos(), evaluation.samples)

    def range(
        self, text: str, start_ms: int, end_ms: int, step_ms: int, cancelled: Cancelled | None = None
    ) -> QueryResult:
        """The value of the expression at `start_ms` and every `step_ms` after it, up to `end_ms`."""
        expr = parse(text)
        times = self._steps(text, expr, start_ms, end_ms, step_ms)
        part = Part(text, QueryTimes(start_ms, end_ms, step_ms), times, self._options)
        found = evaluated(self._source, part, cancelled)
        return _result(found, matrix_of(found.block, times))

    def _steps(self, text: str, expr: Expr, start_ms: int, end_ms: int, step_ms: int) -> Ints:
        check_ranged(text, expr)
        if step_ms <= 0:
            raise BadInput("cannot run a range query: its step is not positive")
        if end_ms < start_ms:
            raise BadInput("cannot run a range query: its end is before its start")
        steps = (end_ms - start_ms) // step_ms + 1
        if steps > self._options.max_steps:
            raise LimitHit(
                f"cannot run a range query of {steps:,} steps: more than {self._options.max_steps:,} (api.max_steps)",
                hint="widen the step or shorten the range",
            )
        return start_ms + step_ms * np.arange(steps, dtype=np.int64)


def check_ranged(text: str, expr: Expr) -> None:
    """Whether the expression has a value at every step."""
    kind = check(text, expr)
    if kind not in (ValueType.SCALAR, ValueType.VECTOR):
        raise BadInput(
            f'cannot run a range query: invalid expression type "{kind}" for range query, '
            "must be Scalar or instant Vector"
        )


def _result(found: Evaluated, value: Value) -> QueryResult:
    return QueryResult(value, found.notes.warnings(), found.notes.infos(), found.samples)


def _single(found: Block | np.ndarray | str, time_ms: int) -> Value:
    if isinstance(found, str):
        return StringResult(time_ms, found)
    if isinstance(found, np.ndarray):
        return ScalarResult(time_ms, float(found[0]))
    raise Bug("cannot give a vector as a single value")


def _vector(block: Block, time_ms: int) -> VectorResult:
    hists: list[Histogram | None] = [None] * len(block.labels)
    if block.hists is not None and block.hmask is not None:
        for row in block.hmask[:, 0].nonzero()[0].tolist():
            hists[row] = block.hists[row, 0]
    return VectorResult(time_ms, block.labels, block.values[:, 0], hists)


def matrix_of(block: Block, times: Ints) -> MatrixResult:
    """A block as it leaves the evaluation, its series in order."""
    order = in_order(block.labels)
    block = block if order is None else block.rows(order)
    return MatrixResult(steps=StepMatrix(block.labels, times, block.values, block.valid, block.hists, block.hmask))
