"""The LogQL parser: recursive descent, with precedence climbing for the operators."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NoReturn

from lakerunner.query.logql.ast import (
    Binary,
    Expr,
    Grouping,
    LabelReplace,
    LogRange,
    LogSelector,
    MetricExpr,
    Number,
    RangeAggregate,
    Unwrap,
    VectorAggregate,
    VectorLiteral,
)
from lakerunner.query.logql.check import (
    MAX_LEVELS,
    bad_range_aggregate,
    bad_vector_aggregate,
    selects_everything,
    too_deep,
)
from lakerunner.query.logql.durations import parse_duration_ns, parse_range_ns
from lakerunner.query.logql.functions import RANGE_FUNCTIONS, VECTOR_FUNCTIONS
from lakerunner.query.logql.lexer import DURATION, FUNCTION, IDENTIFIER, NUMBER, RANGE
from lakerunner.query.logql.numbers import fold, parse_number
from lakerunner.query.logql.operators import PRECEDENCE, RIGHT_ASSOCIATIVE
from lakerunner.query.logql.parser_stages import StageParser
from lakerunner.query.series.matchers import Matcher
from lakerunner.query.series.patterns import whole
from lakerunner.query.syntax.tokens import END, Token
from lakerunner.query.vectors.matching import Cardinality, Matching
from lakerunner.query.vectors.operators import COMPARISONS, SET_OPERATORS

_FUNCTIONS = (*RANGE_FUNCTIONS, *VECTOR_FUNCTIONS, "label_replace", "vector")
#: Longer queries are not cached: they are rare, and their trees are large.
_MAX_CACHED_LENGTH = 4_096


def parse(text: str) -> Expr:
    """The checked tree of a query. Raises `ParseError`."""
    # Dashboards repeat their queries.
    return _parse_cached(text) if len(text) <= _MAX_CACHED_LENGTH else _parse(text)


def parse_matchers(text: str, *, may_match_all: bool = False) -> tuple[Matcher, ...]:
    """The matchers of a selector without stages. With `may_match_all`, `{}` and the like are accepted too."""
    return Parser(text).bare_selector(may_match_all)


def _parse(text: str) -> Expr:
    return Parser(text).query()


_parse_cached = lru_cache(maxsize=512)(_parse)


class Parser(StageParser):
    def query(self) -> Expr:
        """The expression that is the complete text."""
        if self.at(END):
            self.fail("no expression found in input", 0, 0)
        expr = self._expression(0)
        if self.at_unwrap():
            hint = "write it like sum_over_time({…} | unwrap latency [5m])"
            self.fail("unwrap stands in a range aggregation only", self.peek().start, self.peek().end, hint)
        if not self.at(END):
            self.unexpected("query")
        deep = too_deep(expr)
        if deep is not None:
            self.fail(
                f"it nests deeper than {MAX_LEVELS} levels", deep.start, deep.end, "chains of operators count too"
            )
        return expr

    def bare_selector(self, may_match_all: bool) -> tuple[Matcher, ...]:
        matchers = self.matchers()
        if not self.at(END):
            self.unexpected("selector", "nothing after it")
        if not may_match_all and (refused := selects_everything(matchers)):
            self.fail(refused, 0, self.previous.end)
        return matchers

    def unexpected(self, context: str, expected: str = "") -> NoReturn:
        token = self.token
        unclosed = _unclosed(self._tokens) if self.at(END) else None
        if unclosed is not None:
            self.fail(unclosed, token.start, token.end)
        if token.text == "@":
            self.fail('unexpected "@": LogQL has no such modifier', token.start, token.end, "use offset")
        if token.text == "." and self.previous.kind == IDENTIFIER:
            hint = "labels have underscores in place of dots, like service_name"
            self.fail(f'unexpected "." in {context}', token.start, token.end, hint)
        super().unexpected(context, expected)

    # -- operators ---------------------------------------------------------------------------------------------

    def _expression(self, least: int) -> Expr:
        self.depth.enter(self.token.start)
        left = self._operand_expr()
        while True:
            operator = self.token
            precedence = PRECEDENCE.get(operator.kind)
            if precedence is None or precedence < least:
                break
            self.take()
            op = operator.kind
            matching, return_bool = self._modifiers(op)
            right = self._expression(precedence if op in RIGHT_ASSOCIATIVE else precedence + 1)
            left = self._binary(operator, left, right, matching, return_bool)
        self.depth.leave()
        return left

    def _binary(self, operator: Token, left: Expr, right: Expr, matching: Matching, return_bool: bool) -> MetricExpr:
        op = operator.kind
        for side, expr in (("left", left), ("right", right)):
            if isinstance(expr, LogSelector):
                hint = "count or unwrap its lines first, like count_over_time({…}[5m])"
                self.fail(f'the {side} side of "{op}" is a log query, not a metric', expr.start, expr.end, hint)
            if op in SET_OPERATORS and isinstance(expr, Number):
                self.fail(f'the {side} side of "{op}" is a number, not a vector', expr.start, expr.end)
        assert not isinstance(left, LogSelector) and not isinstance(right, LogSelector)
        if isinstance(left, Number) and isinstance(right, Number):
            return Number(fold(op, left.value, right.value), left.start, right.end)
        return Binary(op, left, right, matching, return_bool, left.start, right.end, operator.start)

    def _modifiers(self, op: str) -> tuple[Matching, bool]:
        """What stands between an operator and its right side. What has no meaning there is ignored, as by Loki."""
        return_bool = self.accept("bool") is not None and op in COMPARISONS
        matching = Matching(Cardinality.MANY_TO_MANY if op in SET_OPERATORS else Cardinality.ONE_TO_ONE)
        if not self.at("on", "ignoring"):
            return matching, return_bool
        on = self.take().kind == "on"
        matching = replace(matching, on=on, labels=self._labels("vector matching"))
        if self.at("group_left", "group_right"):
            left = self.take().kind == "group_left"
            include = self._labels("vector matching") if self.at("(") else ()
            if op not in SET_OPERATORS:
                side = Cardinality.MANY_TO_ONE if left else Cardinality.ONE_TO_MANY
                matching = replace(matching, cardinality=side, include=include)
        return matching, return_bool

    # -- operands ----------------------------------------------------------------------------------------------

    def _operand_expr(self) -> Expr:
        token = self.token
        match token.kind:
            case "(":
                self.take()
                inner = self._expression(0)
                self.expect(")", "parentheses")
                return inner
            case "{":
                return self._log_selector()
            case kind if kind in (NUMBER, "+", "-"):
                value = self.signed_number("expression")
                return Number(value, token.start, self.previous.end)
            case kind if kind == FUNCTION:
                return self._call()
            case "variants":
                self.fail("variants(…) of (…) is not supported", token.start, token.end, "ask one query for each")
            case kind if kind == IDENTIFIER and self.peek().kind == "(":
                near = difflib.get_close_matches(token.text.lower(), _FUNCTIONS, 1)
                hint = f'did you mean "{near[0]}"?' if near else None
                self.fail(f'unknown function with name "{token.text}"', token.start, token.end, hint)
            case kind if kind == IDENTIFIER and token.text in _FUNCTIONS:
                grouped = f" or {token.text} by (service_name) (…)" if token.text in VECTOR_FUNCTIONS else ""
                hint = f"write it like {token.text}(…){grouped}"
                self.fail(f'"{token.text}" is a function: parentheses are missing', token.start, token.end, hint)
        self.unexpected("expression", 'a selector like {service_name="…"}, a function or a number')

    def _call(self) -> MetricExpr:
        name = self.token.text
        if name in RANGE_FUNCTIONS:
            return self._range_aggregate()
        if name in VECTOR_FUNCTIONS:
            return self._vector_aggregate()
        if name == "vector":
            return self._vector()
        if name == "label_replace":
            return self._label_replace()
        self.unexpected("expression", "a selector, a function or a number")

    def _vector(self) -> VectorLiteral:
        start = self.take().start
        self.expect("(", "vector")
        if not self.at(NUMBER):
            self.unexpected("vector", "a number without a sign")
        value = self.signed_number("vector")
        self.expect(")", "vector")
        return VectorLiteral(value, start, self.previous.end)

    def _label_replace(self) -> LabelReplace:
        start = self.take().start
        self.expect("(", "label_replace")
        expr = self._vector_argument("label_replace")
        target, replacement, source, pattern = (self._next_string() for _ in range(4))
        self.patterns.spend(self.read(lambda text: whole(text, captures=True), pattern, self.previous))
        self.expect(")", "label_replace")
        return LabelReplace(expr, target, replacement, source, pattern, start, self.previous.end)

    def _next_string(self) -> str:
        self.expect(",", "label_replace")
        return self.string("label_replace")[0]

    def _vector_argument(self, function: str) -> MetricExpr:
        """The vector that a function is applied to."""
        expr = self._expression(0)
        if isinstance(expr, LogSelector):
            hint = "count or unwrap its lines first, like count_over_time({…}[5m])"
            self.fail(f"{function} needs a metric, not a log query", expr.start, expr.end, hint)
        if isinstance(expr, Number):
            hint = f"write vector({self.text[expr.start : expr.end]})"
            self.fail(f"{function} needs a vector, not a number", expr.start, expr.end, hint)
        return expr

    # -- aggregations ------------------------------------------------------------------------------------------

    def _vector_aggregate(self) -> VectorAggregate:
        name = self.take()
        grouping = self._grouping()
        self.expect("(", "aggregation")
        param = None
        if self.at(NUMBER) and self.peek().kind == ",":
            param = self.take()
            self.take()
        expr = self._vector_argument(name.text)
        self.expect(")", "aggregation")
        if grouping is None:
            grouping = self._grouping()
        by_labels = grouping is not None and bool(grouping.labels)
        refused = bad_vector_aggregate(
            name.text, None if param is None else param.text, grouped=grouping is not None, by_labels=by_labels
        )
        if refused is not None:
            self.fail(refused, name.start, name.end)
        # `by ()` groups as no clause does.
        grouping = None if grouping == Grouping() else grouping
        count = None if param is None else int(param.text)
        return VectorAggregate(name.text, expr, count, grouping, name.start, self.previous.end)

    def _range_aggregate(self) -> RangeAggregate:
        name = self.take()
        self.expect("(", "range aggregation")
        param = None
        if self.at(NUMBER):
            param = self.take()
            self.expect(",", "range aggregation")
        logs = self._log_range()
        self.expect(")", "range aggregation")
        grouping = self._grouping()
        refused = bad_range_aggregate(
            name.text, param=param is not None, unwrapped=logs.unwrap is not None, grouped=grouping is not None
        )
        if refused is not None:
            hint = "add a stage like | unwrap latency" if refused.endswith("needs unwrapped values") else None
            self.fail(refused, name.start, name.end, hint)
        value = None if param is None else self.read(parse_number, param.text, param)
        return RangeAggregate(name.text, logs, value, grouping, name.start, self.previous.end)

    def _grouping(self) -> Grouping | None:
        if not self.at("by", "without"):
            return None
        without = self.take().kind == "without"
        return Grouping(self._labels("grouping"), without)

    def _labels(self, context: str) -> tuple[str, ...]:
        self.expect("(", context)
        labels: list[str] = []
        if not self.at(")"):
            labels += (name.text for name in self.list_of(lambda: self.label(context)))
        self.expect(")", context)
        return tuple(labels)

    def _log_range(self) -> LogRange:
        """A selector with a range, which stands before or after the stages. Parentheses may enclose either."""
        opened = self.token
        if not self.accept("("):
            return self._ranged(*self._selected(), opened.start)
        self.depth.enter(opened.start)
        if self.at("("):
            logs = self._log_range()
            self.expect(")", "range aggregation")
        else:
            selector, unwrap = self._selected()
            enclosed = self.accept(")") is not None
            logs = self._ranged(selector, unwrap, opened.start, enclosed)
            if not enclosed:
                self.expect(")", "range aggregation")
        self.depth.leave()
        return logs

    def _selected(self) -> tuple[LogSelector, Unwrap | None]:
        """What may stand before the range."""
        selector = self._log_selector()
        return selector, self.unwrap() if self.at_unwrap() else None

    def _ranged(self, selector: LogSelector, unwrap: Unwrap | None, start: int, enclosed: bool = False) -> LogRange:
        if not self.at(RANGE):
            self.unexpected("range aggregation", 'a range like "[5m]"')
        range_ns = parse_range_ns(self.take().text[1:-1])
        offset_ns = self._offset_ns() if self.accept("offset") else 0
        if not selector.stages and unwrap is None:
            if not enclosed:
                stages = self.stages()
                selector = replace(selector, stages=stages, end=self.previous.end if stages else selector.end)
            if self.at_unwrap():
                unwrap = self.unwrap()
        return LogRange(selector, range_ns, offset_ns, unwrap, start, self.previous.end)

    def _offset_ns(self) -> int:
        if not self.at(DURATION):
            self.unexpected("offset", "a duration")
        return parse_duration_ns(self.take().text)

    def _log_selector(self) -> LogSelector:
        start = self.token.start
        matchers = self.matchers()
        refused = selects_everything(matchers)
        if refused is not None:
            hint = 'add one like service_name="…" or service_name=~".+"'
            self.fail(refused, start, self.previous.end, hint)
        return LogSelector(matchers, self.stages(), start, self.previous.end)


def _unclosed(tokens: Sequence[Token]) -> str | None:
    """What a text that ends too early did not close."""
    count = Counter(token.kind for token in tokens)
    if count["{"] > count["}"]:
        return "unexpected end of input inside braces"
    return "unclosed left parenthesis" if count["("] > count[")"] else None
