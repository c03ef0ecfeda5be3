"""Some steps of a query, evaluated: what one worker, or one thread, does of it.

The value at a step depends on that step, on the query's own times and on samples; never on another step (those few
expressions for which it does are never cut: `query.wholeness`). So parts can be evaluated anywhere, each to the last
bit as the whole query would have been.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from lakerunner.query.promql.eval.evaluator import Evaluator
from lakerunner.query.promql.lexer import LANGUAGE
from lakerunner.query.promql.parser import parse
from lakerunner.query.series.batch import SeriesSource
from lakerunner.query.series.block import Block
from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.vectors.annotations import Annotations
from lakerunner.query.vectors.context import EngineOptions, Evaluation

Cancelled = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Part:
    """An expression whose value is a scalar or a vector, at some of the query's steps."""

    text: str
    #: The times of the whole query: `start()`, `@ end()` and `step()` mean those.
    query: QueryTimes
    times: Ints
    options: EngineOptions


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The value of a part: only series that have something, their names dropped where they must be."""

    block: Block
    notes: Annotations
    #: Samples read and cells computed.
    samples: int


@runtime_checkable
class Evaluating(Protocol):
    """A source that can have a part evaluated where its samples are, so that these need not travel."""

    def evaluate(self, part: Part) -> Evaluated | None:
        """None: not this part, or not now; then it is to be evaluated here."""
        ...


def evaluated(source: SeriesSource, part: Part, cancelled: Cancelled | None = None) -> Evaluated:
    """The part's value: made where the samples are if the source can do that, else here."""
    if isinstance(source, Evaluating):
        found = source.evaluate(part)
        if found is not None:
            return found
    return evaluated_here(source, part, cancelled)


def evaluated_here(source: SeriesSource, part: Part, cancelled: Cancelled | None = None) -> Evaluated:
    evaluation = Evaluation(source, part.query, part.options, Annotations(part.text, LANGUAGE), cancelled)
    # Division by zero and NaN are values here, not mistakes.
    with np.errstate(all="ignore"):
        block = Evaluator(evaluation).block(parse(part.text), part.times).pruned().finished()
    return Evaluated(block, evaluation.notes, evaluation.samples)
