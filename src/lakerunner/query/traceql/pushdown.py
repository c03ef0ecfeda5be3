"""What the scan of rows can decide of a query: a predicate that all spans satisfy which matter, and maybe others."""

from __future__ import annotations

from lakerunner.model.labels import attribute_column
from lakerunner.query.scan.rows.conditions.predicate import (
    EVERYTHING,
    And,
    Bool,
    Column,
    Compare,
    Contains,
    Exists,
    Float,
    Int,
    Literal,
    Matches,
    Op,
    Or,
    Predicate,
    Text,
)
from lakerunner.query.traceql import ast
from lakerunner.query.traceql.fields import SERVICE_NAME
from lakerunner.query.traceql.reading import PREFIXES, SENT

_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OPS = {"=": Op.EQUAL, "<": Op.LESS, "<=": Op.LESS_EQUAL, ">": Op.GREATER, ">=": Op.GREATER_EQUAL}
_TEXT_COLUMNS = {
    "name": "name",
    "statusMessage": "status_message",
    "instrumentation:name": "scope_name",
    "instrumentation:version": "scope_version",
    "span:id": "span_id",
    "span:parentID": "parent_span_id",
    "trace:id": "trace_id",
}
_ID_WIDTH = {"trace:id": 32, "span:id": 16, "span:parentID": 16}


def candidates(stages: tuple[ast.Stage, ...]) -> Predicate:
    """At least one span of every trace in the answer satisfies it."""
    if not stages:
        return EVERYTHING
    found = _spanset(stages[0])
    if isinstance(stages[0], ast.Filter) and len(stages) > 1 and isinstance(stages[1], ast.Filter):
        return _all_of([found, _spanset(stages[1])])
    return found


def _spanset(stage: ast.Stage) -> Predicate:
    match stage:
        case ast.Filter(condition):
            return implied(condition)
        case ast.Pipeline(stages):
            return candidates(stages)
        case ast.SpansetOp("||", left, right):
            return _any_of([_spanset(left), _spanset(right)])
        case ast.SpansetOp(op, left, right):
            found = _spanset(right)
            return _spanset(left) if found == EVERYTHING and op[0] != "!" else found
    return EVERYTHING


def implied(condition: ast.FieldExpr | None) -> Predicate:
    """What a span satisfies that satisfies the condition."""
    match condition:
        case ast.Binary("&&", left, right):
            return _all_of([implied(left), implied(right)])
        case ast.Binary("||", left, right):
            return _any_of([implied(left), implied(right)])
        case ast.Binary(op, (ast.Attribute() | ast.Intrinsic()) as field, ast.Literal() as value):
            return _comparison(op, field, value)
        case ast.Binary(op, ast.Literal() as value, (ast.Attribute() | ast.Intrinsic()) as field) if op in _MIRRORED:
            return _comparison(_MIRRORED[op], field, value)
    return EVERYTHING


def _comparison(op: str, field: ast.Field, value: ast.Literal) -> Predicate:
    if isinstance(field, ast.Attribute):
        return _attribute(op, field, value)
    if field.name == "duration" and isinstance(value.value, int) and op in _OPS:
        return Compare(Column("duration_ns"), _OPS[op], Int(value.value))
    if field.name == "duration" and isinstance(value.value, float) and op in _OPS:
        return Compare(Column("duration_ns"), _OPS[op], Float(value.value))
    if field.name in ("status", "kind") and op == "=" and value.value not in ("unset", "unspecified", None):
        column = "status_code" if field.name == "status" else "kind"
        return Compare(Column(column), Op.EQUAL, Text(str(value.value)))
    if field.name in _TEXT_COLUMNS and value.type == ast.STRING and value.value:
        text = str(value.value)
        if op == "=":
            width = _ID_WIDTH.get(field.name)
            return Compare(
                Column(_TEXT_COLUMNS[field.name]), Op.EQUAL, _text(text.lower().rjust(width, "0") if width else text)
            )
    if field.name.startswith("event:") and value.type != ast.NIL:
        return Exists(Column("events"))
    if field.name.startswith("link:") and value.type != ast.NIL:
        return Exists(Column("links"))
    return EVERYTHING


def _attribute(op: str, field: ast.Attribute, value: ast.Literal) -> Predicate:
    if field.parent or (value.type == ast.NIL and op == "="):
        return EVERYTHING
    if field.scope in ("event", "link"):
        return Exists(Column(f"{field.scope}s"))
    if field == SERVICE_NAME:
        if op == "=" and value.value and isinstance(value.value, str):
            return Compare(Column("service_name"), Op.EQUAL, _text(value.value))
        return EVERYTHING
    scopes = ("span", "resource") if not field.scope else (field.scope,)
    parts: list[Predicate] = []
    for scope in scopes:
        column = attribute_column(PREFIXES[scope], field.name)
        parts += [_stored(op, name, value) for name in dict.fromkeys((column, f"{PREFIXES[scope]}_{field.name}"))]
        # An array satisfies a comparison with one of its elements.
        parts.append(Contains(Column(SENT), f'"{column}":"array"'))
        if scope == "resource" and field.name == "service.name":
            parts.append(Exists(Column("service_name")))
    return _any_of(parts)


def _stored(op: str, name: str, value: ast.Literal) -> Predicate:
    column = Column(name)
    literal = _literal(value)
    if op in _OPS and literal is not None and not (isinstance(literal, Bool) and op != "="):
        return Compare(column, _OPS[op], literal)
    if op == "=~":
        return Matches(column, str(value.value))
    return Exists(column)


def _literal(value: ast.Literal) -> Literal | None:
    match value.value:
        case bool(flag):
            return Bool(flag)
        case int(number):
            return Int(number)
        case float(number):
            return Float(number)
        case str(text) if value.type == ast.STRING:
            return _text(text)
    return None


def _text(text: str) -> Text:
    return Text(text.encode("utf-8", "replace").decode())


def _all_of(parts: list[Predicate]) -> Predicate:
    left = [part for part in parts if part != EVERYTHING]
    return EVERYTHING if not left else left[0] if len(left) == 1 else And(tuple(left))


def _any_of(parts: list[Predicate]) -> Predicate:
    if any(part == EVERYTHING for part in parts):
        return EVERYTHING
    return parts[0] if len(parts) == 1 else Or(tuple(parts))
