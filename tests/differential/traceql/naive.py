"""TraceQL by brute force: span by span, as the language reads, without columns, segments or pushed down conditions."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lakerunner.query.traceql import ast
from tests.differential.traceql.traces import NIL, Item, Span, Trace, Value

_NUMBERS = (ast.INT, ast.FLOAT, ast.DURATION)
_JUDGES: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
#: Labels in the order of the query, and points by time in seconds.
Series = dict[tuple[Value, ...], dict[int, float]]
_Labelled = dict[tuple[Value, ...], list[Span]]


class WholeDivisionByZero(Exception):
    """The whole query is refused."""


# -- searches ----------------------------------------------------------------------------------------------------------


def search(pipeline: ast.Pipeline, traces: Sequence[Trace]) -> dict[str, list[list[str]]]:
    """The span ids of every set, by trace."""
    found = {}
    for trace in traces:
        if sets := _piped(pipeline.stages, [trace.spans]):
            found[trace.trace_id] = sorted(sorted(span.span_id for span in spans) for spans in sets)
    return found


def _piped(stages: Sequence[ast.Stage], sets: list[list[Span]]) -> list[list[Span]]:
    for stage in stages:
        match stage:
            case ast.Filter() | ast.SpansetOp():
                sets = [_spanset(stage, spans) for spans in sets]
            case ast.Pipeline(inner):
                sets = _piped(inner, sets)
            case ast.ScalarFilter(op, left, right):
                sets = [spans for spans in sets if _compared(op, _scalar(left, spans), _scalar(right, spans))]
            case ast.GroupBy(by):
                sets = [group for spans in sets for group in _groups(by, spans)]
            case ast.Coalesce():
                sets = [[span for spans in sets for span in spans]]
        sets = [spans for spans in sets if spans]
    return sets


def _groups(by: ast.FieldExpr, spans: list[Span]) -> list[list[Span]]:
    groups: dict[str, list[Span]] = {}
    for span in spans:
        groups.setdefault(repr(_value(by, span, None, None)), []).append(span)
    return list(groups.values())


def _spanset(expr: ast.Spanset, spans: list[Span]) -> list[Span]:
    match expr:
        case ast.Filter(condition):
            return [span for span in spans if condition is None or holds(condition, span)]
        case ast.Pipeline(stages):
            found = {span for group in _piped(stages, [spans]) for span in group}
            return [span for span in spans if span in found]
        case ast.SpansetOp(op, left, right):
            return _joined(op, _spanset(left, spans), _spanset(right, spans), spans)


def _joined(op: str, left: list[Span], right: list[Span], spans: list[Span]) -> list[Span]:
    if op in ast.LOGIC:
        if op == "&&" and not (left and right):
            return []
        return [span for span in spans if span in left or span in right]
    relation = op.lstrip("!&")
    related = {other for other in right if any(_related(relation, one, other) for one in left)}
    if op[0] == "!":
        related = {*right} - related
    if op[0] == "&":
        related |= {one for one in left if any(_related(relation, one, other) for other in right)}
    return [span for span in spans if span in related]


def _related(relation: str, one: Span, other: Span) -> bool:
    trace = one.trace
    match relation:
        case ">":
            return trace.parent(other) is one
        case "<":
            return trace.parent(one) is other
        case ">>":
            return one in trace.ancestors(other)
        case "<<":
            return other in trace.ancestors(one)
    has_family = not one.parent_id or trace.parent(one) is not None
    return one is not other and one.parent_id == other.parent_id and has_family


# -- conditions --------------------------------------------------------------------------------------------------------


def holds(condition: ast.FieldExpr, span: Span) -> bool:
    """Whether it holds for one event and one link of the span."""
    return any(
        _value(condition, span, event, link) == (ast.BOOL, True)
        for event in span.events or [None]
        for link in span.links or [None]
    )


def _value(expr: ast.FieldExpr, span: Span, event: Item | None, link: Item | None) -> Value:
    def inner(part: ast.FieldExpr) -> Value:
        return _value(part, span, event, link)

    match expr:
        case ast.Literal(kind, value):
            return kind, value
        case ast.Attribute():
            return _attribute(expr, span, event, link)
        case ast.Intrinsic(name):
            owners = {"event": event, "link": link}
            owner = name.partition(":")[0]
            if owner in owners:
                item = owners[owner]
                return NIL if item is None else item.fields[name]
            return span.fields[name]
        case ast.Unary("-", operand):
            kind, value = inner(operand)
            return (kind, -value) if kind in _NUMBERS else NIL
        case ast.Unary(_, operand):
            kind, value = inner(operand)
            return (ast.BOOL, not value) if kind == ast.BOOL else NIL
        case ast.Binary("&&", left, right):
            return ast.BOOL, inner(left) == (ast.BOOL, True) and inner(right) == (ast.BOOL, True)
        case ast.Binary("||", left, right):
            return ast.BOOL, inner(left) == (ast.BOOL, True) or inner(right) == (ast.BOOL, True)
        case ast.Binary("=~" | "!~" as op, left, ast.Literal(_, pattern)):
            return ast.BOOL, _matched(op, inner(left), str(pattern))
        case ast.Binary(op, left, right) if op in ast.ARITHMETIC:
            return calculated(op, inner(left), inner(right))
        case ast.Binary(op, ast.Literal(ast.NIL), other) | ast.Binary(op, other, ast.Literal(ast.NIL)):
            return ast.BOOL, not isinstance(other, ast.Literal) and (inner(other) == NIL) is (op == "=")
        case ast.Binary(op, left, right):
            return ast.BOOL, _compared(op, inner(_full_id(left, right)), inner(_full_id(right, left)))


def _full_id(expr: ast.FieldExpr, other: ast.FieldExpr) -> ast.FieldExpr:
    """The id of a trace may lack its leading zeros."""
    if isinstance(expr, ast.Literal) and other == ast.Intrinsic("trace:id"):
        return ast.Literal(expr.type, str(expr.value).rjust(32, "0"))
    return expr


def _attribute(field: ast.Attribute, span: Span, event: Item | None, link: Item | None) -> Value:
    of_item = {"event": event, "link": link}
    if field.scope in of_item:
        item = of_item[field.scope]
        return NIL if item is None else item.attributes.get(field.name, NIL)
    resource = {"service.name": (ast.STRING, ""), **span.resource}
    owners: Mapping[str, Sequence[Mapping[str, Value]]] = {
        "span": (span.attributes,),
        "resource": (resource,),
        "instrumentation": (span.scope,),
        "": (span.attributes, resource),
    }
    return next((owner[field.name] for owner in owners[field.scope] if field.name in owner), NIL)


def _compared(op: str, left: Value, right: Value) -> bool:
    if right[0] == "array" and left[0] != "array":
        return _compared(_MIRRORED[op], right, left)
    if left[0] == "array":
        others = [item for item in left[1] if _is_comparable(item, right)]
        if op == "!=":
            return bool(others) and not any(_compared("=", item, right) for item in others)
        return any(_compared(op, item, right) for item in others)
    return _is_comparable(left, right) and _JUDGES[op](left[1], right[1])


def _is_comparable(left: Value, right: Value) -> bool:
    if left[0] in _NUMBERS and right[0] in _NUMBERS:
        return True
    return left[0] == right[0] and left[0] not in (ast.NIL, "array")


def _matched(op: str, value: Value, pattern: str) -> bool:
    texts = [item[1] for item in (value[1] if value[0] == "array" else [value]) if item[0] == ast.STRING]
    found = any(re.fullmatch(pattern, text, re.DOTALL) for text in texts)
    return bool(texts) and found is (op == "=~")


def calculated(op: str, left: Value, right: Value) -> Value:
    if left[0] not in _NUMBERS or right[0] not in _NUMBERS:
        return NIL
    is_whole = ast.FLOAT not in (left[0], right[0])
    kind = ast.DURATION if ast.DURATION in (left[0], right[0]) else ast.INT if is_whole else ast.FLOAT
    a, b = left[1], right[1]
    match op:
        case "+":
            found = a + b
        case "-":
            found = a - b
        case "*":
            found = a * b
        case _ if is_whole and not b:
            raise WholeDivisionByZero
        case "/" if is_whole:
            found = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        case "/":
            found = a / b if b else math.copysign(math.inf, a) * math.copysign(1, b) if a else math.nan
        case "%":
            found = math.fmod(a, b) if b else math.nan
        case _:
            found = math.pow(a, b)
    if kind == ast.FLOAT or (kind == ast.DURATION and (math.isnan(found) or math.isinf(found))):
        return kind, float(found)
    return kind, int(found)


# -- aggregates --------------------------------------------------------------------------------------------------------


def _scalar(scalar: ast.Scalar, spans: list[Span]) -> Value:
    match scalar:
        case ast.Literal(kind, value):
            return kind, value
        case ast.ScalarOp(op, left, right):
            return calculated(op, _scalar(left, spans), _scalar(right, spans))
        case ast.Aggregate("count"):
            return ast.INT, len(spans)
        case ast.Aggregate(function, argument):
            assert argument is not None
            values = [value for span in spans if (value := _value(argument, span, None, None))[0] in _NUMBERS]
            return _aggregated(function, values)
    raise NotImplementedError


def _aggregated(function: str, values: Sequence[Value]) -> Value:
    if not values:
        return NIL
    kinds = {kind for kind, _ in values}
    kind = next(each for each in (ast.DURATION, ast.FLOAT, ast.INT) if each in kinds)
    numbers = [value for _, value in values]
    match function:
        case "avg":
            mean = math.fsum(numbers) / len(numbers)
            return (kind, int(mean)) if kind == ast.DURATION else (ast.FLOAT, mean)
        case "sum":
            return kind, sum(numbers)
        case "min":
            return kind, min(numbers)
    return kind, max(numbers)


# -- metrics -----------------------------------------------------------------------------------------------------------


def metric(query: ast.Metric, traces: Sequence[Trace], start_s: int, end_s: int, step_s: int) -> Series:
    """Points by time; those without a value are left out."""
    aggregate = query.aggregate
    assert isinstance(aggregate, ast.MetricAggregate)
    cells: dict[tuple[Value, ...], dict[int, list[Span]]] = {}
    first, last = start_s // step_s * step_s, -(-end_s // step_s) * step_s
    for span in _found(query.pipeline, traces):
        at_s = -(-span.start_ns // (step_s * 10**9)) * step_s
        if first <= at_s <= last:
            labels = tuple(_value(field, span, None, None) for field in aggregate.by)
            cells.setdefault(labels, {}).setdefault(at_s, []).append(span)
    found: Series = {}
    for labels, points in cells.items():
        values = {at_s: _measured(aggregate, spans, step_s) for at_s, spans in points.items()}
        found[labels] = {at_s: value for at_s, value in values.items() if value is not None}
    if query.then and aggregate.argument is None:
        # A count has a point at every step.
        steps = range(first, last + 1, step_s)
        found = {labels: {at_s: points.get(at_s, 0.0) for at_s in steps} for labels, points in found.items()}
    for stage in query.then:
        if isinstance(stage, ast.ValueFilter):
            judge = _JUDGES[stage.op]
            found = {
                labels: {at_s: value for at_s, value in points.items() if judge(value, stage.value)}
                for labels, points in found.items()
            }
    return {labels: points for labels, points in found.items() if points}


def _found(pipeline: ast.Pipeline, traces: Sequence[Trace]) -> Iterator[Span]:
    for trace in traces:
        for spans in _piped(pipeline.stages, [trace.spans]):
            yield from spans


def _measured(aggregate: ast.MetricAggregate, spans: list[Span], step_s: int) -> float | None:
    if aggregate.argument is None:
        return len(spans) / step_s if aggregate.function == "rate" else float(len(spans))
    values = [value for span in spans if (value := _value(aggregate.argument, span, None, None))[0] in _NUMBERS]
    if not values:
        return None
    _, number = _aggregated(aggregate.function.removesuffix("_over_time"), [(ast.FLOAT, n) for _, n in values])
    return float(number) / 1e9 if values[0][0] == ast.DURATION else float(number)
