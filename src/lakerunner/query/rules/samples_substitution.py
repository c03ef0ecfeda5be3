"""PromQL: puts queries over series of rules in place of the parts that rules answer. The result is PromQL again."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from lakerunner.model.errors import Bug
from lakerunner.query.language import Check, Evaluated
from lakerunner.query.promql import ast
from lakerunner.query.promql.language import LANGUAGE, PromQlSteps
from lakerunner.query.promql.printer import print_expr
from lakerunner.query.rules.ruled_plan import RuledPart
from lakerunner.query.run import evaluated
from lakerunner.query.series.batch import SeriesSource
from lakerunner.query.series.histograms.histogram import Ints


class SampleSubstitution:
    #: Steps are independent of each other, so that groups may be cut where rules begin to have all rows.
    cuts = True

    def __init__(self, plan: PromQlSteps) -> None:
        self._plan = plan

    def answers_all(self, parts: Sequence[RuledPart]) -> bool:
        known = {leaf for part in parts for leaf in part.plan.leaves}
        return known.issuperset(self._with(parts).leaves)

    def evaluate(
        self, parts: Sequence[RuledPart], steps: Ints, source: SeriesSource, check: Check, max_samples: int
    ) -> Evaluated:
        return evaluated(self._with(parts), steps, source, check, max_samples)

    def _with(self, parts: Sequence[RuledPart]) -> PromQlSteps:
        """The query with these parts replaced."""
        by = {id(part.node): part.plan.expr for part in parts if isinstance(part.plan, PromQlSteps)}
        expr = _replaced(self._plan.expr, by)
        plan = LANGUAGE.compile(print_expr(expr), self._plan.times, self._plan.options)
        if not isinstance(plan, PromQlSteps):
            raise Bug("cannot evaluate a query that rules answer: it has no steps any more")
        return plan


def _replaced(expr: ast.Expr, by: Mapping[int, ast.Expr]) -> ast.Expr:
    """The tree with other nodes in place of some. Subqueries stay as they are."""
    if id(expr) in by:
        return by[id(expr)]
    match expr:
        case ast.Paren() | ast.Unary():
            return dataclasses.replace(expr, expr=_replaced(expr.expr, by))
        case ast.Binary():
            return dataclasses.replace(expr, left=_replaced(expr.left, by), right=_replaced(expr.right, by))
        case ast.Call():
            return dataclasses.replace(expr, args=tuple(_replaced(each, by) for each in expr.args))
        case ast.Aggregate():
            param = None if expr.param is None else _replaced(expr.param, by)
            return dataclasses.replace(expr, expr=_replaced(expr.expr, by), param=param)
    return expr
