"""Prints a tree as text: on one line, or spread over several for people. The text parses to the same tree."""

from __future__ import annotations

import math
import re

from lakerunner.model.labels import METRIC_NAME
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
    VectorSelector,
)
from lakerunner.query.promql.durations import Duration, print_duration
from lakerunner.query.series.go_format import plain
from lakerunner.query.series.matchers import MatchKind
from lakerunner.query.syntax.durations import format_duration_ms
from lakerunner.query.syntax.strings import quote, quote_unless_plain
from lakerunner.query.vectors.matching import Cardinality, Matching

_PLAIN_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
#: Names that the parser would not read as metric names.
_NOT_PLAIN = frozenset({"atan2", "bool", "on", "ignoring", "group_left", "group_right", "inf", "nan"})
#: The width at which `pretty` breaks lines, as in Prometheus.
_WIDTH = 100


def print_expr(expr: Expr) -> str:
    """The canonical text.

    >>> from lakerunner.query.promql.parser import parse
    >>> print_expr(parse('sum(rate(m{a="b"}[300s]))by(job)'))
    'sum by (job) (rate(m{a="b"}[5m]))'
    """
    match expr:
        case Number():
            return _number(expr)
        case String(value=value):
            return quote(value)
        case VectorSelector():
            return _selector(expr) + _extended(expr) + _tail(expr.offset, expr.at)
        case MatrixSelector(vector=vector, range=width):
            tail = _extended(vector) + _tail(vector.offset, vector.at)
            return f"{_selector(vector)}[{print_duration(width)}]{tail}"
        case Subquery(expr=inner):
            return f"{print_expr(inner)}{_subquery_tail(expr)}"
        case Call(name=name, args=args):
            return f"{name}({', '.join(map(print_expr, args))})"
        case Aggregate():
            return _aggregate(expr)
        case Unary(op=op, expr=inner):
            return f"{op}{print_expr(inner)}"
        case Paren(expr=inner):
            return f"({print_expr(inner)})"
        case Binary():
            return _binaries(expr)


def _number(expr: Number) -> str:
    if not expr.with_units:
        return plain(expr.value)
    sign = "-" if math.copysign(1, expr.value) < 0 else ""
    return sign + format_duration_ms(round(abs(expr.value) * 1000))


def _labels(names: tuple[str, ...]) -> str:
    return f"({', '.join(map(quote_unless_plain, names))})"


def _selector(expr: VectorSelector) -> str:
    """Matchers are sorted by their text, so that equal selectors print equally."""
    is_plain = bool(_PLAIN_METRIC.fullmatch(expr.name)) and expr.name.lower() not in _NOT_PLAIN
    pieces = []
    for matcher in expr.matchers:
        implied = matcher.name == METRIC_NAME and matcher.kind is MatchKind.EQUAL and matcher.value == expr.name
        if not (implied and is_plain):
            pieces.append(f"{quote_unless_plain(matcher.name)}{matcher.kind}{quote(matcher.value)}")
    braces = f"{{{','.join(sorted(pieces))}}}" if pieces or not is_plain else ""
    return f"{expr.name if is_plain else ''}{braces}"


def _tail(offset: Duration | None, at: int | AtEdge | None) -> str:
    out = ""
    if at is not None:
        out += f" @ {at}()" if isinstance(at, AtEdge) else f" @ {at / 1000:.3f}"
    if offset is not None:
        out += f" offset {print_duration(offset)}"
    return out


def _subquery_tail(expr: Subquery) -> str:
    step = "" if expr.step is None else print_duration(expr.step)
    return f"[{print_duration(expr.range)}:{step}]{_tail(expr.offset, expr.at)}"


def _extended(expr: VectorSelector) -> str:
    return " anchored" if expr.anchored else " smoothed" if expr.smoothed else ""


def _aggregate(expr: Aggregate) -> str:
    param = "" if expr.param is None else f"{print_expr(expr.param)}, "
    return f"{_aggregation(expr)}({param}{print_expr(expr.expr)})"


def _aggregation(expr: Aggregate) -> str:
    """The part before the arguments."""
    clause = ""
    if expr.without or expr.grouping:
        clause = f" {'without' if expr.without else 'by'} {_labels(expr.grouping)} "
    return f"{expr.op}{clause}"


def _binaries(expr: Binary) -> str:
    """Print a chain of left-associative operators in a loop: long chains must not recurse."""
    spine = [expr]
    while isinstance(spine[-1].left, Binary):
        spine.append(spine[-1].left)
    out = print_expr(spine[-1].left)
    for node in reversed(spine):
        out = f"{out} {node.op}{_modifiers(node)} {print_expr(node.right)}"
    return out


def _modifiers(expr: Binary) -> str:
    out = " bool" if expr.return_bool else ""
    matching = expr.matching
    grouped = matching.cardinality in (Cardinality.MANY_TO_ONE, Cardinality.ONE_TO_MANY)
    if matching.on or matching.labels or grouped:
        out += f" {'on' if matching.on else 'ignoring'} {_labels(matching.labels)}"
    if grouped:
        side = "group_left" if matching.cardinality is Cardinality.MANY_TO_ONE else "group_right"
        out += f" {side} {_labels(matching.include)}"
    return out + _fills(matching)


def _fills(matching: Matching) -> str:
    left, right = matching.fill_left, matching.fill_right
    if left is not None and left == right:
        return f" fill ({plain(left)})"
    out = "" if left is None else f" fill_left ({plain(left)})"
    return out + ("" if right is None else f" fill_right ({plain(right)})")


def pretty(expr: Expr, level: int = 0) -> str:
    """The text for people: what does not fit on a line is spread over several, indented by depth.

    >>> from lakerunner.query.promql.parser import parse
    >>> pretty(parse("sum(rate(m[300s]))"))
    'sum(rate(m[5m]))'
    """
    indent = "  " * level
    line = print_expr(expr)
    match expr:
        case Unary(op=op, expr=inner):
            return f"{indent}{op}{pretty(inner, level).strip()}"
        case Subquery() if _fits(line):
            # As in Prometheus, not indented.
            return line
        case _ if _fits(line):
            return f"{indent}{line}"
        case Aggregate(expr=inner, param=param):
            above = "" if param is None else f"{pretty(param, level + 1)},\n"
            return f"{indent}{_aggregation(expr)}(\n{above}{pretty(inner, level + 1)}\n{indent})"
        case Binary(op=op, left=left, right=right):
            operator = f"{indent}{op}{_modifiers(expr)}"
            return f"{pretty(left, level + 1)}\n{operator}\n{pretty(right, level + 1)}"
        case Call(name=name, args=args) if args:
            inside = ",\n".join(pretty(arg, level + 1) for arg in args)
            return f"{indent}{name}(\n{inside}\n{indent})"
        case Paren(expr=inner):
            return f"{indent}(\n{pretty(inner, level + 1)}\n{indent})"
        case Subquery(expr=inner):
            return f"{pretty(inner, level)}{_subquery_tail(expr)}"
        case _:
            return f"{indent}{line}"


def _fits(text: str) -> bool:
    return len(text.encode(errors="surrogateescape")) <= _WIDTH
