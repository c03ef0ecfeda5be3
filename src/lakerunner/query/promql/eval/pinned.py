"""Expressions that `@` pins to one time: evaluated once, at the first step, whatever the number of steps.

What is pinned is decided as in Prometheus, because it shows: the parameter of a pinned aggregation is taken at the
first step only, and a pinned `sort` does sort.
"""

from __future__ import annotations

from lakerunner.query.promql.ast import Aggregate, Call, Expr, MatrixSelector, Subquery, VectorSelector, children

#: Functions whose result changes with the time of the evaluation even if their arguments do not.
_OF_TIME = frozenset(
    [
        *("day_of_month", "day_of_week", "day_of_year", "days_in_month", "hour", "minute", "month", "year"),
        *("predict_linear", "time", "timestamp"),
    ]
)


def is_pinned(expr: Expr) -> bool:
    """Whether all selectors in the expression have an `@`, and there are any, or functions of no time instead.

    With a stack: chains may be long.
    """
    found = False
    waiting = [expr]
    while waiting:
        node = waiting.pop()
        selector = node.vector if isinstance(node, MatrixSelector) else node
        if isinstance(selector, VectorSelector | Subquery):
            if selector.at is None:
                return False
            found = True
        elif isinstance(node, Call) and node.name in _OF_TIME:
            return False
        elif isinstance(node, Aggregate):
            waiting.append(node.expr)
        elif isinstance(node, Call):
            found = True
            # The second argument of info only says which labels; it looks at no time of its own.
            waiting += node.args[:1] if node.name == "info" else node.args
        else:
            waiting += children(node)
    return found
