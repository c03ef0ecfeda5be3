"""Prints a tree for people, as Loki's `format_query` does: what is longer than a line is spread over several."""

from __future__ import annotations

import itertools

from lakerunner.query.logql.ast import (
    Binary,
    Decolorize,
    Expr,
    Given,
    LabelReplace,
    LineFilter,
    LogRange,
    LogSelector,
    MetricExpr,
    Number,
    RangeAggregate,
    VectorAggregate,
    VectorLiteral,
)
from lakerunner.query.logql.durations import format_go_duration
from lakerunner.query.logql.operators import PRECEDENCE
from lakerunner.query.logql.printer import (
    grouping_text,
    matchers_text,
    number_text,
    operator_text,
    print_expr,
    stage_text,
    unwrap_texts,
)
from lakerunner.query.series.go_format import plain
from lakerunner.query.syntax.durations import format_duration_ms
from lakerunner.query.syntax.strings import quote
from lakerunner.query.vectors.matching import Cardinality

#: Bytes of a line.
_WIDTH = 100
_NS_PER_MS = 1_000_000
_DECOLORIZE = stage_text(Decolorize())


def pretty(expr: Expr, level: int = 0) -> str:
    """The text, indented by depth.

    >>> from lakerunner.query.logql.parser import parse
    >>> pretty(parse('sum(rate({a="b"}[90s]))by(job)+vector(1)'))
    '(sum by (job)(rate({a="b"}[1m30s])) + vector(1.000000))'
    """
    indent = "  " * level
    line = _line(expr)
    if _fits(line):
        return indent + line
    match expr:
        case LogSelector():
            return _selector(expr, level)
        case RangeAggregate():
            param = "" if expr.param is None else f"{indent}  {number_text(expr.param)},\n"
            return f"{indent}{expr.op}(\n{param}{_range(expr.range, level + 1)}\n{indent}){_grouping(expr)}"
        case VectorAggregate():
            param = "" if expr.param is None else f"{indent}  {expr.param},\n"
            return f"{indent}{expr.op}{_grouping(expr)}(\n{param}{pretty(expr.expr, level + 1)}\n{indent})"
        case Binary():
            left, right = (_side(expr, side, level + 1) for side in (expr.left, expr.right))
            return f"{left}\n{indent}{operator_text(expr, ', ', right)}{_blank(expr)}\n{right}"
        case LabelReplace():
            texts = (expr.target, expr.replacement, expr.source, expr.pattern)
            arguments = "".join(f",\n{indent}  {quote(text)}" for text in texts)
            return f"{indent}label_replace(\n{pretty(expr.expr, level + 1)}{arguments}\n{indent})"
        case Number() | VectorLiteral() | Given():
            return indent + line


def _line(expr: Expr) -> str:
    """The text on one line. Unlike the canonical text, it has parentheses around every operation."""
    match expr:
        case Binary():
            right = _line(expr.right)
            return f"({_line(expr.left)} {operator_text(expr, ',', right)}{_blank(expr)} {right})"
        case VectorAggregate():
            param = "" if expr.param is None else f"{expr.param},"
            return f"{expr.op}{grouping_text(expr.grouping)}({param}{_line(expr.expr)})"
        case LabelReplace():
            texts = (expr.target, expr.replacement, expr.source, expr.pattern)
            return f"label_replace({_line(expr.expr)},{','.join(map(quote, texts))})"
        case VectorLiteral(value=value):
            fixed = f"{value:f}"
            return f"vector({fixed if float(fixed) == value else plain(value)})"
        case LogSelector() | RangeAggregate() | Number() | Given():
            return print_expr(expr)


def _blank(expr: Binary) -> str:
    """The place that Loki leaves for `group_left` after the labels to match."""
    matching = expr.matching
    grouped = matching.cardinality in (Cardinality.MANY_TO_ONE, Cardinality.ONE_TO_MANY)
    return " " if (matching.on or matching.labels) and not grouped else ""


def _side(parent: Binary, expr: MetricExpr, level: int) -> str:
    """One side of an operator. An operation on several lines has parentheses unless it binds more tightly."""
    if not isinstance(expr, Binary) or PRECEDENCE[expr.op] > PRECEDENCE[parent.op] or _fits(_line(expr)):
        return pretty(expr, level)
    indent = "  " * level
    return f"{indent}(\n{pretty(expr, level + 1)}\n{indent})"


def _grouping(expr: RangeAggregate | VectorAggregate) -> str:
    return grouping_text(expr.grouping, ", ")


def _range(logs: LogRange, level: int) -> str:
    out = pretty(logs.selector, level)
    if logs.unwrap is not None:
        indent = "  " * (level + 1)
        out += "".join(f"\n{indent}{stage}" for stage in unwrap_texts(logs.unwrap))
    out += f" [{format_duration_ms(logs.range_ns // _NS_PER_MS)}]"
    return f"{out} offset {_offset(logs.offset_ns)}" if logs.offset_ns else out


def _offset(offset_ns: int) -> str:
    if offset_ns % _NS_PER_MS:
        return format_go_duration(offset_ns)
    return ("-" if offset_ns < 0 else "") + format_duration_ms(abs(offset_ns) // _NS_PER_MS)


def _selector(selector: LogSelector, level: int) -> str:
    """Each stage on a line of its own. Neighbouring line filters share one if they fit on it."""
    lines = ["  " * level + matchers_text(selector)]
    for is_filter, group in itertools.groupby(selector.stages, lambda stage: isinstance(stage, LineFilter)):
        texts = [stage_text(stage) for stage in group]
        joined = " ".join(texts)
        lines += (_indented(text, level + 1) for text in ([joined] if is_filter and _fits(joined) else texts))
    return "\n".join(lines)


def _indented(stage: str, level: int) -> str:
    # As Loki has it, this stage alone is not indented.
    return stage if stage == _DECOLORIZE else "  " * level + stage


def _fits(text: str) -> bool:
    return len(text.encode()) <= _WIDTH
