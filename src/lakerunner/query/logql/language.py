"""LogQL as a language of the lake: text to a plan, and parts of the plan to entries or values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from lakerunner.model.errors import BadInput, Bug, LimitHit
from lakerunner.model.signals.logs import LOGS
from lakerunner.model.time import NS_PER_MS
from lakerunner.query.language import (
    Check,
    Evaluated,
    NoSegments,
    Plan,
    QueryOptions,
    RowPlan,
    RowSource,
    Source,
    StepPlan,
    Stream,
    ValuePlan,
    step_stream,
)
from lakerunner.query.logql import ast
from lakerunner.query.logql.answer import SCHEMA
from lakerunner.query.logql.eval.addends import addends_of, summed
from lakerunner.query.logql.eval.evaluator import Evaluator
from lakerunner.query.logql.eval.facts import Kind, is_splittable, kind_of, leaves
from lakerunner.query.logql.lexer import LANGUAGE as LOGQL
from lakerunner.query.logql.log_rows import LogPipelines, LogQuery, log_rows
from lakerunner.query.logql.parser import parse
from lakerunner.query.logql.pipeline import has_templates
from lakerunner.query.logql.printer import print_expr
from lakerunner.query.logql.pushdown import segment_matchers
from lakerunner.query.logql.scanned import ScannedEntries
from lakerunner.query.logql.warm import shares
from lakerunner.query.plan.leaf import Leaf
from lakerunner.query.scan.rows.conditions.predicate import Predicate
from lakerunner.query.scan.rows.request import RowScan
from lakerunner.query.series.batch import SeriesSource
from lakerunner.query.series.block import Block
from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.series.results import QueryResult, ScalarResult
from lakerunner.query.series.times import QueryTimes, check_steps
from lakerunner.query.syntax.tree import TreeCodec, dumps, loads
from lakerunner.query.vectors.annotations import Annotations
from lakerunner.query.vectors.context import EngineOptions
from lakerunner.query.vectors.matching import Cardinality, Matching
from lakerunner.runtime.kernels import Share

#: Texts up to this length stay parsed: dashboards ask the same again and again.
_CACHED_TEXT = 4_096
_COLUMNS = tuple(SCHEMA.names)
_CODEC = TreeCodec(
    (
        *(ast.LogSelector, ast.LineFilter, ast.LineText, ast.LineOp, ast.Json, ast.Logfmt, ast.Extraction, ast.Regexp),
        *(ast.PatternParser, ast.Unpack, ast.LabelFilter, ast.StringFilter, ast.NumberFilter, ast.DurationFilter),
        *(ast.BytesFilter, ast.IpFilter, ast.AndFilter, ast.OrFilter, ast.CompareOp, ast.LineFormat, ast.LabelFormat),
        *(ast.Assignment, ast.Decolorize, ast.Drop, ast.Keep, ast.LabelChoice, ast.Grouping, ast.Unwrap, ast.LogRange),
        *(ast.RangeAggregate, ast.VectorAggregate, ast.Binary, ast.Number, ast.VectorLiteral, ast.LabelReplace),
        *(Matching, Cardinality, Matcher, MatchKind),
    )
)


class LogQl:
    name = "logql"

    def compile(self, text: str, times: QueryTimes, options: QueryOptions) -> Plan:
        """The plan of a log query or of a metric query. A log query ignores the step."""
        parsed = _parsed(text) if len(text) <= _CACHED_TEXT else _Parsed.of(text)
        if isinstance(parsed.expr, ast.LogSelector):
            return LogRows(parsed, parsed.expr, times, options)
        check_steps(times, options.max_steps)
        if times.step_ms or kind_of(parsed.expr) is Kind.VECTOR:
            return LogSteps(parsed, parsed.expr, times, options)
        return LogValue(parsed, parsed.expr, times, options)

    def evaluate(self, payload: bytes, source: Source, check: Check) -> Stream:
        document = loads(payload)
        encoded = document["expr"]
        expr = _decoded(encoded) if len(encoded) <= _CACHED_TEXT else _CODEC.decode(encoded)
        try:
            if isinstance(expr, ast.LogSelector):
                start_ns, end_ns, newest_first, limit = document["rows"]
                query = LogQuery(expr, int(start_ns), int(end_ns), bool(newest_first), limit)
                return Stream(log_rows(query, source, check, _pipelines(encoded, expr)), dict)
            first_ns, step_ns, count = map(int, document["steps"])
            options = EngineOptions(**document["options"])
        except (ValueError, KeyError, TypeError) as reason:
            raise BadInput(f"cannot read an encoded query: {reason!r}") from None
        steps_ns = first_ns + step_ns * np.arange(count, dtype=np.int64)
        return step_stream(_evaluate(expr, steps_ns, source, check, options, ranged=step_ns > 0))

    def kernels(self) -> Sequence[Share]:
        return shares(self.compile)


LANGUAGE = LogQl()


@dataclass(frozen=True, slots=True)
class _Parsed:
    """What depends on the text alone."""

    text: str
    expr: ast.Expr
    #: The expression as workers get it.
    encoded: str
    canonical: str
    #: Of a log query, what the index knows about.
    matchers: tuple[Matcher, ...] = ()

    @classmethod
    def of(cls, text: str) -> _Parsed:
        expr = parse(text)
        matchers = segment_matchers(expr) if isinstance(expr, ast.LogSelector) else ()
        return cls(text, expr, _CODEC.encode(expr), print_expr(expr), matchers)


_parsed = lru_cache(maxsize=512)(_Parsed.of)
_decoded = lru_cache(maxsize=512)(_CODEC.decode)


def _pipelines(encoded: str, selector: ast.LogSelector) -> LogPipelines:
    """The pipelines of a selector. Those of short queries are kept, unless a template may remember something."""
    kept = not has_templates(selector) and len(encoded) <= _CACHED_TEXT
    return _kept_pipelines(encoded) if kept else LogPipelines.of(selector)


@lru_cache(maxsize=256)
def _kept_pipelines(encoded: str) -> LogPipelines:
    return LogPipelines.of(_CODEC.decode(encoded))


class LogRows(RowPlan):
    """A log query: entries from the start up to, and without, the end. If both are the same, those of that instant."""

    language: ClassVar[str] = LogQl.name
    schema = SCHEMA

    def __init__(self, parsed: _Parsed, selector: ast.LogSelector, times: QueryTimes, options: QueryOptions) -> None:
        start_ns, end_ns = times.start_ns, times.end_ns
        if end_ns < start_ns:
            raise BadInput("cannot read logs: the end is before the start")
        end_ns = max(end_ns, start_ns + 1)
        self.canonical, self.times, self.options = parsed.canonical, times, options
        self._encoded, self._selector = parsed.encoded, selector
        # A template may show the time at which it runs.
        self.repeatable = not has_templates(selector)
        # What is asked of workers: each of them chooses the stored columns itself.
        self.scan = RowScan(
            LOGS,
            columns=_COLUMNS,
            start_ns=start_ns,
            end_ns=end_ns,
            newest_first=options.newest_first,
            limit=options.limit,
        )
        self.leaves = (Leaf(LOGS.name, start_ns, end_ns, parsed.matchers),)

    @property
    def condition(self) -> Predicate:
        return _pipelines(self._encoded, self._selector).whole.predicate

    def payload(self, limit: int | None) -> bytes:
        rows = [self.scan.start_ns, self.scan.end_ns, self.scan.newest_first, limit]
        return dumps({"expr": self._encoded, "rows": rows})

    def schema_payload(self) -> bytes:
        raise Bug("cannot ask for the columns of a log query: they are known")


class _MetricPlan(Plan):
    language: ClassVar[str] = LogQl.name

    def __init__(self, parsed: _Parsed, expr: ast.MetricExpr, times: QueryTimes, options: EngineOptions) -> None:
        self.text, self.canonical = parsed.text, parsed.canonical
        self.times, self.options = times, options
        self.expr, self._encoded = expr, parsed.encoded
        self.leaves = self.leaves_at(times.steps())

    def leaves_at(self, steps: Ints) -> tuple[Leaf, ...]:
        found = leaves(self.expr, self.steps_ns(steps))
        return tuple(
            dict.fromkeys(dataclasses.replace(leaf, matchers=segment_matchers(selector)) for selector, leaf in found)
        )

    def steps_ns(self, steps: Ints) -> Ints:
        return steps * NS_PER_MS + self.times.start_rest_ns


class LogSteps(_MetricPlan, StepPlan):
    """A metric query: a vector at every step; an instant query has one."""

    reads_rows = True

    def __init__(self, parsed: _Parsed, expr: ast.MetricExpr, times: QueryTimes, options: EngineOptions) -> None:
        super().__init__(parsed, expr, times, options)
        self.splittable = is_splittable(expr)

    def payload(self, steps: Ints, max_samples: int) -> bytes:
        options = {each.name: getattr(self.options, each.name) for each in dataclasses.fields(EngineOptions)}
        return dumps(
            {
                "expr": self._encoded,
                "steps": [int(self.steps_ns(steps[:1])[0]), self.times.step_ms * NS_PER_MS, len(steps)],
                "options": options | {"max_samples": max_samples},
            }
        )

    def evaluate(self, steps: Ints, source: SeriesSource, check: Check, max_samples: int) -> Evaluated:
        if not isinstance(source, RowSource):
            raise Bug("cannot evaluate a metric query over logs: its source has no rows")
        options = dataclasses.replace(self.options, max_samples=max_samples)
        return _evaluate(self.expr, self.steps_ns(steps), source, check, options, ranged=self.times.step_ms > 0)

    def notes_of(self, document: Mapping[str, Any]) -> Annotations:
        return Annotations.from_json(self.text, document)

    def counts(self) -> Sequence[StepPlan]:
        found = addends_of(self.expr)
        return [] if found is None else [self.part(expr) for expr in found.counts]

    def of_sums(self, values: Sequence[Sequence[Block]], steps: Ints, check: Check, max_samples: int) -> Evaluated:
        found = addends_of(self.expr)
        assert found is not None
        sums = [summed(parts, len(steps)) for parts in values]
        for each in sums:
            self._check_series(len(each.labels))
        return self.combined(found.whole, sums, steps, check, max_samples)

    def _check_series(self, count: int) -> None:
        if count > self.options.max_series:
            raise LimitHit(
                f"cannot answer the query: it has more than {self.options.max_series:,} series (api.max_series)",
                hint="narrow the selectors, or group by fewer labels",
            )

    def part(self, expr: ast.MetricExpr) -> LogSteps:
        """The plan of one of its sub-expressions, at the same times."""
        text = print_expr(expr)
        return LogSteps(_Parsed(text, expr, _CODEC.encode(expr), text), expr, self.times, self.options)

    def combined(
        self, expr: ast.MetricExpr, given: Sequence[Block], steps: Ints, check: Check, max_samples: int
    ) -> Evaluated:
        """The value of an expression that reads nothing but what it is given."""
        options = dataclasses.replace(self.options, max_samples=max_samples)
        ranged = self.times.step_ms > 0
        return _evaluate(expr, self.steps_ns(steps), NoSegments(), check, options, given, ranged=ranged)


class LogValue(_MetricPlan, ValuePlan):
    """An instant query whose value is a scalar, and which therefore reads nothing."""

    def value(self, source: SeriesSource, check: Check) -> QueryResult:
        options = self.options
        found = _evaluate(self.expr, self.steps_ns(self.times.steps()), NoSegments(), check, options)
        return QueryResult(ScalarResult(self.times.start_ms, float(found.block.values[0, 0])), [], [], found.samples)


def _evaluate(
    expr: ast.MetricExpr,
    steps_ns: Ints,
    source: RowSource,
    check: Check,
    options: EngineOptions,
    given: Sequence[Block] = (),
    *,
    ranged: bool = False,
) -> Evaluated:
    evaluator = Evaluator(ScannedEntries(source, check), check, options, given, ranged=ranged)
    # Division by zero and NaN are values here, not mistakes.
    with np.errstate(all="ignore"):
        block = evaluator.block(expr, steps_ns).pruned()
    return Evaluated(block, Annotations("", LOGQL), evaluator.evaluation.samples)
