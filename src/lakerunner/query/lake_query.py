"""One query's view of the lake: it plans, fans out, merges, pushes steps down, and keeps account."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa

from lakerunner.model.errors import Unavailable
from lakerunner.model.segment import Segment
from lakerunner.model.signals.metrics import METRICS
from lakerunner.query.fanout.answer import EvaluateAnswer, SegmentAnswer, Workers
from lakerunner.query.fanout.held_filters import HeldFilters
from lakerunner.query.fanout.held_rows import HeldRows
from lakerunner.query.fanout.protocol import EvaluateRequest, Fragment, Kind, Read, ScanRequest, SegmentObjects
from lakerunner.query.language import Evaluated, NoSegments, RowPlan, StepPlan, received_steps
from lakerunner.query.limits import CostMeter, QueryLimits, Size
from lakerunner.query.plan.coverage import CoverageWant, Gap
from lakerunner.query.plan.leaf import Leaf, LeafPlan
from lakerunner.query.plan.planner import Planner
from lakerunner.query.scan.rows.answer_rows import answer_schema
from lakerunner.query.scan.rows.scan import LATE_ROWS, merged_rows
from lakerunner.query.scan.rows.unify import conform
from lakerunner.query.scan.samples.merge import merge
from lakerunner.query.scan.samples.runs import Samples
from lakerunner.query.series.batch import SeriesBatch
from lakerunner.query.series.block import Block
from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.query.series.matchers import Matcher
from lakerunner.query.series.reading import RAW, Reading
from lakerunner.query.stats import QueryStats

T = TypeVar("T")
#: Below this many samples, a second worker request costs more than it saves.
SMALL_SAMPLES = 200_000
#: Of fewer rows, counting them on several workers costs more than it saves.
_SHARED_ROWS = 500_000
#: Rows of tiers are joined in memory once (`fanout/joined_tiers.py`); groups of steps would each copy their part.
_SMALL_TIER_ROWS = 1_000_000


class LakeQuery:
    """The `Source` of one query of one org. `stats` says at any time what was read and missed.

    Threads may use it at once: the planner, the stats and the meter each have a lock.
    """

    def __init__(
        self,
        org_id: uuid.UUID,
        planner: Planner,
        workers: Workers,
        limits: QueryLimits | None = None,
        cancelled: Callable[[], None] = lambda: None,
        *,
        size: Size = Size.LARGE,
        filters: HeldFilters | None = None,
        held: HeldRows | None = None,
    ) -> None:
        self.org_id = org_id
        self.size = size
        self._filters = filters
        self._held = held
        self.query_id = uuid.uuid4()
        self.stats = QueryStats()
        self.limits = limits or QueryLimits()
        self._planner = planner
        self._workers = workers
        self._cancelled = cancelled
        self._meter = CostMeter(self.limits)
        self._deadline_s = time.monotonic() + self.limits.timeout_s

    @property
    def small(self) -> bool:
        return self.size is Size.SMALL

    @property
    def whole(self) -> bool:
        return self.size is not Size.LARGE

    @property
    def parallelism(self) -> int:
        return self._workers.count

    def prepare(self, leaves: Sequence[Leaf], coverage: Sequence[CoverageWant] = ()) -> str | None:
        """Look up at once what all leaves need, so that they see one state of the lake.

        Returns a fingerprint of that state; None where the index does not answer, so that no answer may be cached.
        """
        self.look_up(leaves, coverage)
        return self._planner.fingerprint()

    def look_up(self, leaves: Sequence[Leaf], coverage: Sequence[CoverageWant] = ()) -> None:
        """The same, for answers that are not cached."""
        if leaves:
            self._timed("plan", lambda: self._planner.prepare(leaves, coverage))
            self.expect(leaves)

    def expect(self, leaves: Sequence[Leaf]) -> None:
        """Take the query as small if these leaves, of those that were looked up, are all that it reads and are few."""
        if leaves and self.size is not Size.SMALL and self._reads_few(leaves):
            self.size = Size.SMALL

    def again(self, timeout_s: float, cancelled: Callable[[], None]) -> LakeQuery:
        """A source over the same segments, with an account and a deadline of its own."""
        return LakeQuery(
            self.org_id,
            self._planner,
            self._workers,
            replace(self.limits, timeout_s=timeout_s),
            cancelled,
            filters=self._filters,
            held=self._held,
        )

    @property
    def gaps(self) -> Mapping[CoverageWant, Sequence[Gap]]:
        """Where rules lack rows of what was looked up."""
        return self._planner.gaps

    @property
    def looked_up(self) -> Sequence[Segment]:
        """All segments that were looked up, in the same snapshot as the gaps."""
        return self._planner.segments

    def _reads_few(self, leaves: Sequence[Leaf]) -> bool:
        """Whether the leaves read tiers, and few rows of them whichever series match."""
        if not all(leaf.signal == METRICS.name and leaf.reading.tier_s for leaf in leaves):
            return False
        plans = [self._plan(leaf) for leaf in leaves]
        if not any(plan.explain.pieces for plan in plans):
            return False
        return sum(segment.row_count for plan in plans for segment in plan.segments) < _SMALL_TIER_ROWS

    def keep_snapshot(self) -> str | None:
        """Keep what was looked up for a later query; returns its fingerprint, or None if the index does not answer."""
        return self._planner.keep()

    def return_to(self, fingerprint: str) -> None:
        """Read the segments that an earlier query kept."""
        self._planner.return_to(fingerprint)

    @property
    def watermark_ms(self) -> int | None:
        """Every raw object of the query's signals that arrived before this time is in what the query reads."""
        return self._planner.watermark_ms

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int, reading: Reading = RAW) -> SeriesBatch:
        """All samples of the series that match, from `start_ms` to `end_ms`, both included."""
        leaf = Leaf.of_samples(matchers, start_ms, end_ms, reading)
        answers = sorted(self.scan(leaf, Kind.SAMPLES), key=lambda answer: answer.segment_id)
        parts: list[Samples] = [part for answer in answers for part in answer.samples]
        return self._timed("merge", lambda: merge(parts, self.org_id, start_ms))

    def places(self, plan: StepPlan, groups: Sequence[Ints]) -> list[str | None]:
        """For each group of steps the worker that evaluates it."""
        if len(groups) < 2 or self._workers.count < 2:
            return [None] * len(groups)
        parts = []
        for steps in groups:
            plans = [self._plan(leaf) for leaf in plan.leaves_at(steps)]
            parts.append(_objects_of(plans))
        return self._workers.places(self.org_id, parts)

    def push_down(self, plan: StepPlan, steps: Ints, max_samples: int, place: str | None = None) -> Evaluated | None:
        """Some steps of a plan, evaluated by that worker or the one that has most segments; None where none can."""
        if plan.reads_rows:
            return self._steps_of_rows(plan, steps, max_samples, place)
        if not self._workers.count:
            return None
        plans = [self._plan(leaf) for leaf in plan.leaves_at(steps)]
        request = self._steps_request(plan, plan.payload(steps, max_samples), plans, place)
        if not request.segments:
            return None
        for each in plans:
            self._meter.check_plan(each)
        answer = self._timed("evaluate", lambda: self._workers.evaluate(request, self._cancelled))
        if answer is None:
            return None
        for each in plans:
            self._count(each)
        self.stats.evaluated(answer)
        self.stats.pushed_down(len(steps), answer.worker, answer.cpu_s)
        return received_steps(plan, steps, answer.batches, answer.note)

    def _steps_of_rows(self, plan: StepPlan, steps: Ints, max_samples: int, place: str | None) -> Evaluated:
        """As row queries, these leave unreadable segments out and count them."""
        plans = [self._plan(leaf) for leaf in plan.leaves_at(steps)]
        for each in plans:
            self._count(each)
        is_whole = len(steps) == len(plan.times.steps())
        if is_whole and self._workers.count > 1 and not self.whole and _rows_of(plans) >= _SHARED_ROWS:
            found = self._counted_by_share(plan, steps, max_samples)
            if found is not None:
                return found
        request = self._steps_request(plan, plan.payload(steps, max_samples), plans, place)
        parts = self._timed("evaluate", lambda: [*self._parts(request)]) if request.segments else []
        if not parts:
            return plan.evaluate(steps, NoSegments(), self._cancelled, max_samples)
        *batches, answer = parts
        assert isinstance(answer, EvaluateAnswer)
        self.stats.pushed_down(len(steps), answer.worker, 0.0)
        return received_steps(plan, steps, batches, answer.note)

    def _counted_by_share(self, plan: StepPlan, steps: Ints, max_samples: int) -> Evaluated | None:
        """All steps of a plan, whose counts every worker makes of the rows that it has; None if it has other parts."""
        asked: list[tuple[int, StepPlan, EvaluateRequest]] = []
        counts = plan.counts()
        for number, count in enumerate(counts):
            leaves = [self._plan(leaf) for leaf in count.leaves_at(steps)]
            payload = count.payload(steps, max_samples)
            for share in self._workers.shares(self.org_id, _objects_of(leaves)):
                fragment = Fragment(count.language, payload, (), rows=True)
                asked.append((number, count, self._evaluate_request(fragment, share)))
        if len(asked) <= len(counts):
            return None
        values: list[list[Block]] = [[] for _ in counts]
        samples = 0
        with ThreadPoolExecutor(len(asked), thread_name_prefix="share") as pool:
            answers = self._timed("evaluate", lambda: list(pool.map(lambda each: [*self._parts(each[2])], asked)))
        for (number, count, _), parts in zip(asked, answers, strict=True):
            if parts:
                *batches, answer = parts
                assert isinstance(answer, EvaluateAnswer)
                self.stats.pushed_down(len(steps), answer.worker, 0.0)
                found = received_steps(count, steps, batches, answer.note)
                values[number].append(found.block)
                samples += found.samples
        whole = plan.of_sums(values, steps, self._cancelled, max_samples)
        return replace(whole, samples=whole.samples + samples)

    def rows(self, plan: RowPlan) -> Iterator[pa.RecordBatch]:
        """The rows of a plan, in its order. All batches have one schema; where there are no rows, there is no batch.

        With a limit, every worker finds its best rows at once, and the best of those are the answer. Without one, the
        segments are read hour by hour: those of an hour overlap, those of different hours do not.
        """
        planned = self._plan(plan.leaves[0])
        self._count(planned)
        segments = SegmentObjects.of_all(planned.segments)
        few = plan.scan.limit is not None and plan.scan.limit <= LATE_ROWS
        question = self._held.question(plan, segments) if few and self._held is not None else None
        if self._held is None or question is None:
            yield from self._found_rows(plan, segments, few=few)
            return
        batches = self._held.find(question)
        if batches is None:
            batches = list(self._found_rows(plan, segments, few=few))
            if not self.stats.segments_failed:
                self._held.offer(question, batches)
        else:
            self.stats.held(len(segments), sum([batch.num_rows for batch in batches]))
        yield from batches

    def _found_rows(self, plan: RowPlan, segments: Sequence[SegmentObjects], *, few: bool) -> Iterator[pa.RecordBatch]:
        if few or plan.schema is not None:
            # Else all segments decide about the columns of the answer.
            segments = self._not_excluded(plan, segments)
        if not segments:
            return
        if plan.together:
            yield from self._streamed(plan, plan.payload(plan.scan.limit), segments)
        elif few:
            yield from self._best_rows(plan, segments)
        else:
            yield from self._all_rows(plan, segments)

    def _not_excluded(self, plan: RowPlan, segments: Sequence[SegmentObjects]) -> Sequence[SegmentObjects]:
        """The segments that filters in this process do not exclude."""
        if self._filters is None:
            return segments
        kept, excluded = self._filters.kept(plan.condition, segments)
        if excluded:
            self.stats.excluded(len(segments) - len(kept), excluded)
        return kept

    def _best_rows(self, plan: RowPlan, segments: Sequence[SegmentObjects]) -> Iterator[pa.RecordBatch]:
        payload = plan.payload(plan.scan.limit)
        shares = self._workers.shares(self.org_id, segments)
        if len(shares) == 1:
            # Nothing to merge: the worker's answer is in order, has one schema, and ends at the limit.
            fragment = Fragment(plan.language, payload, (), rows=True)
            found = list(self._parts(self._evaluate_request(fragment, shares[0], small=self.small)))
            yield from (part for part in found if isinstance(part, pa.RecordBatch))
            return
        with ThreadPoolExecutor(len(shares), thread_name_prefix="rows") as pool:
            answers = list(pool.map(lambda share: list(self._streamed(plan, payload, share)), shares))
        parts = [batch for batches in answers for batch in batches]
        if parts:
            yield from merged_rows(parts, plan.scan)

    def _all_rows(self, plan: RowPlan, segments: Sequence[SegmentObjects]) -> Iterator[pa.RecordBatch]:
        schema = plan.schema or answer_schema(self._schemas(plan, segments), plan.scan)
        left = plan.scan.limit
        for together in _overlapping(segments, newest_first=plan.scan.newest_first):
            for batch in self._streamed(plan, plan.payload(left), together):
                yield conform(batch, schema)
                left = None if left is None else left - batch.num_rows
            if left == 0:
                return

    def _schemas(self, plan: RowPlan, segments: Sequence[SegmentObjects]) -> list[pa.Schema]:
        return [
            batch.schema
            for share in self._workers.shares(self.org_id, segments)
            for batch in self._streamed(plan, plan.schema_payload(), share, counted=False)
        ]

    def _streamed(
        self,
        plan: RowPlan,
        payload: bytes,
        segments: Sequence[SegmentObjects],
        *,
        counted: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        fragment = Fragment(plan.language, payload, (), rows=True)
        for part in self._parts(self._evaluate_request(fragment, segments), counted=counted):
            if isinstance(part, pa.RecordBatch):
                yield part

    def _parts(self, request: EvaluateRequest, *, counted: bool = True) -> Iterator[pa.RecordBatch | EvaluateAnswer]:
        """What a worker evaluates a fragment that reads rows to: batches, then the answer without batches."""
        given = False
        try:
            for part in self._workers.stream(request, self._cancelled):
                if isinstance(part, EvaluateAnswer) and counted:
                    self.stats.streamed(part, len(request.segments))
                    if self._filters is not None and part.excluded_by_filters:
                        self._filters.want(self.org_id, request.segments)
                    self._meter.check_bytes(self.stats.read_bytes)
                given = True
                self._planner.require_usable()
                yield part
        except Unavailable as error:
            if given:
                raise
            self.stats.lost([str(segment.segment_id) for segment in request.segments], str(error))
        failed = self.stats.segments_failed
        if failed and (not self.limits.partial or len(failed) >= self.stats.segments_planned):
            raise Unavailable(f"cannot answer whole: {next(iter(failed.values()))}", hint="ask again")

    def _steps_request(
        self, plan: StepPlan, payload: bytes, plans: Sequence[LeafPlan], place: str | None
    ) -> EvaluateRequest:
        objects = _objects_of(plans)
        reads: tuple[Read, ...] = ()
        if not plan.reads_rows and len(plans) == 1:
            reads = (Read(plans[0].leaf, tuple(range(len(objects))), plans[0].explain.pieces),)
        elif not plan.reads_rows:
            index = {each.segment_id: number for number, each in enumerate(objects)}
            reads = tuple(
                Read(each.leaf, tuple(index[one.segment_id] for one in each.segments), each.explain.pieces)
                for each in plans
            )
        fragment = Fragment(plan.language, payload, reads, rows=plan.reads_rows)
        return self._evaluate_request(fragment, objects, small=self.small, place=place)

    def _evaluate_request(
        self,
        fragment: Fragment,
        segments: Sequence[SegmentObjects],
        *,
        small: bool = False,
        place: str | None = None,
    ) -> EvaluateRequest:
        return EvaluateRequest(
            org_id=self.org_id,
            query_id=self.query_id,
            segments=tuple(segments),
            deadline_s=self._deadline_s,
            max_bytes=self.limits.held_bytes,
            fragment=fragment,
            small=small,
            place=place,
        )

    def scan(self, leaf: Leaf, kind: Kind, label: str = "") -> Iterator[SegmentAnswer]:
        """What the segments of a leaf hold, in any order. Segments that failed are counted and left out."""
        plan = self._plan(leaf)
        self._count(plan)
        if not plan.segments:
            return
        if kind is Kind.SAMPLES:
            self._meter.check_plan(plan)
        request = ScanRequest(
            org_id=self.org_id,
            query_id=self.query_id,
            segments=tuple(SegmentObjects.of_all(plan.segments)),
            deadline_s=self._deadline_s,
            max_bytes=self.limits.held_bytes,
            kind=kind,
            leaf=leaf,
            pieces=plan.explain.pieces,
            label=label,
            small=self.small,
        )
        started = time.perf_counter()
        missed: list[str] = []
        for answer in self._workers.scan(request, self._cancelled):
            self.stats.answered(answer)
            if kind is not Kind.SAMPLES:
                # How much of a segment its labels take is not known before.
                self._meter.check_bytes(self.stats.read_bytes)
            if answer.error is None:
                self._meter.hold(sum(part.size_bytes for part in answer.samples))
                yield answer
                continue
            # Deleted by the sweeper, because the query takes too long? Then it has an error, and no short answer.
            self._planner.require_usable()
            missed.append(answer.error)
            # An answer without any segment is not a partial answer.
            if not self.limits.partial or len(missed) == len(plan.segments):
                raise Unavailable(f"cannot answer whole: {answer.error}", hint="ask again")
        self.stats.spent("read", time.perf_counter() - started)

    def _plan(self, leaf: Leaf) -> LeafPlan:
        return self._timed("plan", lambda: self._planner.plan(leaf))

    def _count(self, plan: LeafPlan) -> None:
        self.stats.planned(plan.explain)
        self.stats.looked_up(self._planner.lookups, self._planner.age_s, self.watermark_ms)
        if self.stats.index_age_s and not self.limits.partial:
            raise Unavailable("cannot answer whole: the index does not answer", hint="ask again")

    def _timed(self, stage: str, call: Callable[[], T]) -> T:
        started = time.perf_counter()
        try:
            return call()
        finally:
            self.stats.spent(stage, time.perf_counter() - started)


def _objects_of(plans: Sequence[LeafPlan]) -> Sequence[SegmentObjects]:
    """The segments that any of the plans reads, each once."""
    if len(plans) == 1:
        return SegmentObjects.of_all(plans[0].segments)
    segments = {segment.segment_id: segment for each in plans for segment in each.segments}
    return tuple(map(SegmentObjects.of, segments.values()))


def _rows_of(plans: Sequence[LeafPlan]) -> int:
    return sum(segment.row_count for plan in plans for segment in plan.segments)


def _overlapping(segments: Sequence[SegmentObjects], *, newest_first: bool) -> Iterator[list[SegmentObjects]]:
    """The segments in groups whose times do not overlap, in the order of the answer."""
    together: list[SegmentObjects] = []
    groups: list[list[SegmentObjects]] = []
    end_ns = 0
    for segment in sorted(segments, key=lambda each: each.start_ns):
        if together and segment.start_ns >= end_ns:
            groups.append(together)
            together = []
        together.append(segment)
        end_ns = max(end_ns, segment.end_ns) if len(together) > 1 else segment.end_ns
    groups.append(together)
    return iter(groups[::-1] if newest_first else groups)
