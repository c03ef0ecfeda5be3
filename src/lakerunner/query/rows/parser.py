"""Filter tokens to a predicate.

    filter     = and { "or" and }
    and        = unary { "and" unary }
    unary      = "not" unary | "(" filter ")" | condition
    condition  = name ( "=" | "!=" | "<" | "<=" | ">" | ">=" ) literal
               | name [ "not" ] "in" "(" [ literal { "," literal } ] ")"
               | name ( "=~" | "!~" ) string          the pattern must match the whole text
               | name [ "not" ] ( "contains" | "search" ) string     a part of the text; search takes a pattern
               | name [ "not" ] "exists"
    name       = identifier | string | "column" string
    literal    = string | number | duration | time | "true" | "false"

An identifier is a stored name: a column (`severity_number`) or an attribute's column (`attr_http_status`). A name in
quotes or backquotes is the original key of an attribute (`"http.status"`), looked for at the row, its scope, then its
resource. A stored name that is a keyword or no identifier is written `column "name"`. Keywords may be in any case. An
empty text, or `()`, matches every row.
"""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal

from lakerunner.model.errors import BadInput
from lakerunner.query.rows.lexer import DURATION, IDENTIFIER, LANGUAGE, NUMBER, STRING, TIME, UNITS_NS, tokenize
from lakerunner.query.scan.rows.conditions.predicate import (
    EVERYTHING,
    And,
    Bool,
    Column,
    Compare,
    Contains,
    Duration,
    Exists,
    Float,
    In,
    Int,
    Key,
    Literal,
    Matches,
    Not,
    Op,
    Or,
    Predicate,
    Ref,
    Text,
    Time,
)
from lakerunner.query.series.patterns import PatternGuard
from lakerunner.query.syntax.limits import DepthGuard
from lakerunner.query.syntax.strings import unquote
from lakerunner.query.syntax.tokens import END, Cursor, Token

#: Words that are no column, unless they stand in quotes after the word `column`.
KEYWORDS = frozenset({"and", "or", "not", "in", "contains", "search", "exists", "true", "false"})
_OPERATORS = {op.value: op for op in Op}
_PIECE = re.compile(r"(\d+(?:\.\d+)?)(ns|us|ms|[dhms])")
_INT64 = range(-(1 << 63), 1 << 63)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def parse(text: str) -> Predicate:
    """The predicate of a filter. Raises `ParseError`, which points at the token."""
    Parser.check_text(text)
    parser = Parser(text, tokenize(text))
    if parser.at(END):
        return EVERYTHING
    found = parser.either()
    if not parser.at(END):
        parser.unexpected("filter", '"and" or "or"')
    return found


