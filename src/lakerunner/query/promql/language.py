"""PromQL as a language of the lake: text to a plan, and parts of the plan to values."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from lakerunner.model.errors import BadInput, Bug
from lakerunner.query.language import Check, Evaluated, Plan, Source, StepPlan, Stream, ValuePlan, step_stream
from lakerunner.query.plan.leaf import Leaf, extent_of
from lakerunner.query.promql import ast, durations
from lakerunner.query.promql.ast import Call, Expr, MatrixSelector, Subquery, ValueType, unwrapped, walk
from lakerunner.query.promql.check import check
from lakerunner.query.promql.eval.evaluator import Evaluator, raw_range
from lakerunner.query.promql.eval.info import info_matchers
from lakerunner.query.promql.lexer import LANGUAGE as PROMQL
from lakerunner.query.promql.parser import parse
from lakerunner.query.promql.printer import print_expr
from lakerunner.query.promql.splittable import is_splittable
from lakerunner.query.promql.warm import shares
from lakerunner.query.series.batch import SeriesBatch, SeriesSource
from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.series.reading import RAW, Reading
from lakerunner.query.series.results import QueryResult, ScalarResult, StringResult, Value
from lakerunner.query.series.times import QueryTimes, check_steps
from lakerunner.query.syntax.tree import TreeCodec, dumps, loads
from lakerunner.query.vectors.annotations import Annotations
from lakerunner.query.vectors.context import EngineOptions, Evaluation
from lakerunner.query.vectors.matching import Cardinality, Matching
from lakerunner.runtime.kernels import Share

#: Functions of histograms that look at no time.
_OF_HISTOGRAMS = frozenset({"histogram_sum", "histogram_avg", "histogram_quantile", "histogram_distinct"})
#: Texts up to this length stay parsed: dashboards ask the same again and again.
_CACHED_TEXT = 4_096
_CODEC = TreeCodec(
    (
        *(ast.Number, ast.String, ast.VectorSelector, ast.MatrixSelector, ast.Subquery, ast.Call, ast.Aggregate),
        *(ast.Binary, ast.Unary, ast.Paren, ast.AtEdge, Matching, Cardinality, Matcher, MatchKind),
        *(durations.DurationNumber, durations.DurationOp, durations.DurationCall, durations.DurationParen),
    )
)


class PromQl:
    name = "promql"

    def compile(self, text: str, times: QueryTimes, options: EngineOptions) -> Plan:
        parsed = _parsed(text) if len(text) <= _CACHED_TEXT else _Parsed.of(text)
        check_steps(times, options.max_steps)
        if times.step_ms and parsed.kind not in (ValueType.SCALAR, ValueType.VECTOR):
            raise BadInput(
                f'cannot run a range query: invalid expression type "{parsed.kind}" for range query, '
                "must be Scalar or instant Vector"
            )
        kind = PromQlSteps if times.step_ms or parsed.kind is ValueType.VECTOR else PromQlValue
        return kind(text, parsed, times, options)

    def evaluate(self, payload: bytes, source: Source, check: Check) -> Stream:
        document = loads(payload)
        try:
            times, options = QueryTimes(*document["times"]), EngineOptions(**document["options"])
            first_ms, step_ms, count = map(int, document["steps"])
        except (ValueError, KeyError, TypeError) as reason:
            raise BadInput(f"cannot read an encoded query: {reason!r}") from None
        steps = first_ms + step_ms * np.arange(count, dtype=np.int64)
        # Positions travel with the tree; the side that has the text turns them into lines and columns.
        expr = _CODEC.decode(document["expr"])
        return step_stream(_evaluate(expr, steps, Evaluation(source, times, options, Annotations("", PROMQL), check)))

    def kernels(self) -> Sequence[Share]:
        return shares(self.compile)


LANGUAGE = PromQl()


@dataclass(frozen=True, slots=True)
class _Parsed:
    """What is known of a text whatever its times are."""

    expr: Expr
    #: The expression as workers get it.
    encoded: str
    kind: ValueType
    canonical: str
    splittable: bool
    #: The matchers of the info series that each `info()` may read. Which of them depends on what it finds.
    info: tuple[tuple[Matcher, ...], ...]
    #: Whether all that it reads moves with the steps.
    moves: bool

    @classmethod
    def of(cls, text: str) -> _Parsed:
        expr = parse(text)
        calls = [node for node in walk(expr) if isinstance(node, Call) and node.name == "info"]
        info = tuple(info_matchers(call) for call in calls)
        kind, canonical = check(text, expr), print_expr(expr)
        return cls(expr, _CODEC.encode(expr), kind, canonical, is_splittable(expr), info, _moves(expr))


_parsed = lru_cache(maxsize=512)(_Parsed.of)


def _moves(expr: Expr) -> bool:
    """Whether the expression is nothing but aggregations and functions of ranges whose lengths are plain numbers."""
    for node in walk(expr):
        match node:
            case ast.Number() | ast.Aggregate():
                pass
            case ast.Call(name=name) if name.endswith("_over_time") or name in _OF_HISTOGRAMS:
                pass
            case ast.MatrixSelector(range=durations.DurationNumber()):
                pass
            case ast.VectorSelector(offset=None | durations.DurationNumber(), at=None, anchored=False, smoothed=False):
                pass
            case _:
                return False
    return True


class _PromQlPlan(Plan):
    language: ClassVar[str] = PromQl.name

    def __init__(self, text: str, parsed: _Parsed, times: QueryTimes, options: EngineOptions) -> None:
        self.text = text
        self.expr, self._encoded = parsed.expr, parsed.encoded
        self.canonical = parsed.canonical
        self.times, self.options = times, options
        self._steps = times.steps()
        self._own_leaves = self._recorded(self._steps)
        self.leaves = (*self._own_leaves, *self._info_leaves(parsed))

    def _info_leaves(self, parsed: _Parsed) -> tuple[Leaf, ...]:
        """Where `info()` may look: at the query's own times, or at those of its argument."""
        own = Leaf.of_samples((), self.times.start_ms - self.options.lookback_ms, self.times.end_ms)
        extent = extent_of((own, *self._own_leaves))
        assert extent is not None
        return tuple(
            dataclasses.replace(own, matchers=matchers, start_ns=extent.start_ns, end_ns=extent.end_ns)
            for matchers in parsed.info
        )

    def _recorded(self, steps: Ints) -> tuple[Leaf, ...]:
        """The selects that evaluating the steps makes, found by evaluating over nothing.

        The same code finds the times here and at evaluation, so the two cannot differ.
        """
        recorder = _Recorder()
        evaluation = Evaluation(recorder, self.times, self.options, Annotations("", PROMQL), planning=True)
        evaluator = Evaluator(evaluation)
        if isinstance(unwrapped(self.expr), MatrixSelector | Subquery):
            evaluator.range_vector(self.expr, steps, "")
        else:
            evaluator.value(self.expr, steps)
        return tuple(recorder.leaves)


