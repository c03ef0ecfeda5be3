"""The PromQL parser: recursive descent, with precedence climbing for the operators."""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NoReturn

from lakerunner.model.errors import BadInput
from lakerunner.query.promql.ast import (
    Aggregate,
    Binary,
    Call,
    Expr,
    Number,
    Paren,
    String,
    Unary,
    unwrapped,
)
from lakerunner.query.promql.check import check
from lakerunner.query.promql.functions import AGGREGATIONS, FUNCTIONS, PARAMETRIC
from lakerunner.query.promql.lexer import (
    DURATION,
    IDENTIFIER,
    LANGUAGE,
    METRIC_IDENTIFIER,
    NUMBER,
    STRING,
    tokenize,
)
from lakerunner.query.promql.parser_selectors import SelectorParser
from lakerunner.query.series.patterns import PatternGuard, whole
from lakerunner.query.syntax.limits import DepthGuard
from lakerunner.query.syntax.strings import unquote
from lakerunner.query.syntax.tokens import END, Token
from lakerunner.query.vectors.matching import Cardinality, Matching
from lakerunner.query.vectors.operators import SET_OPERATORS

_PRECEDENCE = {
    "or": 1,
    "and": 2,
    "unless": 2,
    **dict.fromkeys(("==", "!=", ">", "<", ">=", "<=", "</", ">/"), 3),
    "+": 4,
    "-": 4,
    **dict.fromkeys(("*", "/", "%", "atan2"), 5),
    "^": 6,
}
_POWER = _PRECEDENCE["^"]
#: Words that cannot be a metric name where an operand is expected.
_RESERVED = frozenset({"atan2", "bool", "on", "ignoring", "group_left", "group_right"})
_FILLS = frozenset({"fill", "fill_left", "fill_right"})
#: Longer queries are not cached: they are rare, and their trees are large.
_MAX_CACHED_LENGTH = 4_096


def parse(text: str) -> Expr:
    """The type-checked tree of a query. Raises `ParseError`."""
    # Dashboards repeat their queries, and each part of a query is parsed from its text.
    return _parse_cached(text) if len(text) <= _MAX_CACHED_LENGTH else _parse(text)


def _parse(text: str) -> Expr:
    expr = Parser.of(text).query()
    check(text, expr)
    return expr


_parse_cached = lru_cache(maxsize=512)(_parse)


