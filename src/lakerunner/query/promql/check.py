"""Type checking of a parsed expression."""

from __future__ import annotations

from typing import NoReturn

from lakerunner.query.promql.ast import (
    Aggregate,
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
    unwrapped,
)
from lakerunner.query.promql.functions import FUNCTIONS, PARAMETRIC, Function
from lakerunner.query.promql.lexer import LANGUAGE
from lakerunner.query.syntax.errors import ParseError
from lakerunner.query.vectors.matching import Cardinality
from lakerunner.query.vectors.operators import COMPARISONS, SET_OPERATORS

_SCALAR, _VECTOR = ValueType.SCALAR, ValueType.VECTOR


def check(text: str, expr: Expr) -> ValueType:
    """The type of the expression. Raises `ParseError` at the first type error."""
    return _Checker(text).type_of(expr)


class _Checker:
    def __init__(self, text: str) -> None:
        self._text = text

    def fail(self, reason: str, expr: Expr) -> NoReturn:
        raise ParseError(reason, text=self._text, start=expr.start, end=expr.end, language=LANGUAGE)

    def fail_at_operator(self, reason: str, expr: Binary) -> NoReturn:
        end = expr.op_start + len(expr.op)
        raise ParseError(reason, text=self._text, start=expr.op_start, end=end, language=LANGUAGE)

    def type_of(self, expr: Expr) -> ValueType:
        match expr:
            case Number():
                return _SCALAR
            case String():
                return ValueType.STRING
            case VectorSelector():
                self._selector(expr)
                return _VECTOR
            case MatrixSelector(vector=vector):
                self._selector(vector)
                return ValueType.MATRIX
            case Subquery(expr=inner):
                found = self.type_of(inner)
                if found is not _VECTOR:
                    kind = "matrix" if found is ValueType.MATRIX else found
                    self.fail(f"subquery is only allowed on instant vector, got {kind} instead", expr)
                return ValueType.MATRIX
            case Paren(expr=inner):
                return self.type_of(inner)
            case Unary(expr=inner):
                found = self.type_of(inner)
                if found not in (_SCALAR, _VECTOR):
                    wanted = "expressions of type scalar or instant vector"
                    self.fail(f'unary expression only allowed on {wanted}, got "{found}"', expr)
                return found
            case Call():
                return self._call(expr)
            case Aggregate():
                return self._aggregate(expr)
            case Binary():
                return self._binaries(expr)

    def expect(self, expr: Expr, wanted: ValueType, context: str) -> None:
        found = self.type_of(expr)
        if found is not wanted:
            self.fail(f"expected type {wanted} in {context}, got {found}", expr)

    def _selector(self, expr: VectorSelector, may_be_empty: bool = False) -> None:
        if not may_be_empty and all(matcher.matches("") for matcher in expr.matchers):
            self.fail("vector selector must contain at least one non-empty matcher", expr)

    def _call(self, expr: Call) -> ValueType:
        function = FUNCTIONS[expr.name]
        self._count_args(expr, function)
        for index, arg in enumerate(expr.args):
            wanted = function.args[min(index, len(function.args) - 1)]
            if expr.name == "info" and index == 1:
                self._info_selector(expr, arg)
            else:
                self.expect(arg, wanted, f'call to function "{expr.name}"')
        return function.returns

    def _info_selector(self, call: Call, arg: Expr) -> None:
        selector = unwrapped(arg)
        if not isinstance(selector, VectorSelector):
            found = self.type_of(arg)
            if found is not _VECTOR:
                self.fail(f'expected type {_VECTOR} in call to function "info", got {found}', call)
            self.fail("expected label selectors only", arg)
        if selector.name:
            self.fail("expected label selectors only, got vector selector instead", arg)
        self._selector(selector, may_be_empty=True)

    def _count_args(self, expr: Call, function: Function) -> None:
        given, least, most = len(expr.args), len(function.args) - function.optional, len(function.args)
        exact = least == most and not function.repeats
        if given < least:
            wanted = f"{least}" if exact else f"at least {least}"
        elif given > most and not function.repeats:
            wanted = f"{most}" if exact else f"at most {most}"
        else:
            return
        self.fail(f'expected {wanted} argument(s) in call to "{expr.name}", got {given}', expr)

    def _aggregate(self, expr: Aggregate) -> ValueType:
        if expr.op in PARAMETRIC:
            if expr.param is None:
                self.fail("wrong number of arguments for aggregate expression provided, expected 2, got 1", expr)
            wanted = ValueType.STRING if expr.op == "count_values" else _SCALAR
            self.expect(expr.param, wanted, "aggregation parameter")
        self.expect(expr.expr, _VECTOR, "aggregation expression")
        return _VECTOR

    def _binaries(self, expr: Binary) -> ValueType:
        """Check a chain of left-associative operators in a loop: a thousand `or` must not recurse."""
        spine = [expr]
        while isinstance(spine[-1].left, Binary):
            spine.append(spine[-1].left)
        found = self.type_of(spine[-1].left)
        for node in reversed(spine):
            found = self._binary(node, found, self.type_of(node.right))
        return found

    def _binary(self, expr: Binary, left: ValueType, right: ValueType) -> ValueType:
        for side, found in ((expr.left, left), (expr.right, right)):
            if found not in (_SCALAR, _VECTOR):
                self.fail("binary expression must contain only scalar and instant vector types", side)
        both_scalar = left is right is _SCALAR
        both_vector = left is right is _VECTOR
        matching = expr.matching
        if expr.return_bool and expr.op not in COMPARISONS:
            self.fail_at_operator("bool modifier can only be used on comparison operators", expr)
        if expr.op in COMPARISONS and not expr.return_bool and both_scalar:
            self.fail_at_operator("comparisons between scalars must use BOOL modifier", expr)
        if not both_vector:
            if expr.op in SET_OPERATORS:
                self.fail(f'set operator "{expr.op}" not allowed in binary scalar expression', expr)
            if matching.fill_left is not None or matching.fill_right is not None:
                self.fail("filling in missing series only allowed between instant vectors", expr)
            if matching.labels:
                self.fail("vector matching only allowed between instant vectors", expr)
        elif expr.op in SET_OPERATORS:
            if matching.fill_left is not None or matching.fill_right is not None:
                self.fail("filling in missing series not allowed for set operators", expr)
            if matching.cardinality is not Cardinality.MANY_TO_MANY:
                self.fail(f'no grouping allowed for "{expr.op}" operation', expr)
        if matching.on:
            for label in matching.labels:
                if label in matching.include:
                    self.fail_at_operator(f'label "{label}" must not occur in ON and GROUP clause at once', expr)
        return _SCALAR if both_scalar else _VECTOR
