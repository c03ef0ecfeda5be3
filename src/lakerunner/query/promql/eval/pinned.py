"""Expressions that `@` pins to one time: they are evaluated once, at the first step.

The rules are those of Prometheus, because they are visible: a pinned aggregation uses its parameter at the first step,
and a pinned `sort` does sort.
"""

from __future__ import annotations

from lakerunner.query.promql.ast import Aggregate, Call, Expr, MatrixSelector, Subquery, VectorSelector, children
from lakerunner.query.promql.eval.info import refers_to_one_time

#: Functions whose result depends on the evaluation time even if their arguments do not.
_TIME_DEPENDENT = frozenset(
    [
        *("day_of_month", "day_of_week", "day_of_year", "days_in_month", "hour", "minute", "month", "year"),
        *("predict_linear", "time", "timestamp"),
    ]
)


def is_pinned(expr: Expr) -> bool:
    """Whether the expression has selectors or calls, all selectors have an `@`, and no call depends on the time.

    Not recursive: chains of operators may be long.
    """
    found = False
    pending = [expr]
    while pending:
        node = pending.pop()
        selector = node.vector if isinstance(node, MatrixSelector) else node
        if isinstance(selector, VectorSelector | Subquery):
            if selector.at is None:
                return False
            found = True
        elif isinstance(node, Call) and node.name in _TIME_DEPENDENT:
            return False
        elif isinstance(node, Aggregate):
            pending.append(node.expr)
        elif isinstance(node, Call):
            found = True
            if node.name == "info" and len(node.args) > 1 and not refers_to_one_time(node.args[0]):
                return False
            # The second argument of info() only names labels; it is never evaluated.
            pending += node.args[:1] if node.name == "info" else node.args
        else:
            pending += children(node)
    return found
