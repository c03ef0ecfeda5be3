"""The grammar of durations: arithmetic expressions in brackets, a single operand after `offset`."""

from __future__ import annotations

import math
import re

from lakerunner.model.errors import BadInput
from lakerunner.query.promql.durations import (
    DIVISIONS,
    MAX_SECONDS,
    Duration,
    DurationCall,
    DurationNumber,
    DurationOp,
    DurationParen,
    literal_seconds,
)
from lakerunner.query.promql.lexer import DURATION, IDENTIFIER, NUMBER
from lakerunner.query.series.patterns import PatternGuard
from lakerunner.query.syntax.durations import parse_duration_ms
from lakerunner.query.syntax.limits import MAX_DEPTH, DepthGuard
from lakerunner.query.syntax.tokens import Cursor, Token

_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2, "^": 3}
_POWER = 3
_ARGUMENTS = {"step": 0, "range": 0, "min_of": 2, "max_of": 2}
_OCTAL = re.compile(r"0[0-7]+")
#: Digits of a number that error messages show.
_SHOWN_DIGITS = 60


class DurationParser(Cursor):
    depth: DepthGuard
    patterns: PatternGuard

    def number_value(self, token: Token) -> float:
        """The seconds of a duration, or the value of a number in Go's syntax, which has hexadecimal and octal."""
        text = token.text
        if token.kind == DURATION:
            try:
                return parse_duration_ms(text) / 1000
            except BadInput:
                self.fail("duration out of range", token.start, token.end)
        text = text.replace("_", "")
        if text[:2].lower() == "0x":
            value = float(int(text, 16))
        else:
            value = float(int(text, 8)) if _OCTAL.fullmatch(text) else float(text)
        if math.isinf(value):
            shown = text if len(text) <= _SHOWN_DIGITS else f"{text[:_SHOWN_DIGITS]}…"
            self.fail(f"error parsing number: {shown} is out of range", token.start, token.end)
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
            if op.kind in DIVISIONS and literal_seconds(right) == 0:
                self.fail(f"{DIVISIONS[op.kind]} by zero", op.start, op.end)
            left = DurationOp(op.kind, left, right, left.start, right.end)
        self.depth.leave()
        return left

    def _signed(self, context: str) -> Duration:
        sign = self.accept("+", "-")
        if sign is None:
            return self._atom(context)
        right = self.duration(context, _POWER)
        return DurationOp(sign.kind, None, right, sign.start, right.end)

    def positive_duration(self, context: str) -> Duration:
        """A range or a step. Computed durations are checked to be positive when the query runs."""
        found = self.duration(context)
        literal = literal_seconds(found)
        if literal is not None and literal <= 0:
            self.fail("duration must be greater than 0", found.start, found.end)
        return found

    def offset_duration(self) -> Duration:
        """The duration after `offset`: one operand with an optional sign, so that `x offset 1m + 2` adds 2 to x.

        After a parenthesis or two signs it is an arithmetic expression, as in brackets: `x offset (1m) + 2`.
        """
        if self.at("(") or (self.at("+", "-") and self.peek().kind in ("+", "-")):
            return self.duration("offset")
        sign = self.accept("+", "-")
        atom = self._atom("offset", sign)
        return atom if sign is None else DurationOp(sign.kind, None, atom, sign.start, atom.end)

    def _atom(self, context: str, sign: Token | None = None) -> Duration:
        token = self.token
        name = token.text.lower()
        if self.at(NUMBER, DURATION) or (context == "offset" and self.at(IDENTIFIER) and name in ("inf", "nan")):
            self.take()
            value = float(name) if token.kind == IDENTIFIER else self.number_value(token)
            if abs(value) > MAX_SECONDS:
                self.fail("duration out of range", (sign or token).start, token.end)
            return DurationNumber(value, token.kind == DURATION, token.start, token.end)
        if self.accept("("):
            inner = self.duration(context)
            return DurationParen(inner, token.start, self.expect(")", context).end)
        if not self.at(IDENTIFIER) or name not in _ARGUMENTS:
            self.unexpected(context, "number, duration, step(), or range()")
        self.take()
        self.expect("(", context)
        args: list[Duration] = []
        for index in range(_ARGUMENTS[name]):
            if index:
                self.expect(",", context)
            args.append(self.duration(context))
        return DurationCall(name, tuple(args), token.start, self.expect(")", context).end)
