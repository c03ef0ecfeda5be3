"""A range query in time groups: each is evaluated and given out as soon as it is complete, in order of time.

The value at a step depends on that step, on the query's own times and on samples; never on another step. So the groups
together are the whole answer, and the first of them is there after a fraction of the work. What does look at other
steps is evaluated whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lakerunner.model.labels import LabelSet
from lakerunner.query.extent import reach_ms
from lakerunner.query.promql.annotations import Annotations
from lakerunner.query.promql.ast import Expr
from lakerunner.query.promql.durations import QueryContext
from lakerunner.query.promql.engine import matrix_of
from lakerunner.query.promql.eval.context import EngineOptions, Evaluation
from lakerunner.query.promql.eval.evaluator import Evaluator
from lakerunner.query.promql.histogram import Ints
from lakerunner.query.promql.parser import parse
from lakerunner.query.promql.results import MatrixResult, QueryResult, Series
from lakerunner.query.promql.source import SeriesSource
from lakerunner.query.read_ahead import ReadAhead
from lakerunner.query.wholeness import must_be_whole

#: Groups of fewer steps cost more in turning round than they gain.
_LEAST_STEPS = 30
#: More groups than this bring the first one no sooner for anybody to notice.
_MOST_GROUPS = 16
#: A group reads beyond its own time by its reach; it is at least so many times wider, so that little is read twice.
_REACHES = 4


@dataclass(frozen=True, slots=True)
class Group:
    """One part of the answer: the steps from `start_ms` to `end_ms`, both included."""

    number: int
    groups: int
    start_ms: int
    end_ms: int
    matrix: MatrixResult


class EvalFlow:
    """One range query, evaluated group by group. `from_ms` leaves out the steps before it."""

    def __init__(
        self,
        source: SeriesSource,
        text: str,
        query: QueryContext,
        options: EngineOptions,
        cancelled: Callable[[], None] | None = None,
        from_ms: int | None = None,
    ) -> None:
        self._expr = parse(text)
        self._groups = cut(self._expr, query, options.lookback_ms, from_ms)
        self._source = ReadAhead(source, self._groups)
        self._evaluation = Evaluation(self._source, query, options, Annotations(text), cancelled)
        self._from_ms = query.start_ms if from_ms is None else from_ms

    @property
    def reads_ahead_used(self) -> int:
        return self._source.hits

    @property
    def samples(self) -> int:
        return self._evaluation.samples

    def warnings(self) -> list[str]:
        return self._evaluation.notes.warnings()

    def infos(self) -> list[str]:
        return self._evaluation.notes.infos()

    def __iter__(self) -> Iterator[Group]:
        try:
            for number, times in enumerate(self._groups):
                block = Evaluator(self._evaluation).block(self._expr, times)
                self._source.ended(number)
                wanted = times >= self._from_ms
                matrix = _from(matrix_of(block.finished(), times), self._from_ms)
                shown = times[wanted]
                if len(shown):
                    yield Group(number, len(self._groups), int(shown[0]), int(shown[-1]), matrix)
        finally:
            self._source.close()


def cut(expr: Expr, query: QueryContext, lookback_ms: int, from_ms: int | None = None) -> list[Ints]:
    """The steps of the query, in groups."""
    steps = (query.end_ms - query.start_ms) // query.step_ms + 1
    times = query.start_ms + query.step_ms * np.arange(steps, dtype=np.int64)
    if must_be_whole(expr):
        return [times]
    if from_ms is not None:
        times = times[times >= from_ms]
    if not len(times):
        return []
    reach_steps = -(-_REACHES * reach_ms(expr, query, lookback_ms) // query.step_ms)
    width = max(_LEAST_STEPS, reach_steps, -(-len(times) // _MOST_GROUPS))
    return [times[start : start + width] for start in range(0, len(times), width)]


def joined(flow: EvalFlow, matrices: Sequence[MatrixResult]) -> QueryResult:
    """The groups as one result."""
    parts: dict[LabelSet, list[Series]] = {}
    for matrix in matrices:
        for series in matrix:
            parts.setdefault(series.labels, []).append(series)
    whole = [_one(labels, parts[labels]) for labels in sorted(parts, key=lambda labels: labels.pairs)]
    return QueryResult(MatrixResult(whole), flow.warnings(), flow.infos(), flow.samples)


def _one(labels: LabelSet, parts: Sequence[Series]) -> Series:
    if len(parts) == 1:
        return parts[0]
    return Series(
        labels,
        np.concatenate([part.timestamps_ms for part in parts]),
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.histogram_timestamps_ms for part in parts]),
        [histogram for part in parts for histogram in part.histograms],
    )


def _from(matrix: MatrixResult, from_ms: int) -> MatrixResult:
    """Without the steps before a time, which only an evaluation as a whole has."""
    kept = []
    for series in matrix:
        begin = int(np.searchsorted(series.timestamps_ms, from_ms))
        held = int(np.searchsorted(series.histogram_timestamps_ms, from_ms))
        if begin == 0 and held == 0:
            kept.append(series)
        elif begin < len(series.timestamps_ms) or held < len(series.histograms):
            kept.append(
                Series(
                    series.labels,
                    series.timestamps_ms[begin:],
                    series.values[begin:],
                    series.histogram_timestamps_ms[held:],
                    series.histograms[held:],
                )
            )
    return MatrixResult(kept)
