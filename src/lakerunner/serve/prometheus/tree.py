"""An expression's syntax tree as JSON, in the format that Prometheus' web UI and query builders read."""

from __future__ import annotations

from lakerunner.model.errors import LimitHit
from lakerunner.query.promql.ast import (
    Aggregate,
    AtEdge,
    Binary,
    Call,
    Expr,
    MatrixSelector,
    Number,
    Paren,
    String,
    Subquery,
    Unary,
    ValueType,
    VectorSelector,
    children,
)
from lakerunner.query.promql.check import check
from lakerunner.query.promql.durations import Duration, DurationNumber, duration_ms, print_duration
from lakerunner.query.promql.functions import FUNCTIONS
from lakerunner.query.series.go_format import plain
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.vectors.matching import Matching

#: Parsing has no query times, so durations that refer to them are evaluated with zeros.
_NO_TIMES = QueryTimes(0, 0, 0)
_TYPE_NAMES = {
    ValueType.SCALAR: "scalar",
    ValueType.STRING: "string",
    ValueType.VECTOR: "vector",
    ValueType.MATRIX: "matrix",
}

#: Many JSON parsers, and orjson as the writer, refuse deeper nesting.
_MAX_DEPTH = 120


def tree_json(expr: Expr) -> dict[str, object]:
    if _depth(expr) > _MAX_DEPTH:
        raise LimitHit(f"cannot show the tree of this expression: it is deeper than {_MAX_DEPTH} nodes")
    return _node(expr)


def _depth(expr: Expr) -> int:
    deepest, pending = 0, [(expr, 1)]
    while pending:
        node, depth = pending.pop()
        deepest = max(deepest, depth)
        pending += [(child, depth + 1) for child in children(node)]
    return deepest


def _node(expr: Expr) -> dict[str, object]:
    match expr:
        case Number(value=value):
            return {"type": "numberLiteral", "val": plain(value)}
        case String(value=text):
            return {"type": "stringLiteral", "val": text}
        case Paren(expr=inner):
            return {"type": "parenExpr", "expr": _node(inner)}
        case Unary(op=op, expr=inner):
            return {"type": "unaryExpr", "op": op, "expr": _node(inner)}
        case VectorSelector():
            return {"type": "vectorSelector", **_selector(expr)}
        case MatrixSelector(vector=vector, range=width):
            return {
                "type": "matrixSelector",
                **_selector(vector),
                "range": _ms(width),
                "rangeExpr": _duration_text(width),
            }
        case Subquery():
            step_ms = 0 if expr.step is None else _ms(expr.step)
            times = {"range": _ms(expr.range), "step": step_ms, **_offset_and_at(expr)}
            times |= {"rangeExpr": _duration_text(expr.range), "stepExpr": _duration_text(expr.step)}
            return {"type": "subquery", "expr": _node(expr.expr), **times}
        case Call():
            return {"type": "call", "func": _function(expr.name), "args": [_node(arg) for arg in expr.args]}
        case Aggregate():
            return _aggregation(expr)
        case Binary():
            return _binary(expr)


def _aggregation(expr: Aggregate) -> dict[str, object]:
    return {
        "type": "aggregation",
        "op": expr.op,
        "expr": _node(expr.expr),
        "param": None if expr.param is None else _node(expr.param),
        "grouping": list(expr.grouping),
        "without": expr.without,
    }


def _binary(expr: Binary) -> dict[str, object]:
    vectors = all(check("", side) is ValueType.VECTOR for side in (expr.left, expr.right))
    return {
        "type": "binaryExpr",
        "op": expr.op,
        "lhs": _node(expr.left),
        "rhs": _node(expr.right),
        "matching": _matching(expr.matching) if vectors else None,
        "bool": expr.return_bool,
    }


def _matching(matching: Matching) -> dict[str, object]:
    return {
        "card": matching.cardinality.value,
        "labels": list(matching.labels),
        "on": matching.on,
        "include": list(matching.include),
        "fillValues": {"lhs": matching.fill_left, "rhs": matching.fill_right},
    }


def _function(name: str) -> dict[str, object]:
    function = FUNCTIONS[name]
    return {
        "name": name,
        "argTypes": [_TYPE_NAMES[kind] for kind in function.args],
        "variadic": -1 if function.repeats else function.optional,
        "returnType": _TYPE_NAMES[function.returns],
    }


def _selector(node: VectorSelector) -> dict[str, object]:
    matchers = [{"name": each.name, "value": each.value, "type": each.kind.value} for each in node.matchers]
    return {
        "name": node.name,
        "matchers": matchers,
        **_offset_and_at(node),
        "anchored": node.anchored,
        "smoothed": node.smoothed,
    }


def _offset_and_at(node: VectorSelector | Subquery) -> dict[str, object]:
    edge = node.at.value if isinstance(node.at, AtEdge) else None
    return {
        "offset": 0 if node.offset is None else _ms(node.offset),
        "offsetExpr": _duration_text(node.offset),
        "timestamp": None if isinstance(node.at, AtEdge) else node.at,
        "startOrEnd": edge,
    }


def _duration_text(duration: Duration | None) -> str | None:
    """The text of a duration expression; None for a literal, whose milliseconds say everything."""
    return None if duration is None or isinstance(duration, DurationNumber) else print_duration(duration)


def _ms(duration: Duration) -> int:
    return duration_ms(duration, _NO_TIMES)
