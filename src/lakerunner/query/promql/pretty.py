"""A tree as text for people: what does not fit on a line is spread over several, indented by its depth."""

from __future__ import annotations

from lakerunner.query.promql.ast import Aggregate, Binary, Call, Expr, Paren, Subquery, Unary
from lakerunner.query.promql.printer import print_aggregation, print_expr, print_modifiers, print_subquery_tail

#: Where Prometheus breaks lines, too.
_WIDTH = 100


def pretty(expr: Expr, level: int = 0) -> str:
    """The text, in lines.

    >>> from lakerunner.query.promql.parser import parse
    >>> pretty(parse("sum(rate(m[300s]))"))
    'sum(rate(m[5m]))'
    """
    indent = "  " * level
    whole = print_expr(expr)
    match expr:
        case Unary(op=op, expr=inner):
            return f"{indent}{op}{pretty(inner, level).strip()}"
        case Subquery() if _fits(whole):
            # Not indented in Prometheus either.
            return whole
        case _ if _fits(whole):
            return f"{indent}{whole}"
        case Aggregate(expr=inner, param=param):
            above = "" if param is None else f"{pretty(param, level + 1)},\n"
            return f"{indent}{print_aggregation(expr)}(\n{above}{pretty(inner, level + 1)}\n{indent})"
        case Binary(op=op, left=left, right=right):
            operator = f"{indent}{op}{print_modifiers(expr)}"
            return f"{pretty(left, level + 1)}\n{operator}\n{pretty(right, level + 1)}"
        case Call(name=name, args=args) if args:
            inside = ",\n".join(pretty(arg, level + 1) for arg in args)
            return f"{indent}{name}(\n{inside}\n{indent})"
        case Paren(expr=inner):
            return f"{indent}(\n{pretty(inner, level + 1)}\n{indent})"
        case Subquery(expr=inner):
            return f"{pretty(inner, level)}{print_subquery_tail(expr)}"
        case _:
            return f"{indent}{whole}"


def _fits(text: str) -> bool:
    return len(text.encode(errors="surrogateescape")) <= _WIDTH
