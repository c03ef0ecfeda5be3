"""TraceQL text to a tree. Raises `ParseError`, which points at the token.

    query     = pipe [ "with" "(" name "=" literal { "," … } ")" ]
    pipe      = stage { "|" stage }
    stage     = expression | "by" "(" field ")" | "coalesce" "(" ")" | "select" "(" field { "," … } ")"
              | metric | ( "topk" | "bottomk" ) "(" integer ")"
    operand   = "{" [ condition ] "}" | "(" pipe ")" | aggregate | number | duration

Operators of expressions connect span sets, scalars or metrics, whichever their operands are. From loose to tight: `&&`
and `||` (the same), comparisons and relations of spans, `+ -`, `* / %`, `^`. Conditions bind in the same way.
"""

from __future__ import annotations

import math
from typing import TypeAlias

from lakerunner.query.syntax.tokens import END, Token
from lakerunner.query.traceql import ast
from lakerunner.query.traceql.lexer import (
    DURATION,
    FLOAT,
    IDENTIFIER,
    INTEGER,
    INTRINSIC,
    tokenize,
)
from lakerunner.query.traceql.parser_conditions import BINDING, ConditionParser

AGGREGATES = ("count", "avg", "min", "max", "sum")
COUNTING = ("rate", "count_over_time")
OVER_TIME = ("min_over_time", "max_over_time", "avg_over_time", "sum_over_time", "histogram_over_time")
QUANTILE, COMPARE = "quantile_over_time", "compare"
METRICS = (*COUNTING, *OVER_TIME, QUANTILE, COMPARE)
RANKED = ("topk", "bottomk")
#: compare() keeps so many values of an attribute, unless it says another number, up to the largest.
DEFAULT_TOP, MAX_TOP = 10, 1000
_METRIC = (ast.Metric, ast.MetricOp, ast.MetricNumber)
_SCALAR = (ast.Aggregate, ast.ScalarOp, ast.ScalarPipeline, ast.Literal)
_SPANSET = (ast.Filter, ast.SpansetOp, ast.Pipeline)

Item: TypeAlias = ast.Stage | ast.Scalar | ast.MetricExpr


def parse(text: str) -> ast.Query:
    Parser.check_text(text)
    return Parser(text, tokenize(text)).query()


