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
from lakerunner.model.labels import METRIC_NAME
from lakerunner.query.promql.ast import (
    Aggregate,
    AtEdge,
    Binary,
    Call,
    Expr,
    MatrixSelector,
    Number,
    Paren,
    String,
    Subquery,
    Unary,
    VectorSelector,
    unwrapped,
)
from lakerunner.query.promql.check import check
from lakerunner.query.promql.durations import Duration, literal_seconds
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
from lakerunner.query.promql.parser_durations import DurationParser
from lakerunner.query.series.go_format import plain
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.series.patterns import PatternGuard, whole
from lakerunner.query.syntax.limits import DepthGuard
from lakerunner.query.syntax.strings import quote, unquote
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
#: Prometheus' bound in seconds. Times beyond the range of milliseconds become one that has no samples.
_MAX_AT_S = 2.0**63
_NO_TIME_MS = -(1 << 62)
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


class Parser(DurationParser):
    language = LANGUAGE

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

    def word(self) -> str:
        """The current token as a keyword: identifiers in lower case, others as written."""
        return self.token.text.lower() if self.at(IDENTIFIER) else self.token.text

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
            return self._postfix(self._primary())
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
        value = self._signed_number(word)
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
                return self._selector("", token)
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
        return self._selector(token.text, token)

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

    # -- selectors ---------------------------------------------------------------------------------------------

    def _selector(self, name: str, first: Token) -> Expr:
        matchers: list[Matcher] = []
        if self.at("{"):
            matchers = self._matchers()
        names = [matcher for matcher in matchers if matcher.name in ("", METRIC_NAME)]
        if name and names:
            reason = f"metric name must not be set twice: {quote(name)} or {quote(names[0].value)}"
            self.fail(reason, first.start, self.previous.end)
        if name:
            matchers.append(Matcher(METRIC_NAME, MatchKind.EQUAL, name))
        # Metric names inside the braces are matchers like others.
        matchers = [replace(matcher, name=matcher.name or METRIC_NAME) for matcher in matchers]
        return VectorSelector(name, tuple(matchers), start=first.start, end=self.previous.end)

    def _matchers(self) -> list[Matcher]:
        self.expect("{", "label matching")
        matchers: list[Matcher] = []
        while not self.at("}"):
            matchers.append(self._matcher())
            if not self.at("}"):
                self.expect(",", "label matching")
        self.take()
        return matchers

    def _matcher(self) -> Matcher:
        """One matcher. A quoted string alone is the metric name, returned as a matcher with an empty label name."""
        if not self.at(IDENTIFIER, STRING):
            self.unexpected("label matching", 'identifier or "}"')
        token = self.take()
        name = unquote(self.text, token, LANGUAGE) if token.kind == STRING else token.text
        if token.kind == STRING and self.at(",", "}"):
            return Matcher("", MatchKind.EQUAL, name)
        if not self.at("=", "!=", "=~", "!~"):
            self.unexpected("label matching", "label matching operator")
        kind = MatchKind(self.take().kind)
        if not self.at(STRING):
            self.unexpected("label matching", "string")
        value = self.take()
        matcher = Matcher(name, kind, unquote(self.text, value, LANGUAGE))
        try:
            pattern = matcher.pattern
        except BadInput as reason:
            self.fail(reason.message, value.start, value.end)
        if pattern is not None:
            self.patterns.spend(pattern)
        return matcher

    # -- modifiers after an operand ----------------------------------------------------------------------------

    def _postfix(self, expr: Expr) -> Expr:
        while True:
            word = self.word()
            if self.at("["):
                expr = self._bracket(expr)
            elif self.at("@"):
                expr = self._at(expr)
            elif self.at(IDENTIFIER) and word == "offset":
                expr = self._offset(expr)
            elif self.at(IDENTIFIER) and word in ("anchored", "smoothed"):
                expr = self._extended(expr, word)
            else:
                return expr

    def _bracket(self, expr: Expr) -> Expr:
        opened = self.take()
        width = self.positive_duration("subquery or range selector")
        if self.accept(":"):
            step = None if self.at("]") else self.positive_duration("subquery selector")
            close = self.expect("]", "subquery selector")
            if isinstance(expr, MatrixSelector | Subquery):
                # Checked while parsing: a chain of subqueries would otherwise nest without limit.
                reason = "subquery is only allowed on instant vector, got matrix instead"
                self.fail(reason, expr.start, close.end)
            return Subquery(expr, width, step, start=expr.start, end=close.end)
        close = self.expect("]", "subquery or range")
        if not isinstance(expr, VectorSelector):
            self.fail("ranges only allowed for vector selectors", opened.start, close.end)
        if expr.offset is not None:
            self.fail("no offset modifiers allowed before range", opened.start, close.end)
        if expr.at is not None:
            self.fail("no @ modifiers allowed before range", opened.start, close.end)
        return MatrixSelector(expr, width, expr.start, close.end)

    def _offset(self, expr: Expr) -> Expr:
        self.take()
        offset = self.offset_duration()
        end = self.previous.end
        target = expr.vector if isinstance(expr, MatrixSelector) else expr
        if not isinstance(target, VectorSelector | Subquery):
            reason = (
                "offset modifier must be preceded by an instant vector selector or range vector selector or a subquery"
            )
            self.fail(reason, expr.start, end)
        if target.offset is not None:
            self.fail("offset may not be set multiple times", expr.start, end)
        # A zero offset is dropped.
        return self._changed(expr, end, offset=None if literal_seconds(offset) == 0 else offset)

    def _changed(self, expr: Expr, end: int, **changes: Duration | int | AtEdge | bool | None) -> Expr:
        if isinstance(expr, MatrixSelector):
            return replace(expr, vector=replace(expr.vector, **changes), end=end)  # type: ignore[arg-type]
        assert isinstance(expr, VectorSelector | Subquery)
        return replace(expr, end=end, **changes)  # type: ignore[arg-type]

    def _at(self, expr: Expr) -> Expr:
        self.take()
        at: int | AtEdge
        if self.at(IDENTIFIER) and self.word() in ("start", "end") and self.peek().kind == "(":
            at = AtEdge(self.take().text.lower())
            self.take()
            self.expect(")", "@ modifier")
        else:
            seconds = self._signed_number("@ modifier")
            if math.isnan(seconds) or abs(seconds) >= _MAX_AT_S:
                shown = plain(seconds) if not math.isfinite(seconds) else f"{seconds:f}"
                self.fail(f"timestamp out of bounds for @ modifier: {shown}", expr.start, self.previous.end)
            at = int(math.copysign(math.floor(abs(seconds) * 1000 + 0.5), seconds))
            at = at if abs(at) < -_NO_TIME_MS else _NO_TIME_MS
        end = self.previous.end
        target = expr.vector if isinstance(expr, MatrixSelector) else expr
        if not isinstance(target, VectorSelector | Subquery):
            reason = "@ modifier must be preceded by an instant vector selector or range vector selector or a subquery"
            self.fail(reason, expr.start, end)
        if target.at is not None:
            self.fail("@ <timestamp> may not be set multiple times", expr.start, end)
        return self._changed(expr, end, at=at)

    def _extended(self, expr: Expr, word: str) -> Expr:
        token = self.take()
        target = expr.vector if isinstance(expr, MatrixSelector) else expr
        if isinstance(target, Subquery):
            self.fail(f"{word} modifier is not supported for subqueries", expr.start, token.end)
        if not isinstance(target, VectorSelector):
            self.fail(f"{word} modifier not implemented", expr.start, token.end)
        if target.anchored if word == "smoothed" else target.smoothed:
            self.fail("anchored and smoothed modifiers cannot be used together", expr.start, token.end)
        return self._changed(expr, token.end, **{word: True})

    def _signed_number(self, context: str) -> float:
        sign = self.accept("+", "-")
        token = self.token
        if self.at(NUMBER, DURATION):
            self.take()
            value = self.number_value(token)
        elif self.at(IDENTIFIER) and self.word() in ("inf", "nan"):
            value = math.inf if self.take().text.lower() == "inf" else math.nan
        else:
            self.unexpected(context, "a number")
        return -value if sign is not None and sign.kind == "-" else value


def _unclosed(tokens: Sequence[Token]) -> str | None:
    """What a text that ends too early has left open, as Prometheus calls it."""
    depth = Counter(token.kind for token in tokens)
    if depth["{"] > depth["}"]:
        return "unexpected end of input inside braces"
    if depth["("] > depth[")"]:
        return "unclosed left parenthesis"
    return "unclosed left bracket" if depth["["] > depth["]"] else None
