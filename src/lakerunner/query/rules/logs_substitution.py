"""LogQL: puts the values of parts into the rest of a metric query, which is evaluated over them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from lakerunner.query.language import Check, Evaluated
from lakerunner.query.logql import ast
from lakerunner.query.logql.eval.facts import walk
from lakerunner.query.logql.language import LogSteps
from lakerunner.query.rules.ruled_plan import RuledPart
from lakerunner.query.run import evaluated
from lakerunner.query.series.batch import SeriesSource
from lakerunner.query.series.block import Block
from lakerunner.query.series.histograms.histogram import Ints


class LogSubstitution:
    #: Steps are independent of each other, so that groups may be cut where rules begin to have all rows.
    cuts = True

    def __init__(self, plan: LogSteps) -> None:
        self._plan = plan

    def answers_all(self, parts: Sequence[RuledPart]) -> bool:
        cut = _Cut({id(part.node): number for number, part in enumerate(parts)})
        cut.without_reads(self._plan.expr)
        return not cut.raw

    def evaluate(
        self, parts: Sequence[RuledPart], steps: Ints, source: SeriesSource, check: Check, max_samples: int
    ) -> Evaluated:
        """Parts that no rule answers are read from raw rows, each on its own, where the rows are."""
        given: list[Block] = []
        samples = 0
        numbers = {id(part.node): number for number, part in enumerate(parts)}
        for part in parts:
            block, cost = part.block(steps, source, check, max_samples - samples)
            samples += cost
            given.append(block)
        cut = _Cut(numbers)
        expr = cut.without_reads(self._plan.expr)
        for raw in cut.raw:
            found = evaluated(self._plan.part(raw), steps, source, check, max_samples - samples)
            samples += found.samples
            given.append(found.block)
        found = self._plan.combined(expr, given, steps, check, max_samples - samples)
        return dataclasses.replace(found, samples=found.samples + samples)


class _Cut:
    """Replaces the parts that rules answer, and the largest parts that read entries beside them."""

    def __init__(self, numbers: dict[int, int]) -> None:
        self._numbers = numbers
        self.raw: list[ast.MetricExpr] = []

    def without_reads(self, expr: ast.MetricExpr) -> ast.MetricExpr:
        number = self._numbers.get(id(expr))
        if number is not None:
            return ast.Given(number)
        if not any(id(node) in self._numbers for node in walk(expr)):
            if not any(isinstance(node, ast.RangeAggregate) for node in walk(expr)):
                return expr
            self.raw.append(expr)
            return ast.Given(len(self._numbers) + len(self.raw) - 1)
        match expr:
            case ast.Binary():
                left = self.without_reads(expr.left)
                return dataclasses.replace(expr, left=left, right=self.without_reads(expr.right))
            case ast.VectorAggregate() | ast.LabelReplace():
                return dataclasses.replace(expr, expr=self.without_reads(expr.expr))
        return expr
