"""The part of the grammar that stands for durations: in brackets all of arithmetic, after `offset` one operand."""

from __future__ import annotations

import math
import re

from lakerunner.query.kit.limits import MAX_DEPTH, DepthGuard
from lakerunner.query.kit.tokens import Cursor, Token
from lakerunner.query.promql.durations import (
    Duration,
    DurationCall,
    DurationNumber,
    DurationOp,
    DurationParen,
    parse_duration_ms,
)
from lakerunner.query.promql.lexer import DURATION, IDENTIFIER, NUMBER

_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2, "^": 3}
_POWER = 3
_ARGUMENTS = {"step": 0, "range": 0, "min_of": 2, "max_of": 2}
_OCTAL = re.compile(r"0[0-7]+")


class DurationParser(Cursor):
    depth: DepthGuard

    def number_value(self, token: Token) -> float:
        """Seconds of a duration, or the value of a number as Go reads it: hexadecimal and octal too."""
        text = token.text
        if token.kind == DURATION:
            return parse_duration_ms(text) / 1000
        text = text.replace("_", "")
        if text[:2].lower() == "0x":
            value = float(int(text, 16))
        else:
            value = float(int(text, 8)) if _OCTAL.fullmatch(text) else float(text)
        if math.isinf(value):
            self.fail(f"error parsing number: {text} is out of range", token.start, token.end)
        return value

    def duration(self, context: str, least: int = 0) -> Duration:
        """An arithmetic expression over durations."""
        self.depth.enter(self.token.start)
        left = self._signed(context)
        operators = 0
        while (precedence := _PRECEDENCE.get(self.token.kind, -1)) >= max(least, 1):
            op = self.take()
            operators += 1
            if operators > MAX_DEPTH:
                self.fail(f"a duration has more than {MAX_DEPTH} operators", op.start, op.end)
            right = self.duration(context, precedence if op.kind == "^" else precedence + 1)
            left = DurationOp(op.kind, left, right, left.start)
        self.depth.leave()
        return left

    def _signed(self, context: str) -> Duration:
        sign = self.accept("+", "-")
        if sign is None:
            return self._atom(context)
        return DurationOp(sign.kind, None, self.duration(context, _POWER), sign.start)

    def offset_duration(self) -> Duration:
        """What follows `offset`: one operand with an optional sign, so that `x offset 1m + 2` adds 2 to x.

        But what begins with a parenthesis, or with two signs, is arithmetic as in brackets: `x offset (1m) + 2`.
        """
        if self.at("(") or (self.at("+", "-") and self.peek().kind in ("+", "-")):
            return self.duration("offset")
        sign = self.accept("+", "-")
        atom = self._atom("offset")
        return atom if sign is None else DurationOp(sign.kind, None, atom, sign.start)

    def _atom(self, context: str) -> Duration:
        token = self.token
        if self.at(NUMBER, DURATION):
            self.take()
            return DurationNumber(self.number_value(token), token.kind == DURATION, token.start)
        if self.accept("("):
            inner = self.duration(context)
            self.expect(")", context)
            return DurationParen(inner, token.start)
        name = token.text.lower()
        if not self.at(IDENTIFIER) or name not in _ARGUMENTS:
            self.unexpected(context, "number, duration, step(), or range()")
        self.take()
        self.expect("(", context)
        args: list[Duration] = []
        for index in range(_ARGUMENTS[name]):
            if index:
                self.expect(",", context)
            args.append(self.duration(context))
        self.expect(")", context)
        return DurationCall(name, tuple(args), token.start)
