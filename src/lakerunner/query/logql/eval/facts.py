"""What is known of a metric query before it is evaluated: its kind, its order, whether it may be cut, what it reads."""

from __future__ import annotations

import enum
from collections.abc import Iterator

from lakerunner.model.signals.logs import LOGS
from lakerunner.query.logql import ast
from lakerunner.query.logql.entries import Ints
from lakerunner.query.logql.eval.windows import Windows
from lakerunner.query.plan.leaf import Leaf

SORTS = frozenset({"sort", "sort_desc"})


class Kind(enum.Enum):
    SCALAR = "scalar"
    VECTOR = "vector"


def kind_of(expr: ast.MetricExpr) -> Kind:
    """What an instant query answers with. A range query answers with a matrix, whatever the kind."""
    spine = expr
    while isinstance(spine, ast.Binary):
        if kind_of(spine.right) is Kind.VECTOR:
            return Kind.VECTOR
        spine = spine.left
    return Kind.SCALAR if isinstance(spine, ast.Number) else Kind.VECTOR


def is_sorted(expr: ast.MetricExpr) -> bool:
    """Whether the query orders the series of an instant answer itself; otherwise their labels do."""
    return any(isinstance(node, ast.VectorAggregate) and node.op in SORTS for node in walk(expr))


def is_splittable(expr: ast.MetricExpr) -> bool:
    """Whether the steps may be evaluated apart. Relabelled series must not collide anywhere in the range."""
    return not any(isinstance(node, ast.LabelReplace) for node in walk(expr))


def leaves(expr: ast.MetricExpr, steps_ns: Ints) -> list[tuple[ast.LogSelector, Leaf]]:
    """What evaluating the steps reads: each selector with its leaf, whose matchers the caller knows."""
    found = []
    for node in walk(expr):
        if isinstance(node, ast.RangeAggregate) and len(steps_ns):
            extent = Windows.extent(steps_ns, node.range.range_ns, node.range.offset_ns)
            found.append((node.range.selector, Leaf(LOGS.name, *extent)))
    return found


def walk(expr: ast.MetricExpr) -> Iterator[ast.MetricExpr]:
    """The node and all nodes below it. Not recursive: chains of operators are long."""
    left = [expr]
    while left:
        node = left.pop()
        yield node
        match node:
            case ast.Binary():
                left += [node.right, node.left]
            case ast.VectorAggregate() | ast.LabelReplace():
                left.append(node.expr)
            case _:
                pass
