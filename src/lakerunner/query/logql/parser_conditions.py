"""The grammar of label filters: comparisons joined by `and`, `or`, commas, or nothing at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lakerunner.model.errors import BadInput
from lakerunner.query.logql.addresses import parse_addresses
from lakerunner.query.logql.ast import (
    AndFilter,
    BytesFilter,
    CompareOp,
    Condition,
    DurationFilter,
    IpFilter,
    NumberFilter,
    OrFilter,
    StringFilter,
)
from lakerunner.query.logql.durations import parse_duration_ns
from lakerunner.query.logql.lexer import (
    DURATION,
    FUNCTION,
    IDENTIFIER,
    KEYWORDS,
    LANGUAGE,
    NUMBER,
    SIZE,
    STRING,
    tokenize,
)
from lakerunner.query.logql.numbers import parse_number
from lakerunner.query.logql.sizes import parse_size_bytes
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.series.patterns import PatternGuard, compiled
from lakerunner.query.syntax.limits import DepthGuard
from lakerunner.query.syntax.strings import unquote
from lakerunner.query.syntax.tokens import Cursor, Token

_OPS = tuple(CompareOp)
#: How comparisons are joined, in the order of their precedence. A comma and a mere space have none: what follows them
#: belongs to their right side.
_JOINS = {"or": 1, "and": 2, ",": 0, "": 0}

_T = TypeVar("_T")


class ConditionParser(Cursor):
    """Reads label filters, and the names, strings and numbers of which everything else is made too."""

    language = LANGUAGE

    def __init__(self, text: str) -> None:
        self.check_text(text)
        super().__init__(text, tokenize(text))
        self.depth, self.patterns = DepthGuard(text, LANGUAGE), PatternGuard()

    def condition(self) -> Condition:
        """Comparisons, reduced as the grammar of Loki resolves its conflicts."""
        operands, joins = [self._operand()], list[str]()
        while (join := self._join()) is not None:
            while joins and joins[-1] in ("and", "or") and 0 < _JOINS[join] <= _JOINS[joins[-1]]:
                _reduce(operands, joins)
            joins.append(join)
            operands.append(self._operand())
        while joins:
            _reduce(operands, joins)
        return operands[0]

    def _join(self) -> str | None:
        """How the next comparison is joined to the last one; None if there is none."""
        if self.at("and", "or", ","):
            return self.take().kind
        return "" if self.at(IDENTIFIER, "(") else None

    def _operand(self) -> Condition:
        self.depth.enter(self.token.start)
        if self.accept("("):
            inner = self.condition()
            self.expect(")", "label filter")
        else:
            inner = self._comparison()
        self.depth.leave()
        return inner

    def _comparison(self) -> Condition:
        name = self.label("label filter")
        if self.at("=~", "!~") or (self.at("=", "!=") and self.peek().kind == STRING):
            matcher = self.matcher(name, "label filter")
            return StringFilter(matcher, name.start, self.previous.end)
        if not self.at("=", *_OPS):
            self.unexpected("label filter", "a comparison")
        sign = self.take()
        op = CompareOp.EQUAL if sign.kind == "=" else CompareOp(sign.kind)
        token = self.token
        if self.at_function("ip") and sign.kind in ("=", "!="):
            self.take()
            addresses, literal = self.argument("ip")
            self.read(parse_addresses, addresses, literal)
            return IpFilter(name.text, op, addresses, name.start, self.previous.end)
        match token.kind:
            case kind if kind == DURATION:
                self.take()
                return DurationFilter(name.text, op, parse_duration_ns(token.text), name.start, token.end)
            case kind if kind == SIZE:
                self.take()
                return BytesFilter(name.text, op, parse_size_bytes(token.text), name.start, token.end)
            case kind if kind in (NUMBER, "+", "-"):
                return NumberFilter(name.text, op, self.signed_number("label filter"), name.start, self.previous.end)
            case kind if kind == STRING:
                self.fail(f'a text cannot be compared with "{sign.text}"', sign.start, token.end, "use =, !=, =~ or !~")
        self.unexpected("label filter", "a string, number, duration or size")

    # -- pieces ------------------------------------------------------------------------------------------------

    def matcher(self, name: Token, context: str) -> Matcher:
        """The matcher whose label was read already."""
        if not self.at("=", "!=", "=~", "!~"):
            self.unexpected(context, '"=", "!=", "=~" or "!~"')
        kind = MatchKind(self.take().kind)
        value, token = self.string(context)
        matcher = Matcher(name.text, kind, value)
        pattern = self.read(lambda _: matcher.pattern, value, token)
        if pattern is not None:
            self.patterns.spend(pattern)
        return matcher

    def label(self, context: str) -> Token:
        """The name of a label."""
        if self.token.kind in KEYWORDS:
            self.fail(f'"{self.token.text}" is a keyword and cannot name a label', self.token.start, self.token.end)
        if not self.at(IDENTIFIER):
            self.unexpected(context, "the name of a label")
        return self.take()

    def string(self, context: str) -> tuple[str, Token]:
        """A text, and its token for errors about it."""
        if not self.at(STRING):
            self.unexpected(context, "a string")
        token = self.take()
        value = unquote(self.text, token, LANGUAGE)
        if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
            self.fail("the string is not valid UTF-8", token.start, token.end)
        return value, token

    def argument(self, context: str) -> tuple[str, Token]:
        """A text in parentheses."""
        self.expect("(", context)
        found = self.string(context)
        self.expect(")", context)
        return found

    def signed_number(self, context: str) -> float:
        sign = self.accept("+", "-")
        if not self.at(NUMBER):
            self.unexpected(context, "a number")
        token = self.take()
        value = self.read(parse_number, token.text, token)
        return -value if sign is not None and sign.kind == "-" else value

    def regexp(self, pattern: str, token: Token) -> None:
        """Check a pattern that may match a part of a line."""
        self.patterns.spend(self.read(lambda text: compiled(text, False, dot_nl=False), pattern, token))

    def read(self, read: Callable[[str], _T], value: str, token: Token) -> _T:
        """What a text stands for; an error points at its token."""
        try:
            return read(value)
        except BadInput as reason:
            self.fail(reason.message, token.start, token.end, reason.hint)

    def at_function(self, name: str) -> bool:
        return self.at(FUNCTION) and self.token.text == name

    def count_part(self) -> None:
        self.depth.enter(self.token.start)
        self.depth.leave()


def _reduce(operands: list[Condition], joins: list[str]) -> None:
    right, left = operands.pop(), operands.pop()
    node = OrFilter if joins.pop() == "or" else AndFilter
    operands.append(node(left, right, left.start, right.end))
