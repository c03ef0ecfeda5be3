"""A range query in time groups: evaluated at the same time, given out in order, each as soon as it is complete.

The groups together are the whole answer, and the first of them is there after a fraction of the work. What looks at
several steps at once is evaluated whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from lakerunner.model.errors import LimitHit, Unavailable
from lakerunner.query.promql.ast import Expr
from lakerunner.query.promql.engine import check_ranged, matrix_of
from lakerunner.query.promql.extent import reach_ms
from lakerunner.query.promql.lexer import LANGUAGE
from lakerunner.query.promql.parser import parse
from lakerunner.query.promql.part import Cancelled, Evaluated, Part, evaluated
from lakerunner.query.promql.splittable import must_be_whole
from lakerunner.query.series.batch import SeriesSource
from lakerunner.query.series.histograms.grid import HistogramGrid
from lakerunner.query.series.histograms.grid import joined as joined_grids
from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.query.series.results import MatrixResult, QueryResult, StepMatrix
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.vectors.annotations import Annotations
from lakerunner.query.vectors.context import EngineOptions

#: Groups of fewer steps cost more in turning round than they gain.
_LEAST_STEPS = 30
#: More groups than this bring the first one no sooner for anybody to notice.
STREAMED_GROUPS = 16
#: A group reads beyond its own time by its reach; it is at least so many times wider, so that little is read twice.
_REACHES = 4
#: Groups under way at once: enough to keep workers busy while one is sent, few enough to hold in memory.
_AT_ONCE = 2


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
        query: QueryTimes,
        options: EngineOptions,
        cancelled: Cancelled | None = None,
        from_ms: int | None = None,
        most_groups: int = STREAMED_GROUPS,
    ) -> None:
        expr = parse(text)
        check_ranged(text, expr)
        self._groups = cut(expr, query, options.lookback_ms, from_ms, most_groups)
        self._source = source
        self._part = Part(text, query, np.zeros(0, np.int64), options)
        self._cancelled = cancelled
        self._from_ms = query.start_ms if from_ms is None else from_ms
        self._left = False
        self._notes = Annotations(text, LANGUAGE)
        self.samples = 0

    def warnings(self) -> list[str]:
        return self._notes.warnings()

    def infos(self) -> list[str]:
        return self._notes.infos()

    def __iter__(self) -> Iterator[Group]:
        for number, (times, found) in enumerate(zip(self._groups, self._in_order(), strict=True)):
            self._notes.absorb(found.notes)
            self.samples += found.samples
            self._check_samples()
            shown = times[times >= self._from_ms]
            if len(shown):
                matrix = _from(matrix_of(found.block, times), self._from_ms)
                yield Group(number, len(self._groups), int(shown[0]), int(shown[-1]), matrix)

    def _in_order(self) -> Iterator[Evaluated]:
        """The value of each group. Those after it are under way while whoever takes it is busy with it."""
        if len(self._groups) == 1:
            yield self._evaluated(self._groups[0])
            return
        waiting = iter(self._groups)
        under_way: deque[Future[Evaluated]] = deque()
        pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="group")
        try:
            while True:
                while len(under_way) <= _AT_ONCE and (times := next(waiting, None)) is not None:
                    under_way.append(pool.submit(self._evaluated, times))
                if not under_way:
                    return
                yield under_way.popleft().result()
        finally:
            # Not waited for: what is under way ends at its next look.
            self._left = True
            pool.shutdown(wait=False, cancel_futures=True)

    def _check_samples(self) -> None:
        """Each group keeps the limit for itself, and those under way at once do not know of each other."""
        limit = self._part.options.max_samples
        if self.samples > limit:
            raise LimitHit(
                f"cannot answer the query: it needs more than {limit:,} samples",
                hint="narrow the selectors, shorten the range or widen the step",
            )

    def _evaluated(self, times: Ints) -> Evaluated:
        self._check_samples()
        options = self._part.options
        left = replace(options, max_samples=options.max_samples - self.samples)
        return evaluated(self._source, replace(self._part, times=times, options=left), self._check)

    def _check(self) -> None:
        if self._left:
            raise Unavailable("cannot go on with the query: nobody takes its answer")
        if self._cancelled is not None:
            self._cancelled()


def cut(
    expr: Expr, query: QueryTimes, lookback_ms: int, from_ms: int | None = None, most_groups: int = STREAMED_GROUPS
) -> list[Ints]:
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
    width = max(_LEAST_STEPS, reach_steps, -(-len(times) // most_groups))
    return [times[start : start + width] for start in range(0, len(times), width)]


def whole(
    source: SeriesSource, text: str, query: QueryTimes, options: EngineOptions, cancelled: Cancelled | None = None
) -> QueryResult:
    """The answer at once, in as few groups as keep the workers busy."""
    flow = EvalFlow(source, text, query, options, cancelled, most_groups=_AT_ONCE)
    return joined(flow, [group.matrix for group in flow])


def joined(flow: EvalFlow, matrices: Sequence[MatrixResult]) -> QueryResult:
    """The groups as one result."""
    parts = [matrix.steps for matrix in matrices if matrix.steps is not None]
    return QueryResult(MatrixResult(steps=_one(parts)), flow.warnings(), flow.infos(), flow.samples)


def _one(parts: Sequence[StepMatrix]) -> StepMatrix:
    """Step matrices of one query beside each other. Series that a part lacks have nothing in it."""
    if len(parts) == 1:
        return parts[0]
    labels = parts[0].labels if parts else []
    same = all(part.labels == labels for part in parts)
    if not same:
        labels = sorted({one for part in parts for one in part.labels}, key=lambda one: one.pairs)
    place = {} if same else {one: row for row, one in enumerate(labels)}
    steps = [len(part.times_ms) for part in parts]
    shape = len(labels), sum(steps)
    values, valid = np.zeros(shape), np.zeros(shape, dtype=bool)
    histograms = hmask = None
    grids: Sequence[HistogramGrid | None] = [None] * len(parts)
    if any(part.hmask is not None for part in parts):
        shapes = [(len(part.labels), len(part.times_ms)) for part in parts]
        grids = found = joined_grids([part.histograms for part in parts], shapes)
        histograms = HistogramGrid(found[0].column, np.full(shape, -1, dtype=np.int64))
        hmask = np.zeros(shape, dtype=bool)
    at = 0
    for part, grid, width in zip(parts, grids, steps, strict=True):
        rows = slice(None) if same else np.array([place[one] for one in part.labels], dtype=np.int64)
        values[rows, at : at + width] = part.values
        valid[rows, at : at + width] = part.valid
        if histograms is not None and hmask is not None and grid is not None and part.hmask is not None:
            hmask[rows, at : at + width] = part.hmask
            histograms.row[rows, at : at + width] = grid.row
        at += width
    times = np.concatenate([part.times_ms for part in parts]) if parts else np.zeros(0, dtype=np.int64)
    return StepMatrix(labels, times, values, valid, histograms, hmask)


def _from(matrix: MatrixResult, from_ms: int) -> MatrixResult:
    """Without the steps before a time, which only an evaluation as a whole has."""
    steps = matrix.steps
    assert steps is not None
    begin = int(np.searchsorted(steps.times_ms, from_ms))
    if begin == 0:
        return matrix
    valid = steps.valid[:, begin:]
    hmask = None if steps.hmask is None else steps.hmask[:, begin:]
    rows = np.flatnonzero((valid if hmask is None else valid | hmask).any(axis=1))
    return MatrixResult(
        steps=StepMatrix(
            [steps.labels[row] for row in rows.tolist()],
            steps.times_ms[begin:],
            steps.values[rows, begin:],
            valid[rows],
            None if steps.histograms is None else steps.histograms[rows, begin:],
            None if hmask is None else hmask[rows],
        )
    )
