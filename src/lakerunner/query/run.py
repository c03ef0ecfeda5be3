"""Running a plan: its groups of steps are evaluated at the same time and returned in order, each when it is complete.

The groups together are the whole answer, and the first of them is there after a fraction of the work. A plan whose
steps depend on each other is one group.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeGuard

from lakerunner.model.errors import Bug, LimitHit, Unavailable
from lakerunner.query.language import Check, Evaluated, Plan, StepPlan, ValuePlan
from lakerunner.query.series.batch import SeriesSource
from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.query.series.results import MatrixResult, QueryResult, joined_steps, matrix_of, since, vector_of
from lakerunner.query.vectors.annotations import Annotations

#: More groups than this bring the first one no sooner for anybody to notice.
STREAMED_GROUPS = 16
#: Groups under way at once where there is one worker or none: the next is read while one is computed.
_LEAST_AT_ONCE = 2


class PushingSource(SeriesSource, Protocol):
    """A source that can have steps evaluated where its segments are."""

    #: How many parts of a query keep its workers busy.
    parallelism: int
    #: Whether the last run of the query read so little that cutting it up costs more than it saves.
    whole: bool

    def places(self, plan: StepPlan, groups: Sequence[Ints]) -> list[str | None]:
        """Where to evaluate each of the groups, so that all workers have equally many."""
        ...

    def push_down(self, plan: StepPlan, steps: Ints, max_samples: int, place: str | None = None) -> Evaluated | None:
        """The value of the steps. None: not these, or not now; then the caller evaluates them."""
        ...


def _pushes(source: SeriesSource) -> TypeGuard[PushingSource]:
    # By its attribute: checking a whole protocol takes longer than a small query's lookup.
    return hasattr(source, "push_down")


@dataclass(frozen=True, slots=True)
class Group:
    """One part of the answer: the steps from `start_ms` to `end_ms`, both included."""

    number: int
    groups: int
    start_ms: int
    end_ms: int
    matrix: MatrixResult


class StepRun:
    """One range query, evaluated group by group. Steps before `from_ms` are left out."""

    def __init__(
        self,
        plan: StepPlan,
        source: SeriesSource,
        check: Check,
        from_ms: int | None = None,
        most_groups: int | None = None,
    ) -> None:
        self._at_once = max(_LEAST_AT_ONCE, source.parallelism if _pushes(source) else 0)
        if most_groups is None:
            most_groups = 1 if _pushes(source) and source.whole else self._at_once
        self._plan = plan
        self._source = source
        self._cancelled = check
        self._from_ms = plan.times.start_ms if from_ms is None else from_ms
        self._groups = plan.groups(most_groups, from_ms)
        self._abandoned = False
        self._notes: Annotations | None = None
        self.samples = 0

    def warnings(self) -> list[str]:
        return [] if self._notes is None else self._notes.warnings()

    def infos(self) -> list[str]:
        return [] if self._notes is None else self._notes.infos()

    def __iter__(self) -> Iterator[Group]:
        for number, (steps, found) in enumerate(zip(self._groups, self._in_order(), strict=True)):
            if self._notes is None:
                self._notes = found.notes
            else:
                self._notes.absorb(found.notes)
            self.samples += found.samples
            self._check_samples()
            shown = steps[steps >= self._from_ms]
            if len(shown):
                matrix = since(matrix_of(found.block, steps), self._from_ms)
                yield Group(number, len(self._groups), int(shown[0]), int(shown[-1]), matrix)

    def _in_order(self) -> Iterator[Evaluated]:
        """The value of each group. The groups after it are evaluated while the caller handles it."""
        if len(self._groups) == 1:
            yield self._evaluate(self._groups[0])
            return
        places = self._places()
        waiting = iter(zip(self._groups, places, strict=True))
        under_way: deque[Future[Evaluated]] = deque()
        pool = ThreadPoolExecutor(self._at_once, thread_name_prefix="group")
        try:
            while True:
                while len(under_way) <= self._at_once and (part := next(waiting, None)) is not None:
                    under_way.append(pool.submit(self._evaluate, *part))
                if not under_way:
                    return
                yield under_way.popleft().result()
        finally:
            # Not waited for: what is under way ends at its next check.
            self._abandoned = True
            pool.shutdown(wait=False, cancel_futures=True)

    def _check_samples(self) -> None:
        """Each group keeps the limit for itself, and groups under way do not know of each other."""
        limit = self._plan.options.max_samples
        if self.samples > limit:
            raise LimitHit(
                f"cannot answer the query: it needs more than {limit:,} samples",
                hint="narrow the selectors, shorten the range or widen the step",
            )

    def _places(self) -> Sequence[str | None]:
        if self._plan.pushable and _pushes(self._source):
            return self._source.places(self._plan, self._groups)
        return [None] * len(self._groups)

    def _evaluate(self, steps: Ints, place: str | None = None) -> Evaluated:
        self._check_samples()
        left = self._plan.options.max_samples - self.samples
        return evaluated(self._plan, steps, self._source, self._check, left, place)

    def _check(self) -> None:
        if self._abandoned:
            raise Unavailable("cannot go on with the query: its reader has gone")
        self._cancelled()


def run(plan: Plan, source: SeriesSource, check: Check) -> QueryResult:
    """The whole answer of a plan that has a value, its steps in as many groups as keep the workers busy."""
    if isinstance(plan, ValuePlan):
        return plan.value(source, check)
    if not isinstance(plan, StepPlan):
        raise Bug(f"cannot run a {type(plan).__name__} for a value")
    if plan.times.step_ms:
        steps = StepRun(plan, source, check)
        return joined(steps, [group.matrix for group in steps])
    found = evaluated(plan, plan.times.steps(), source, check, plan.options.max_samples)
    value = vector_of(found.block, plan.times.start_ms)
    return QueryResult(value, found.notes.warnings(), found.notes.infos(), found.samples)


def joined(steps: StepRun, matrices: list[MatrixResult]) -> QueryResult:
    """The groups as one result."""
    parts = [matrix.steps for matrix in matrices if matrix.steps is not None]
    return QueryResult(MatrixResult(steps=joined_steps(parts)), steps.warnings(), steps.infos(), steps.samples)


def evaluated(
    plan: StepPlan, steps: Ints, source: SeriesSource, check: Check, max_samples: int, place: str | None = None
) -> Evaluated:
    """Where the segments are if the source can do that, else here."""
    if plan.pushable and _pushes(source):
        found = source.push_down(plan, steps, max_samples, place)
        if found is not None:
            return found
    return plan.evaluate(steps, source, check, max_samples)