class Parser(ConditionParser):
    def query(self) -> ast.Query:
        start = self.token
        root = self._pipe()
        if isinstance(root, ast.Aggregate | ast.ScalarOp | ast.ScalarPipeline | ast.Literal | ast.MetricNumber):
            self.unexpected("query", "a comparison")
        hints = self._hints() if self.accept_word("with") else ()
        if not self.at(END):
            self.unexpected("query", '"|" or the end')
        if isinstance(root, ast.Metric | ast.MetricOp):
            return ast.Query(root, hints)
        if not isinstance(root, ast.Pipeline):
            self.fail("this is no query", start.start, start.end)
        return ast.Query(root, hints)

    # -- pipelines ---------------------------------------------------------------------------------------------------

    def _pipe(self) -> ast.Pipeline | ast.MetricExpr | ast.Scalar:
        """A pipeline, a metric, or a scalar: what stands at the top and in parentheses."""
        stages: list[ast.Stage] = []
        while True:
            if stages and self.is_word(*METRICS):
                return self._second_stages(self._metric(ast.Pipeline(tuple(stages))))
            item = self._stage(first=not stages)
            if isinstance(item, _METRIC):
                return item if isinstance(item, ast.MetricNumber) else self._second_stages(item)
            if isinstance(item, _SCALAR):
                if not stages:
                    return item
                if not isinstance(item, ast.Aggregate):
                    self.unexpected("pipeline", "a comparison")
                return ast.ScalarPipeline(tuple(stages), item)
            stages.append(item)
            if not self.accept("|"):
                return ast.Pipeline(tuple(stages))

    def _stage(self, *, first: bool) -> Item:
        if self.is_word("by"):
            self.take()
            self.expect("(", "by")
            by = self.condition(0)
            self.expect(")", "by")
            return ast.GroupBy(by)
        if not first and self.is_word("coalesce"):
            self.take()
            self.expect("(", "coalesce")
            self.expect(")", "coalesce")
            return ast.Coalesce()
        if self.is_word("select"):
            self.take()
            return ast.Select(self.fields("select"))
        return self._expression(0)

    def _expression(self, binding: int) -> Item:
        self.depth.enter(self.token.start)
        try:
            left = self._operand()
            while (power := BINDING.get(self.token.kind, 0)) > binding:
                # A filter of a metric is a stage of its own.
                if isinstance(left, ast.Metric | ast.MetricOp) and power <= 2:
                    break
                operator = self.take()
                right = self._expression(power - 1 if operator.kind == "^" else power)
                left = self._joined(operator, left, right)
            return left
        finally:
            self.depth.leave()

    def _joined(self, operator: Token, left: Item, right: Item) -> Item:
        op = operator.kind
        if isinstance(left, _SPANSET) and isinstance(right, _SPANSET) and op in (*ast.LOGIC, *ast.STRUCTURAL):
            return ast.SpansetOp(op, left, right)
        if op in ast.ARITHMETIC and any(isinstance(each, ast.Metric | ast.MetricOp) for each in (left, right)):
            return ast.MetricOp(op, self._metric_operand(left, operator), self._metric_operand(right, operator))
        if isinstance(left, _SCALAR) and isinstance(right, _SCALAR):
            if op in ast.ARITHMETIC:
                pipelines = [_has_pipeline(each) for each in (left, right)]
                if any(pipelines) and not all(pipelines):
                    self.fail(f'"{op}" connects pipelines only with pipelines', operator.start, operator.end)
                return ast.ScalarOp(op, left, right)
            if op in ast.COMPARISONS[:6]:
                if not (_has_aggregate(left) or _has_aggregate(right)):
                    self.fail("a comparison of numbers says nothing of spans", operator.start, operator.end)
                return ast.ScalarFilter(op, left, right)
        self.fail(f'unexpected "{op}": it does not connect what stands beside it', operator.start, operator.end)

    def _metric_operand(self, item: Item, operator: Token) -> ast.MetricExpr:
        if isinstance(item, ast.Metric) and isinstance(item.aggregate, ast.Compare):
            self.fail("compare() cannot be calculated with", operator.start, operator.end)
        if isinstance(item, _METRIC):
            return item
        number = _folded(item)
        if number is None:
            self.fail("a metric can be calculated with numbers and other metrics only", operator.start, operator.end)
        return ast.MetricNumber(number)

    def _operand(self) -> Item:
        token = self.token
        if self.accept("{"):
            condition = None if self.at("}") else self.condition(0)
            self.expect("}", "filter")
            return ast.Filter(condition)
        if self.accept("("):
            inner = self._pipe()
            self.expect(")", "parentheses")
            if isinstance(inner, ast.Pipeline) and len(inner.stages) == 1 and isinstance(inner.stages[0], _SPANSET):
                return inner.stages[0]
            return inner
        if self.is_word(*AGGREGATES) or (token.kind == INTRINSIC and token.text in AGGREGATES):
            return self._aggregate()
        if token.kind in (INTEGER, FLOAT, DURATION) or token.kind == "-":
            return self.signed_number()
        self.unexpected("query", '"{", "(" or an aggregate')

    def _aggregate(self) -> ast.Aggregate:
        function = self.take().text
        self.expect("(", function)
        argument = None if function == "count" else self.condition(0)
        self.expect(")", function)
        return ast.Aggregate(function, argument)

    # -- metrics -----------------------------------------------------------------------------------------------------

    def _metric(self, pipeline: ast.Pipeline) -> ast.Metric:
        function = self.take().text
        self.expect("(", function)
        if function == COMPARE:
            return ast.Metric(pipeline, self._compare())
        argument = None if function in COUNTING else self.field()
        quantiles: list[float] = []
        if function == QUANTILE:
            self.expect(",", function)
            while True:
                number = self.token
                if not self.at(INTEGER, FLOAT):
                    self.unexpected(function, "a number from 0 to 1")
                self.take()
                quantiles.append(float(number.text))
                if not self.accept(","):
                    break
        self.expect(")", function)
        by = self.fields("by") if self.accept_word("by") else ()
        return ast.Metric(pipeline, ast.MetricAggregate(function, argument, by, tuple(quantiles)))

    def _compare(self) -> ast.Compare:
        start = self.token
        self.expect("{", COMPARE)
        condition = None if self.at("}") else self.condition(0)
        self.expect("}", "filter")
        numbers: list[int] = []
        while len(numbers) < 3 and self.accept(","):
            numbers.append(self.integer(COMPARE))
        self.expect(")", COMPARE)
        top, start_ns, end_ns = [*(numbers or [DEFAULT_TOP]), 0, 0][:3]
        if not 1 <= top <= MAX_TOP:
            self.fail(f"compare() keeps between 1 and {MAX_TOP} values", start.start, self.previous.end)
        if len(numbers) > 1 and end_ns <= start_ns:
            self.fail("compare() ends before it starts", start.start, self.previous.end)
        return ast.Compare(ast.Filter(condition), top, start_ns, end_ns)

    def _second_stages(self, metric: ast.Metric | ast.MetricOp) -> ast.Metric | ast.MetricOp:
        then: list[ast.SecondStage] = []
        start = self.token
        while True:
            if self.token.kind in ast.COMPARISONS[:6]:
                op = self.take().kind
                number = self.signed_number()
                assert isinstance(number.value, int | float)
                value = number.value / 1e9 if number.type == ast.DURATION else float(number.value)
                then.append(ast.ValueFilter(op, value))
            elif self.at("|"):
                self.take()
                if not self.is_word(*RANKED):
                    self.unexpected("metrics query", "topk or bottomk")
                function = self.take().text
                self.expect("(", function)
                count = self.integer(function)
                self.expect(")", function)
                if count <= 0:
                    self.fail(f"{function} needs a number above 0", start.start, self.previous.end)
                then.append(ast.Ranked(function, count))
            else:
                break
        if then and isinstance(metric, ast.Metric) and isinstance(metric.aggregate, ast.Compare):
            self.fail("compare() cannot be used with second stage functions", start.start, self.previous.end)
        if isinstance(metric, ast.Metric):
            return ast.Metric(metric.pipeline, metric.aggregate, (*metric.then, *then))
        return ast.MetricOp(metric.op, metric.left, metric.right, (*metric.then, *then))

    def _hints(self) -> tuple[ast.Hint, ...]:
        self.expect("(", "with")
        hints = []
        while True:
            token = self.token
            if token.kind not in (IDENTIFIER, INTRINSIC):
                self.unexpected("with", "the name of a hint")
            self.take()
            self.expect("=", "with")
            hints.append(ast.Hint(token.text, self.literal()))
            if not self.accept(","):
                break
        self.expect(")", "with")
        return tuple(hints)


def _has_pipeline(item: ast.Scalar) -> bool:
    if isinstance(item, ast.ScalarOp):
        return _has_pipeline(item.left) or _has_pipeline(item.right)
    return isinstance(item, ast.ScalarPipeline)


def _has_aggregate(item: ast.Scalar) -> bool:
    if isinstance(item, ast.ScalarOp):
        return _has_aggregate(item.left) or _has_aggregate(item.right)
    return not isinstance(item, ast.Literal)


def _folded(item: Item) -> float | None:
    """The number that an expression of numbers is."""
    match item:
        case ast.Literal(ast.INT | ast.FLOAT, int() | float() as value):
            return float(value)
        case ast.ScalarOp(op, left, right):
            a, b = _folded(left), _folded(right)
            return None if a is None or b is None else calculated(op, a, b)
    return None


def calculated(op: str, a: float, b: float) -> float:
    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "/":
            return a / b if b else math.nan
        case "%":
            return math.fmod(a, b) if b else math.nan
    return float(a**b)
