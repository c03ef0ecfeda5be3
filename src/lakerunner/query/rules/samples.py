"""PromQL: which parts of a query a rule over metrics could answer, and the normal form of their selectors.

A rule keeps what follows from all samples of a bucket alike: their number, sum and extremes. `rate` and its like look
at the first and last sample of every series and extrapolate, so no rule answers them (docs/decisions/0067).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lakerunner.model.errors import BadInput
from lakerunner.model.signals.metrics import METRICS
from lakerunner.model.time import NS_PER_MS
from lakerunner.query.promql import ast
from lakerunner.query.promql.durations import duration_ms
from lakerunner.query.promql.language import PromQlSteps
from lakerunner.query.promql.parser import parse
from lakerunner.query.promql.printer import print_expr
from lakerunner.query.rules.rule import Candidate, Function
from lakerunner.query.rules.selection import Condition, Selection
from lakerunner.query.series.matchers import Matcher
from lakerunner.query.series.times import QueryTimes

#: The aggregation and the function under it -> what it makes of all samples of a group and window.
_FUNCTIONS = {
    ("sum", "count_over_time"): Function.COUNT,
    ("sum", "sum_over_time"): Function.SUM,
    ("min", "min_over_time"): Function.MIN,
    ("max", "max_over_time"): Function.MAX,
}
#: What extrapolates from the first and last sample of each series, which tiers keep and rules do not.
_RATES = frozenset({"rate", "increase", "delta"})
_INSTEAD = ": it extrapolates from the first and last sample of every series; rollup tiers keep these and answer it"
#: The field of samples, as rules name it.
_VALUE = "value"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a query, as a rule may answer it; or why no rule can."""

    node: ast.Aggregate
    candidates: tuple[Candidate, ...] = ()
    refusal: str = ""
    within: object = None

    @property
    def text(self) -> str:
        return print_expr(self.node)


def parts_of(plan: PromQlSteps) -> Iterator[Part]:
    """The aggregations of range functions, outside of subqueries: those are evaluated at other steps."""
    pending: list[ast.Expr] = [plan.expr]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Subquery):
            continue
        if isinstance(node, ast.Aggregate) and node.param is None:
            call = ast.unwrapped(node.expr)
            if isinstance(call, ast.Call) and len(call.args) == 1:
                matrix = ast.unwrapped(call.args[0])
                if isinstance(matrix, ast.MatrixSelector):
                    yield _part(node, call, matrix, plan.times)
                    continue
        pending += reversed(ast.children(node))


def selection_of(text: str) -> Selection:
    """The selection of a rule, which is a selector."""
    selector = ast.unwrapped(parse(text))
    if not isinstance(selector, ast.VectorSelector):
        raise BadInput("cannot read the rule: it selects no samples")
    return _selection(selector.matchers)


def _part(node: ast.Aggregate, call: ast.Call, matrix: ast.MatrixSelector, times: QueryTimes) -> Part:
    vector = matrix.vector
    function = _FUNCTIONS.get((node.op, call.name))
    if function is None:
        refusal = f"{node.op}({call.name}(…)) does not follow from counts, sums, minima or maxima of samples"
        return Part(node, refusal=f"{refusal}{_INSTEAD if call.name in _RATES else ''}")
    if node.without:
        return Part(node, refusal="it groups by all labels but some; a rule keeps its dimensions")
    if vector.at is not None or vector.anchored or vector.smoothed:
        return Part(node, refusal="it reads at a time of its own, or samples beside its window")
    candidate = Candidate(
        text=print_expr(node),
        signal=METRICS.name,
        selection=_selection(vector.matchers),
        function=function,
        field="" if function is Function.COUNT else _VALUE,
        by=node.grouping,
        range_ns=duration_ms(matrix.range, times) * NS_PER_MS,
        offset_ns=0 if vector.offset is None else duration_ms(vector.offset, times) * NS_PER_MS,
    )
    return Part(node, (candidate,))


def _selection(matchers: tuple[Matcher, ...]) -> Selection:
    conditions = (Condition(f"matcher {each.name}{each.kind.value}{each.value!r}", matcher=each) for each in matchers)
    return Selection((tuple(conditions),))
