"""What a query will read, before it reads: the selects that its evaluation makes, found by evaluating over nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from lakerunner.query.promql.ast import MatrixSelector, Subquery, unwrapped
from lakerunner.query.promql.eval.evaluator import Evaluator
from lakerunner.query.promql.lexer import LANGUAGE
from lakerunner.query.promql.parser import parse
from lakerunner.query.series.batch import SeriesBatch
from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.query.series.matchers import Matcher
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.vectors.annotations import Annotations
from lakerunner.query.vectors.context import EngineOptions, Evaluation


@dataclass(frozen=True, slots=True)
class Leaf:
    """One select: all samples from `start_ms` to `end_ms`, both included, of the series that the matchers accept."""

    matchers: tuple[Matcher, ...]
    start_ms: int
    end_ms: int


@dataclass(slots=True)
class _Recorder:
    """A source that has nothing, and remembers what it was asked for."""

    leaves: list[Leaf] = field(default_factory=list)

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> SeriesBatch:
        self.leaves.append(Leaf(tuple(matchers), start_ms, end_ms))
        return SeriesBatch.empty()


def leaves(
    text: str, start_ms: int, end_ms: int, step_ms: int, options: EngineOptions | None = None
) -> tuple[Leaf, ...]:
    """The selects of a query, in the order in which they will be made; for an instant query, the step is 0.

    The same code finds the times here and at evaluation, so the two cannot differ. The one select that depends on
    what others found, the info series of `info()`, is not among them.

    >>> [(leaf.start_ms, leaf.end_ms) for leaf in leaves("rate(m[5m] offset 1m) + n", 600_000, 660_000, 60_000)]
    [(240001, 600000), (300001, 660000)]
    """
    count = (end_ms - start_ms) // step_ms + 1 if step_ms else 1
    times = start_ms + step_ms * np.arange(count, dtype=np.int64)
    return leaves_at(text, QueryTimes(start_ms, end_ms, step_ms), times, options)


def leaves_at(text: str, query: QueryTimes, times: Ints, options: EngineOptions | None = None) -> tuple[Leaf, ...]:
    """The selects of some of a query's steps."""
    expr = parse(text)
    recorder = _Recorder()
    evaluation = Evaluation(recorder, query, options or EngineOptions(), Annotations(text, LANGUAGE), planning=True)
    evaluator = Evaluator(evaluation)
    if isinstance(unwrapped(expr), MatrixSelector | Subquery):
        evaluator.range_vector(expr, times, "")
    else:
        evaluator.value(expr, times)
    return tuple(recorder.leaves)
