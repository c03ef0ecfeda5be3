"""A TraceQL tree as text that parses to the same tree."""

from __future__ import annotations

from lakerunner.query.syntax.strings import quote
from lakerunner.query.traceql import ast
from lakerunner.query.traceql.literals import attribute_text

_SCALARS = (ast.Aggregate, ast.Literal, ast.ScalarPipeline)


def print_query(query: ast.Query) -> str:
    hints = ", ".join(f"{hint.name}={literal(hint.value)}" for hint in query.hints)
    root = _pipeline(query.root) if isinstance(query.root, ast.Pipeline) else print_metric(query.root)
    return f"{root} with ({hints})" if hints else root


def print_metric(expr: ast.MetricExpr) -> str:
    match expr:
        case ast.MetricNumber(value):
            return _number(value)
        case ast.Metric(pipeline, aggregate, then):
            return f"{_pipeline(pipeline)} | {_aggregate(aggregate)}{_then(then)}"
        case ast.MetricOp(op, left, right, then):
            return f"{_metric_operand(left)} {op} {_metric_operand(right)}{_then(then)}"


def _metric_operand(expr: ast.MetricExpr) -> str:
    return _number(expr.value) if isinstance(expr, ast.MetricNumber) else f"({print_metric(expr)})"


def _aggregate(aggregate: ast.MetricAggregate | ast.Compare) -> str:
    if isinstance(aggregate, ast.Compare):
        times = f", {aggregate.start_ns}, {aggregate.end_ns}" if aggregate.end_ns else ""
        return f"compare({_stage(aggregate.selection)}, {aggregate.top}{times})"
    arguments = [] if aggregate.argument is None else [field(aggregate.argument)]
    arguments += [_number(each) for each in aggregate.quantiles]
    by = f" by ({', '.join(map(field, aggregate.by))})" if aggregate.by else ""
    return f"{aggregate.function}({', '.join(arguments)}){by}"


def _then(stages: tuple[ast.SecondStage, ...]) -> str:
    return "".join(
        f" | {each.function}({each.count})" if isinstance(each, ast.Ranked) else f" {each.op} {_number(each.value)}"
        for each in stages
    )


def _pipeline(pipeline: ast.Pipeline) -> str:
    return " | ".join(map(_stage, pipeline.stages))


def _stage(stage: ast.Stage) -> str:
    match stage:
        case ast.Filter(None):
            return "{ }"
        case ast.Filter(condition) if condition is not None:
            return f"{{ {field_expr(condition)} }}"
        case ast.SpansetOp(op, left, right):
            return f"{_spanset(left)} {op} {_spanset(right)}"
        case ast.ScalarFilter(op, left, right):
            return f"{_scalar(left)} {op} {_scalar(right)}"
        case ast.GroupBy(by):
            return f"by({field_expr(by)})"
        case ast.Coalesce():
            return "coalesce()"
        case ast.Select(fields):
            return f"select({', '.join(map(field, fields))})"
        case ast.Pipeline():
            return f"({_pipeline(stage)})"
    raise TypeError(type(stage).__name__)


def _spanset(spanset: ast.Spanset) -> str:
    text = _stage(spanset)
    return f"({text})" if isinstance(spanset, ast.SpansetOp) else text


def _scalar(scalar: ast.Scalar) -> str:
    match scalar:
        case ast.Literal():
            return literal(scalar)
        case ast.Aggregate():
            return aggregate_text(scalar)
        case ast.ScalarPipeline(stages, aggregate):
            return f"({' | '.join(map(_stage, stages))} | {aggregate_text(aggregate)})"
        case ast.ScalarOp(op, left, right):
            return f"({_scalar(left)} {op} {_scalar(right)})"


def aggregate_text(aggregate: ast.Aggregate) -> str:
    argument = "" if aggregate.argument is None else field_expr(aggregate.argument)
    return f"{aggregate.function}({argument})"


def field_expr(expr: ast.FieldExpr) -> str:
    match expr:
        case ast.Literal():
            return literal(expr)
        case ast.Attribute() | ast.Intrinsic():
            return field(expr)
        case ast.Unary(op, operand):
            return f"{op}({field_expr(operand)})"
        case ast.Binary(op, left, right):
            return f"{_inner(left)} {op} {_inner(right)}"


def _inner(expr: ast.FieldExpr) -> str:
    text = field_expr(expr)
    return f"({text})" if isinstance(expr, ast.Binary | ast.Unary) or text.startswith("-") else text


def field(value: ast.Field) -> str:
    return value.name if isinstance(value, ast.Intrinsic) else attribute_text(value)


def literal(value: ast.Literal) -> str:
    match value.type:
        case ast.STRING:
            return quote(str(value.value))
        case ast.BOOL:
            return "true" if value.value else "false"
        case ast.NIL:
            return "nil"
        case ast.DURATION:
            return f"{value.value}ns"
        case ast.FLOAT:
            assert isinstance(value.value, float)
            return _number(value.value)
    if value.value == -(1 << 63):
        return "minInt"
    return str(value.value)


def _number(value: float) -> str:
    text = repr(float(value))
    return text if "." in text or "e" not in text else text.replace("e", ".0e")
