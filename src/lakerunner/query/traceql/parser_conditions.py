"""The part of the TraceQL parser that reads conditions on spans: fields, values, and operators between them."""

from __future__ import annotations

import math

from lakerunner.query.syntax.limits import DepthGuard
from lakerunner.query.syntax.strings import unquote
from lakerunner.query.syntax.tokens import Cursor, Token
from lakerunner.query.traceql import ast
from lakerunner.query.traceql.fields import SPELLINGS
from lakerunner.query.traceql.lexer import ATTRIBUTE, DURATION, FLOAT, IDENTIFIER, INTEGER, INTRINSIC, LANGUAGE, STRING
from lakerunner.query.traceql.literals import attribute_of, duration_ns

#: How tightly operators bind.
BINDING = {
    **dict.fromkeys(ast.LOGIC, 1),
    **dict.fromkeys((*ast.COMPARISONS, *ast.STRUCTURAL), 2),
    **dict.fromkeys("+-", 3),
    **dict.fromkeys("*/%", 5),
    "^": 6,
}
_NOT = 4
_INT64 = 1 << 63
_WORDS: dict[str, ast.Literal] = {
    "true": ast.Literal(ast.BOOL, True),
    "false": ast.Literal(ast.BOOL, False),
    "nil": ast.Literal(ast.NIL, None),
    "minInt": ast.Literal(ast.INT, -_INT64),
    "maxInt": ast.Literal(ast.INT, _INT64 - 1),
    **{name: ast.Literal(ast.STATUS, name) for name in ast.STATUSES},
    **{name: ast.Literal(ast.KIND, name) for name in ast.KINDS},
}


class ConditionParser(Cursor):
    language = LANGUAGE

    def __init__(self, text: str, tokens: list[Token]) -> None:
        super().__init__(text, tokens)
        self.depth = DepthGuard(text, LANGUAGE)

    def condition(self, binding: int) -> ast.FieldExpr:
        self.depth.enter(self.token.start)
        try:
            left = self._field_operand()
            while (power := BINDING.get(self.token.kind, 0)) > binding and self.token.kind in (
                *ast.COMPARISONS,
                *ast.ARITHMETIC,
                *ast.LOGIC,
            ):
                op = self.take().kind
                left = ast.Binary(op, left, self.condition(power - 1 if op == "^" else power))
            return left
        finally:
            self.depth.leave()

    def _field_operand(self) -> ast.FieldExpr:
        if self.accept("!"):
            return ast.Unary("!", self.condition(_NOT))
        if self.at("-"):
            if self.peek().kind in (INTEGER, FLOAT, DURATION):
                after = self.peek(2).kind
                if BINDING.get(after, 0) <= 3:
                    return self.signed_number()
            self.take()
            return ast.Unary("-", self.condition(3))
        if self.accept("("):
            inner = self.condition(0)
            self.expect(")", "parentheses")
            return inner
        if self.at(ATTRIBUTE, INTRINSIC):
            return self.field()
        return self.literal()

    def fields(self, context: str) -> tuple[ast.Field, ...]:
        self.expect("(", context)
        fields = [self.field()]
        while self.accept(","):
            fields.append(self.field())
        self.expect(")", context)
        return tuple(fields)

    def field(self) -> ast.Field:
        token = self.token
        if self.accept(ATTRIBUTE):
            return attribute_of(token.text)
        if self.accept(INTRINSIC):
            return ast.Intrinsic(SPELLINGS[token.text])
        if token.kind == IDENTIFIER and token.text == "parent":
            self.fail("parent is no value", token.start, token.end, hint="write parent.name for an attribute of it")
        self.unexpected("query", "an attribute such as span.http.method, or an intrinsic such as duration")

    def literal(self) -> ast.Literal:
        token = self.token
        if token.kind in (INTEGER, FLOAT, DURATION, "-"):
            return self.signed_number()
        if self.accept(STRING):
            return ast.Literal(ast.STRING, unquote(self.text, token, LANGUAGE))
        if token.kind == IDENTIFIER:
            found = _WORDS.get(token.text)
            if found is not None:
                self.take()
                return found
            hint = "write .name for an attribute, or quote a text"
            self.fail(f"unknown identifier: {token.text}", token.start, token.end, hint=hint)
        self.unexpected("query", "a value")

    def signed_number(self) -> ast.Literal:
        sign = -1 if self.accept("-") else 1
        token = self.token
        if self.is_word("maxInt", "minInt"):
            self.take()
            value = _WORDS[token.text].value
            assert isinstance(value, int)
            return ast.Literal(ast.INT, max(sign * value, -_INT64))
        if token.kind not in (INTEGER, FLOAT, DURATION):
            self.unexpected("query", "a number")
        self.take()
        if token.kind == FLOAT:
            number = float(token.text)
            if math.isinf(number):
                self.fail("the number is out of range", token.start, token.end)
            return ast.Literal(ast.FLOAT, sign * number)
        whole = int(token.text) if token.kind == INTEGER else duration_ns(token.text)
        if whole >= _INT64:
            self.fail("the number is out of range", token.start, token.end)
        return ast.Literal(ast.INT if token.kind == INTEGER else ast.DURATION, sign * whole)

    def integer(self, context: str) -> int:
        if not self.at(INTEGER):
            self.unexpected(context, "a whole number")
        return int(self.take().text)

    def is_word(self, *words: str) -> bool:
        return self.token.kind == IDENTIFIER and self.token.text in words

    def accept_word(self, word: str) -> bool:
        if self.is_word(word):
            self.take()
            return True
        return False
