"""TraceQL: calculates with the values of metrics that rules answer, and of those that they do not."""

from __future__ import annotations

from collections.abc import Sequence

from lakerunner.query.language import Check, Evaluated
from lakerunner.query.rules.ruled_plan import RuledPart
from lakerunner.query.run import evaluated
from lakerunner.query.series.batch import SeriesSource
from lakerunner.query.series.block import Block
from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.query.traceql import ast
from lakerunner.query.traceql.language import MetricPlan
from lakerunner.query.traceql.metric_values import then, with_operator
from lakerunner.query.vectors.annotations import Annotations


class SpanSubstitution:
    #: Within a group of steps, a series that has a value at one step is zero at the others, so groups stay as they are.
    cuts = False

    def __init__(self, plan: MetricPlan) -> None:
        self._plan = plan

    def answers_all(self, parts: Sequence[RuledPart]) -> bool:
        answered = {id(part.node) for part in parts}

        def all_of(expr: ast.MetricExpr) -> bool:
            if isinstance(expr, ast.MetricOp):
                return all_of(expr.left) and all_of(expr.right)
            return isinstance(expr, ast.MetricNumber) or id(expr) in answered

        return all_of(self._plan.root)

    def evaluate(
        self, parts: Sequence[RuledPart], steps: Ints, source: SeriesSource, check: Check, max_samples: int
    ) -> Evaluated:
        by_node = {id(part.node): part for part in parts}
        samples = 0

        def block(expr: ast.MetricExpr) -> Block:
            nonlocal samples
            part = by_node.get(id(expr))
            if isinstance(expr, ast.Metric) and part is not None:
                found, cost = part.block(steps, source, check, max_samples - samples)
                samples += cost
                return then(found, expr.then)
            if isinstance(expr, ast.MetricOp):
                return then(with_operator(expr.op, operand(expr.left), operand(expr.right)), expr.then)
            raw = evaluated(self._plan.part(expr), steps, source, check, max_samples - samples)
            samples += raw.samples
            return raw.block

        def operand(expr: ast.MetricExpr) -> Block | float:
            return expr.value if isinstance(expr, ast.MetricNumber) else block(expr)

        value = block(self._plan.root).pruned()
        return Evaluated(value, Annotations("", "TraceQL"), samples)