class Parser(Cursor):
    language = LANGUAGE

    def __init__(self, text: str, tokens: list[Token]) -> None:
        super().__init__(text, tokens)
        self._depth, self._patterns = DepthGuard(text, LANGUAGE), PatternGuard()

    def either(self) -> Predicate:
        parts = [self._both()]
        while self._word("or"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _both(self) -> Predicate:
        parts = [self._unary()]
        while self._word("and"):
            parts.append(self._unary())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _unary(self) -> Predicate:
        self._depth.enter(self.token.start)
        try:
            if self._word("not"):
                return Not(self._unary())
            if self.accept("("):
                # "()" is what matches every row.
                inner = EVERYTHING if self.at(")") else self.either()
                self.expect(")", "filter")
                return inner
            return self._condition()
        finally:
            self._depth.leave()

    def _condition(self) -> Predicate:
        ref = self._ref()
        operator = self.token
        if operator.kind in _OPERATORS:
            self.take()
            return Compare(ref, _OPERATORS[operator.kind], self._literal())
        if self.accept("!="):
            return Not(Compare(ref, Op.EQUAL, self._literal()))
        if self.accept("=~"):
            return self._matches(ref, anchored=True)
        if self.accept("!~"):
            return Not(self._matches(ref, anchored=True))
        if self._word("not"):
            return Not(self._worded(ref))
        return self._worded(ref)

    def _worded(self, ref: Ref) -> Predicate:
        if self._word("in"):
            return In(ref, self._literals())
        if self._word("contains"):
            return Contains(ref, self._string("the text to find"))
        if self._word("search"):
            return self._matches(ref, anchored=False)
        if self._word("exists"):
            return Exists(ref)
        self.unexpected("condition", "an operator such as =, <, =~, in, contains or exists")

    def _ref(self) -> Ref:
        if self.at(STRING):
            return Key(self._string("a name"))
        if self.at(IDENTIFIER) and self.token.text == "column" and self.peek().kind == STRING:
            self.take()
            return Column(self._string("a name"))
        if self.at(IDENTIFIER) and self.token.text.lower() not in KEYWORDS:
            return Column(self.take().text)
        self.unexpected("condition", "the name of a column or attribute")

    def _literals(self) -> tuple[Literal, ...]:
        self.expect("(", '"in"')
        values: list[Literal] = []
        while not self.at(")"):
            values.append(self._literal())
            if not self.accept(","):
                break
        self.expect(")", '"in"')
        return tuple(values)

    def _literal(self) -> Literal:
        token = self.token
        if token.kind == STRING:
            return Text(self._string("a value"))
        if token.kind == NUMBER:
            self.take()
            return _number(token.text)
        if token.kind == DURATION:
            self.take()
            return Duration(self._within(_duration_ns(token.text), token))
        if token.kind == TIME:
            self.take()
            return Time(self._within(self._time_ns(token), token))
        if token.kind == IDENTIFIER and token.text.lower() in ("true", "false"):
            return Bool(self.take().text.lower() == "true")
        hint = "write texts in quotes" if token.kind == IDENTIFIER else ""
        self.unexpected("condition", f"a value{'; ' + hint if hint else ''}")

    def _matches(self, ref: Ref, *, anchored: bool) -> Matches:
        token = self.token
        pattern = self._string("a regular expression")
        try:
            found = Matches(ref, pattern, anchored)
        except BadInput as reason:
            self.fail(reason.message, token.start, token.end)
        self._patterns.spend(found.compiled)
        return found

    def _string(self, what: str) -> str:
        token = self.token
        if token.kind != STRING:
            self.unexpected("condition", f"{what}, in quotes")
        value = unquote(self.text, self.take(), LANGUAGE)
        try:
            value.encode()
        except UnicodeEncodeError:
            self.fail("a text that is not valid UTF-8 equals none that is stored", token.start, token.end)
        return value

    def _word(self, word: str) -> bool:
        if self.at(IDENTIFIER) and self.token.text.lower() == word:
            self.take()
            return True
        return False

    def _time_ns(self, token: Token) -> int:
        text, _, fraction = token.text.partition(".")
        zone = "Z"
        if fraction:
            digits = re.match(r"\d+", fraction)
            assert digits is not None
            fraction, zone = digits.group(), fraction[digits.end() :]
            text += zone
        try:
            moment = dt.datetime.fromisoformat(text)
        except ValueError as reason:
            self.fail(f"bad time: {reason}", token.start, token.end)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
        seconds = (moment - _EPOCH) // dt.timedelta(seconds=1)
        return seconds * 1_000_000_000 + int(fraction.ljust(9, "0") if fraction else 0)

    def _within(self, value_ns: int, token: Token) -> int:
        if value_ns not in _INT64:
            self.fail("out of range", token.start, token.end)
        return value_ns


def _number(text: str) -> Int | Float:
    return Int(int(text)) if re.fullmatch(r"[+-]?\d{1,300}", text) else Float(float(text))


def _duration_ns(text: str) -> int:
    """Nanoseconds, fractions of one cut off.

    >>> _duration_ns("1.5s250ms"), _duration_ns("-2m")
    (1750000000, -120000000000)
    """
    total = sum((Decimal(number) * UNITS_NS[unit] for number, unit in _PIECE.findall(text)), Decimal(0))
    return -int(total) if text.startswith("-") else int(total)