class PromQlSteps(_PromQlPlan, StepPlan):
    """A scalar or a vector at every step; an instant query has one."""

    def __init__(self, text: str, parsed: _Parsed, times: QueryTimes, options: EngineOptions) -> None:
        super().__init__(text, parsed, times, options)
        self.pushable, self.splittable = not parsed.info, parsed.splittable
        self._moves = parsed.moves

    def moved(self, times: QueryTimes) -> PromQlSteps | None:
        """The plan at times that are later or earlier by whole steps; None if these are others, or it must be compiled.

        The edges of its windows stay multiples of what they were, so that it may read the same tiers.
        """
        by_ms = times.start_ms - self.times.start_ms
        if not by_ms:
            return self if times == self.times else None
        if not self._moves or times.step_ms != self.times.step_ms or times.range_ms != self.times.range_ms:
            return None
        if len(self._steps) < 2 or by_ms % times.step_ms:
            return None
        moved = copy.copy(self)
        moved.times, moved._steps = times, self._steps + by_ms
        moved.leaves = moved._own_leaves = tuple(leaf.moved(by_ms) for leaf in self._own_leaves)
        return moved

    def leaves_at(self, steps: Ints) -> tuple[Leaf, ...]:
        return self._own_leaves if len(steps) == len(self._steps) else self._recorded(steps)

    def payload(self, steps: Ints, max_samples: int) -> bytes:
        options = {each.name: getattr(self.options, each.name) for each in dataclasses.fields(EngineOptions)}
        times = self.times
        return dumps(
            {
                "expr": self._encoded,
                "times": [times.start_ms, times.end_ms, times.step_ms],
                "steps": [int(steps[0]), times.step_ms, len(steps)],
                "options": options | {"max_samples": max_samples},
            }
        )

    def evaluate(self, steps: Ints, source: SeriesSource, check: Check, max_samples: int) -> Evaluated:
        options = dataclasses.replace(self.options, max_samples=max_samples)
        return _evaluate(
            self.expr, steps, Evaluation(source, self.times, options, Annotations(self.text, PROMQL), check)
        )

    def notes_of(self, document: Mapping[str, Any]) -> Annotations:
        return Annotations.from_json(self.text, document)


class PromQlValue(_PromQlPlan, ValuePlan):
    """An instant query whose value is a scalar, a string or a range vector."""

    def value(self, source: SeriesSource, check: Check) -> QueryResult:
        evaluation = Evaluation(source, self.times, self.options, Annotations(self.text, PROMQL), check)
        value: Value
        with np.errstate(all="ignore"):
            evaluator = Evaluator(evaluation)
            if isinstance(unwrapped(self.expr), MatrixSelector | Subquery):
                value = raw_range(evaluator, unwrapped(self.expr), self._steps)
            else:
                found = evaluator.value(self.expr, self._steps)
                if isinstance(found, str):
                    value = StringResult(self.times.start_ms, found)
                elif isinstance(found, np.ndarray):
                    value = ScalarResult(self.times.start_ms, float(found[0]))
                else:
                    raise Bug("cannot give a vector as a single value")
        notes = evaluation.notes
        return QueryResult(value, notes.warnings(), notes.infos(), evaluation.samples)


def _evaluate(expr: Expr, steps: Ints, evaluation: Evaluation) -> Evaluated:
    # Division by zero and NaN are values here, not mistakes.
    with np.errstate(all="ignore"):
        block = Evaluator(evaluation).block(expr, steps).pruned().finished()
    return Evaluated(block, evaluation.notes, evaluation.samples)


@dataclass(slots=True)
class _Recorder:
    """A source that has nothing, and records what it is asked for."""

    leaves: list[Leaf] = field(default_factory=list)

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int, reading: Reading = RAW) -> SeriesBatch:
        self.leaves.append(Leaf.of_samples(matchers, start_ms, end_ms, reading))
        return SeriesBatch.empty()
