"""Which attributes of a span an answer shows: those that the query names.

A field that is compared with a value is shown where the comparison holds; one that is selected, grouped or calculated
with, always. Events and links show the values of the one that was found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lakerunner.query.traceql import ast
from lakerunner.query.traceql.check import fields_in
from lakerunner.query.traceql.fields import INTRINSICS, SERVICE_NAME


@dataclass(frozen=True, slots=True)
class Shown:
    field: ast.Field
    #: Where it is shown; None: everywhere.
    where: ast.FieldExpr | None = None

    @property
    def name(self) -> str:
        return INTRINSICS[self.field.name].name if isinstance(self.field, ast.Intrinsic) else self.field.name


def shown_fields(pipeline: ast.Pipeline) -> list[Shown]:
    """What is shown, each field once.

    As in Tempo, a value is also shown where it satisfies the comparison of another attribute of its scope and type.
    """
    found: dict[Shown, None] = {}
    for stage in pipeline.stages:
        found |= dict.fromkeys(_of_stage(stage))
    always = {shown.field for shown in found if shown.where is None}
    groups: dict[object, dict[tuple[str, ast.Literal], None]] = {}
    for shown in found:
        if shown.where is not None:
            op, value = _comparison(shown.where)
            groups.setdefault(_group(shown.field, value), {})[op, value] = None
    out = {field: Shown(field) for field in always}
    for shown in found:
        if shown.where is None or shown.field in always:
            continue
        comparisons = groups[_group(shown.field, _comparison(shown.where)[1])]
        where: ast.FieldExpr | None = out[shown.field].where if shown.field in out else None
        for op, value in comparisons:
            one = ast.Binary(op, shown.field, value)
            where = one if where is None else ast.Binary("||", where, one)
        out[shown.field] = Shown(shown.field, where)
    return list(out.values())


_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _comparison(where: ast.FieldExpr) -> tuple[str, ast.Literal]:
    assert isinstance(where, ast.Binary)
    if isinstance(where.right, ast.Literal):
        return where.op, where.right
    assert isinstance(where.left, ast.Literal)
    return _MIRRORED.get(where.op, where.op), where.left


def _group(field: ast.Field, value: ast.Literal) -> object:
    if isinstance(field, ast.Intrinsic) or field == SERVICE_NAME or value.type == ast.NIL:
        return field
    return field.scope, value.type


def _of_stage(stage: ast.Stage | ast.Scalar) -> Iterator[Shown]:
    for leaf in _leaves(stage):
        if isinstance(leaf, ast.Filter):
            if leaf.condition is not None:
                yield from _of_condition(leaf.condition)
        else:
            for field in _fields_of(leaf):
                yield from _always(field)


def _leaves(stage: ast.Stage | ast.Scalar) -> Iterator[ast.Stage | ast.Scalar]:
    """The stages within a stage that have none within them, in the order of the text."""
    match stage:
        case ast.SpansetOp(_, left, right) | ast.ScalarFilter(_, left, right) | ast.ScalarOp(_, left, right):
            yield from _leaves(left)
            yield from _leaves(right)
        case ast.Pipeline(stages):
            for each in stages:
                yield from _leaves(each)
        case ast.ScalarPipeline(stages, aggregate):
            for each in stages:
                yield from _leaves(each)
            yield aggregate
        case _:
            yield stage


def _fields_of(leaf: ast.Stage | ast.Scalar) -> Iterator[ast.Field]:
    match leaf:
        case ast.Filter(expr) | ast.Aggregate(_, expr) | ast.GroupBy(expr) if expr is not None:
            yield from fields_in(expr)
        case ast.Select(fields):
            yield from fields


def _of_condition(expr: ast.FieldExpr) -> Iterator[Shown]:
    match expr:
        case ast.Binary(op, left, right) if op in ast.LOGIC:
            yield from _of_condition(left)
            yield from _of_condition(right)
        case ast.Unary("!", operand):
            yield from _of_condition(operand)
        case ast.Binary(op, (ast.Attribute() | ast.Intrinsic()) as field, ast.Literal() as value):
            for scoped in _scoped(field):
                yield Shown(scoped, ast.Binary(op, scoped, value))
        case ast.Binary(op, ast.Literal() as value, (ast.Attribute() | ast.Intrinsic()) as field):
            for scoped in _scoped(field):
                yield Shown(scoped, ast.Binary(op, value, scoped))
        case _:
            for field in fields_in(expr):
                yield from _always(field)


def _always(field: ast.Field) -> Iterator[Shown]:
    for scoped in _scoped(field):
        yield Shown(scoped)


def _scoped(field: ast.Field) -> tuple[ast.Field, ...]:
    if isinstance(field, ast.Attribute) and not field.scope and not field.parent:
        return tuple(ast.Attribute(scope, field.name) for scope in ("span", "resource"))
    return (field,)


def all_fields(pipeline: ast.Pipeline) -> tuple[ast.Field, ...]:
    """Every field that the pipeline reads."""
    found: dict[ast.Field, None] = {}
    for shown in shown_fields(pipeline):
        found[shown.field] = None
    for stage in pipeline.stages:
        for leaf in _leaves(stage):
            found |= dict.fromkeys(_fields_of(leaf))
    return tuple(found)
