"""Types of TraceQL expressions, checked before anything is read. Attributes have any type until they are read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from lakerunner.model.errors import BadInput
from lakerunner.query.scan.rows.conditions.predicate import Column, Matches
from lakerunner.query.series.patterns import PatternGuard
from lakerunner.query.syntax.errors import ParseError
from lakerunner.query.traceql import ast
from lakerunner.query.traceql.fields import SERVICE_NAME, type_of
from lakerunner.query.traceql.lexer import LANGUAGE
from lakerunner.query.traceql.printer import aggregate_text, field_expr

_NUMBERS = frozenset({ast.INT, ast.FLOAT, ast.DURATION})
_ORDERED = frozenset({*_NUMBERS, ast.STRING})


def check(text: str, query: ast.Query) -> None:
    """Refuse a query whose types do not fit."""
    checker = _Checker(text)
    if isinstance(query.root, ast.Pipeline):
        checker.stages(query.root.stages)
    else:
        checker.metric(query.root)


def fields_in(expr: ast.FieldExpr) -> Iterator[ast.Field]:
    match expr:
        case ast.Attribute() | ast.Intrinsic():
            yield expr
        case ast.Unary(_, operand):
            yield from fields_in(operand)
        case ast.Binary(_, left, right):
            yield from fields_in(left)
            yield from fields_in(right)


class _Checker:
    def __init__(self, text: str) -> None:
        self._text = text
        self._patterns = PatternGuard()

    def metric(self, expr: ast.MetricExpr) -> None:
        match expr:
            case ast.Metric(pipeline, aggregate):
                self.stages(pipeline.stages)
                if isinstance(aggregate, ast.Compare):
                    self._stage(aggregate.selection)
                elif aggregate.argument is not None:
                    kind = type_of(aggregate.argument)
                    if kind is not None and kind not in _NUMBERS:
                        self._fail(f"{aggregate.function} needs a number", aggregate.argument)
            case ast.MetricOp(_, left, right):
                self.metric(left)
                self.metric(right)

    def stages(self, stages: tuple[ast.Stage, ...]) -> None:
        for stage in stages:
            self._stage(stage)

    def _stage(self, stage: ast.Stage) -> None:
        match stage:
            case ast.Filter(condition) if condition is not None:
                if self._type(condition) not in (None, ast.BOOL):
                    self._fail("a filter must be true or false", condition)
            case ast.SpansetOp(_, left, right):
                self._stage(left)
                self._stage(right)
            case ast.Pipeline(stages):
                self.stages(stages)
            case ast.ScalarFilter(_, left, right):
                self._scalar(left)
                self._scalar(right)
            case ast.GroupBy(by):
                self._type(by)
                if not any(True for _ in fields_in(by)):
                    self._fail("a group must refer to the span", by)

    def _scalar(self, scalar: ast.Scalar) -> None:
        match scalar:
            case ast.ScalarOp(_, left, right):
                self._scalar(left)
                self._scalar(right)
            case ast.ScalarPipeline(stages, aggregate):
                self.stages(stages)
                self._scalar(aggregate)
            case ast.Aggregate(_, argument) if argument is not None:
                kind = self._type(argument)
                if kind is not None and kind not in _NUMBERS:
                    self._fail(f"{aggregate_text(scalar)} needs a number", argument)
                if not any(True for _ in fields_in(argument)):
                    self._fail("an aggregate must refer to the span", argument)

    def _type(self, expr: ast.FieldExpr) -> str | None:
        match expr:
            case ast.Literal(kind):
                return kind
            case ast.Attribute() | ast.Intrinsic():
                return type_of(expr)
            case ast.Unary(op, operand):
                inner = self._type(operand)
                fits = inner in _NUMBERS if op == "-" else inner == ast.BOOL
                if inner is not None and not fits:
                    self._fail(f'illegal operation: "{op}" of a {inner}', operand)
                return ast.BOOL if op == "!" else inner
            case ast.Binary():
                return self._binary(expr)

    def _binary(self, expr: ast.Binary) -> str | None:
        left, right = self._type(expr.left), self._type(expr.right)
        op = expr.op
        if ast.NIL in (left, right):
            return self._nil(expr, left)
        if left is not None and right is not None and left != right and not {left, right} <= _NUMBERS:
            self._fail(f"a {left} and a {right} cannot be combined", expr)
        kinds = {kind for kind in (left, right) if kind is not None}
        if op in ast.ARITHMETIC:
            if kinds - _NUMBERS:
                self._fail(f'illegal operation: "{op}" needs numbers', expr)
            return next((kind for kind in (left, right) if kind == ast.DURATION), left if left == right else None)
        if op in ast.LOGIC:
            if kinds - {ast.BOOL}:
                self._fail(f'illegal operation: "{op}" needs conditions', expr)
        elif op in ("=~", "!~"):
            self._pattern(expr, kinds)
        elif op in ("<", "<=", ">", ">=") and kinds - _ORDERED:
            self._fail(f'illegal operation: "{op}" needs numbers or texts', expr)
        return ast.BOOL

    def _nil(self, expr: ast.Binary, left: str | None) -> str:
        if expr.op not in ("=", "!="):
            self._fail("nil can only be compared with = and !=", expr)
        other = expr.right if left == ast.NIL else expr.left
        if expr.op == "=" and (isinstance(other, ast.Intrinsic) or other == SERVICE_NAME):
            self._fail(f"{field_expr(other)} is never nil", expr)
        return ast.BOOL

    def _pattern(self, expr: ast.Binary, kinds: set[str]) -> None:
        pattern = expr.right
        if kinds - {ast.STRING} or not isinstance(pattern, ast.Literal):
            self._fail(f'illegal operation: "{expr.op}" needs a text and a pattern', expr)
        try:
            self._patterns.spend(Matches(Column("x"), str(pattern.value)).compiled)
        except BadInput as reason:
            self._fail(reason.message, pattern)

    def _fail(self, reason: str, expr: ast.FieldExpr) -> NoReturn:
        shown = field_expr(expr)
        start = self._text.find(shown)
        start, end = (start, start + len(shown)) if start >= 0 else (0, len(self._text))
        raise ParseError(f"{reason}: {shown[:200]}", text=self._text, start=start, end=end, language=LANGUAGE)