class Parser(SelectorParser):
    @classmethod
    def of(cls, text: str) -> Parser:
        cls.check_text(text)
        parser = cls(text, tokenize(text))
        parser.depth, parser.patterns = DepthGuard(text, LANGUAGE), PatternGuard()
        return parser

    def query(self) -> Expr:
        """The expression that is the complete text."""
        if self.at(END):
            self.fail("no expression found in input", 0, 0)
        expr = self.expression(0)
        if not self.at(END):
            self.unexpected("expression")
        return expr

    def unexpected(self, context: str, expected: str = "") -> NoReturn:
        unclosed = _unclosed(self._tokens) if self.at(END) else None
        if unclosed is not None:
            self.fail(unclosed, self.token.start, self.token.end)
        super().unexpected(context, expected)

    # -- operators ---------------------------------------------------------------------------------------------

    def expression(self, least: int) -> Expr:
        self.depth.enter(self.token.start)
        left = self._unary()
        while True:
            op = self.word()
            precedence = _PRECEDENCE.get(op)
            if precedence is None or precedence < least or self.at(STRING):
                break
            operator = self.take()
            matching, return_bool = self._modifiers(op)
            right = self.expression(precedence if op == "^" else precedence + 1)
            left = Binary(op, left, right, matching, return_bool, left.start, right.end, operator.start)
        self.depth.leave()
        return left

    def _unary(self) -> Expr:
        if not self.at("+", "-"):
            return self.modified(self._primary())
        sign = self.take()
        inner = self.expression(_POWER)
        if isinstance(inner, Number):
            value = -inner.value if sign.kind == "-" else inner.value
            return Number(value, inner.with_units, sign.start, inner.end)
        return Unary(sign.kind, inner, sign.start, inner.end)

    def _modifiers(self, op: str) -> tuple[Matching, bool]:
        return_bool = self._accept_word("bool")
        cardinality = Cardinality.MANY_TO_MANY if op in SET_OPERATORS else Cardinality.ONE_TO_ONE
        matching = Matching(cardinality)
        if self.at(IDENTIFIER) and self.word() in ("on", "ignoring"):
            on = self.take().text.lower() == "on"
            matching = replace(matching, on=on, labels=self._grouping())
            if self.at(IDENTIFIER) and self.word() in ("group_left", "group_right"):
                left = self.take().text.lower() == "group_left"
                side = Cardinality.MANY_TO_ONE if left else Cardinality.ONE_TO_MANY
                include = self._grouping() if self.at("(") else ()
                matching = replace(matching, cardinality=side, include=include)
        fills = _FILLS
        while self.at(IDENTIFIER) and self.word() in fills and self.peek().kind == "(":
            # Either `fill` once, or `fill_left` and `fill_right` once each.
            fills = fills - {"fill", self.word()} if self.word() != "fill" else frozenset()
            matching = self._fill(matching)
        return matching, return_bool

    def _fill(self, matching: Matching) -> Matching:
        word = self.take().text.lower()
        self.expect("(", word)
        value = self.signed_number(word)
        self.expect(")", word)
        if word != "fill_right":
            matching = replace(matching, fill_left=value)
        if word != "fill_left":
            matching = replace(matching, fill_right=value)
        return matching

    def _accept_word(self, word: str) -> bool:
        if self.at(IDENTIFIER) and self.word() == word:
            self.take()
            return True
        return False

    # -- operands ----------------------------------------------------------------------------------------------

    def _primary(self) -> Expr:
        token = self.token
        match token.kind:
            case "(":
                self.take()
                inner = self.expression(0)
                close = self.expect(")", "parentheses")
                return Paren(inner, token.start, close.end)
            case "{":
                return self.selector("", token)
            case kind if kind == STRING:
                self.take()
                return String(unquote(self.text, token, LANGUAGE), token.start, token.end)
            case kind if kind in (NUMBER, DURATION):
                self.take()
                return Number(self.number_value(token), token.kind == DURATION, token.start, token.end)
            case kind if kind in (IDENTIFIER, METRIC_IDENTIFIER):
                return self._named()
        self.unexpected("expression", "an operand")

    def _named(self) -> Expr:
        token, word = self.token, self.word()
        after = self.peek()
        if word in ("inf", "nan"):
            self.take()
            return Number(math.inf if word == "inf" else math.nan, False, token.start, token.end)
        if word in AGGREGATIONS and (after.kind == "(" or after.text.lower() in ("by", "without")):
            return self._aggregate()
        if word in _RESERVED:
            self.unexpected("expression", "an operand")
        self.take()
        if after.kind == "(":
            return self._call(token)
        return self.selector(token.text, token)

    def _call(self, name: Token) -> Expr:
        if name.text not in FUNCTIONS:
            near = difflib.get_close_matches(name.text, (*FUNCTIONS, *AGGREGATIONS), 1)
            hint = f'did you mean "{near[0]}"?' if near else None
            self.fail(f'unknown function with name "{name.text}"', name.start, name.end, hint)
        args = self._args("function call")
        if name.text == "label_replace":
            self._count_pattern(args[-1:])
        return Call(name.text, args, name.start, self.previous.end)

    def _count_pattern(self, args: Sequence[Expr]) -> None:
        """Count the pattern of `label_replace`. An invalid one is an error of evaluation, as in Prometheus."""
        for arg in map(unwrapped, args):
            if isinstance(arg, String):
                try:
                    pattern = whole(arg.value, captures=True)
                except BadInput:
                    return
                self.patterns.spend(pattern)

    def _args(self, context: str) -> tuple[Expr, ...]:
        self.expect("(", context)
        args: list[Expr] = []
        while not self.at(")"):
            args.append(self.expression(0))
            if not self.at(")"):
                comma = self.expect(",", context)
                if self.at(")"):
                    self.fail(f"trailing commas not allowed in {context} args", comma.start, comma.end)
        self.take()
        return tuple(args)

    def _aggregate(self) -> Expr:
        token = self.take()
        op = token.text.lower()
        grouping: tuple[str, ...] = ()
        without, clauses = False, 0
        if self.at(IDENTIFIER):
            without, grouping, clauses = self._clause()
        args = self._args("aggregation")
        if not clauses and self.at(IDENTIFIER) and self.word() in ("by", "without"):
            without, grouping, clauses = self._clause()
        wanted = 2 if op in PARAMETRIC else 1
        end = self.previous.end
        if not args:
            self.fail("no arguments for aggregate expression provided", token.start, end)
        if len(args) != wanted:
            reason = f"wrong number of arguments for aggregate expression provided, expected {wanted}, got {len(args)}"
            self.fail(reason, token.start, end)
        param = args[0] if wanted == 2 else None
        return Aggregate(op, args[-1], param, grouping, without, token.start, end)

    def _clause(self) -> tuple[bool, tuple[str, ...], int]:
        if self.word() not in ("by", "without"):
            self.unexpected("aggregation", '"by", "without" or "("')
        without = self.take().text.lower() == "without"
        return without, self._grouping(), 1

    def _grouping(self) -> tuple[str, ...]:
        self.expect("(", "grouping")
        labels: list[str] = []
        while not self.at(")"):
            # All other keywords may be label names.
            refused = self.at(IDENTIFIER) and self.word() in ("without", "inf", "nan")
            if refused or not self.at(IDENTIFIER, METRIC_IDENTIFIER, STRING):
                self.unexpected("grouping", "a label name")
            token = self.take()
            labels.append(unquote(self.text, token, LANGUAGE) if token.kind == STRING else token.text)
            if not self.at(")"):
                self.expect(",", "grouping")
        self.take()
        return tuple(labels)


def _unclosed(tokens: Sequence[Token]) -> str | None:
    """What a text that ends too early has left open, as Prometheus calls it."""
    depth = Counter(token.kind for token in tokens)
    if depth["{"] > depth["}"]:
        return "unexpected end of input inside braces"
    if depth["("] > depth[")"]:
        return "unclosed left parenthesis"
    return "unclosed left bracket" if depth["["] > depth["]"] else None
