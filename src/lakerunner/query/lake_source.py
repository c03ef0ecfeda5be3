"""The lake as a source of series: one a query, it plans, fans out, merges and keeps account."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from lakerunner.model.errors import LimitHit, Unavailable
from lakerunner.model.time import NS_PER_MS
from lakerunner.query.fanout.answer import SegmentAnswer, Workers
from lakerunner.query.fanout.request import Kind, ScanRequest, SegmentObjects
from lakerunner.query.plan.leaf import Leaf, LeafPlan
from lakerunner.query.plan.planner import Planner
from lakerunner.query.promql.ast import Call, walk
from lakerunner.query.promql.leaves import leaves, leaves_at
from lakerunner.query.promql.parser import parse
from lakerunner.query.promql.part import Evaluated, Part
from lakerunner.query.pushdown.errand import Errand, Read
from lakerunner.query.scan.samples.merge import merge
from lakerunner.query.scan.samples.runs import Samples
from lakerunner.query.series.batch import SeriesBatch
from lakerunner.query.series.matchers import Matcher
from lakerunner.query.stats import QueryStats
from lakerunner.query.vectors.context import EngineOptions

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """What one query may cost, and whether it may answer without segments that cannot be read."""

    timeout_s: float = 120.0
    #: Samples held, as bytes.
    max_bytes: int = 2 << 30
    #: Bytes of segments that samples are read from, each segment counted once.
    max_read_bytes: int = 1 << 62
    max_samples: int = 1 << 62
    #: True: an answer may miss segments, and says so. False: a segment that cannot be read is an error.
    partial: bool = True


class LakeSource:
    """Implements `SeriesSource`. `stats` tells what was read and missed, at any time.

    Threads may select at once, as reading ahead does: the planner, the account and what is held each have a lock.
    """

    def __init__(
        self,
        org_id: uuid.UUID,
        planner: Planner,
        workers: Workers,
        limits: QueryLimits | None = None,
        cancelled: Callable[[], None] | None = None,
    ) -> None:
        self.org_id = org_id
        self.query_id = uuid.uuid4()
        self.stats = QueryStats()
        self._planner = planner
        self._workers = workers
        self._limits = limits or QueryLimits()
        self._cancelled = cancelled or _go_on
        self._lock = threading.Lock()
        self._held_bytes = 0
        self._read_from: dict[uuid.UUID, int] = {}
        self._deadline_s = time.time() + self._limits.timeout_s

    def prepare(
        self, text: str, start_ms: int, end_ms: int, step_ms: int, options: EngineOptions | None = None
    ) -> None:
        """Look up at once what all selectors of a query need, so that they see one state of the lake.

        For an instant query the step is 0, as for the engine.
        """
        wanted = [
            Leaf(self.org_id, leaf.matchers, leaf.start_ms, leaf.end_ms)
            for leaf in leaves(text, start_ms, end_ms, step_ms, options)
        ]
        if wanted:
            self._timed("plan", lambda: self._planner.prepare(wanted))

    def look_up(self, start_ms: int, end_ms: int) -> None:
        """Look up the segments of a time once, for all that is going to be selected within it."""
        self._timed("plan", lambda: self._planner.prepare([Leaf(self.org_id, (), start_ms, end_ms)]))

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> SeriesBatch:
        leaf = Leaf(self.org_id, tuple(matchers), start_ms, end_ms)
        answers = sorted(self.answers(leaf, Kind.SAMPLES), key=lambda answer: answer.segment_id)
        parts: list[Samples] = [part for answer in answers for part in answer.samples]
        return self._timed("merge", lambda: merge(parts, self.org_id, start_ms))

    def evaluate(self, part: Part) -> Evaluated | None:
        """The part done by a worker, where one can."""
        if any(isinstance(node, Call) and node.name == "info" for node in walk(parse(part.text))):
            return None  # What it selects depends on what it finds.
        asked = leaves_at(part.text, part.query, part.times, part.options)
        plans = [self._plan(Leaf(self.org_id, leaf.matchers, leaf.start_ms, leaf.end_ms)) for leaf in asked]
        segments = {segment.segment_id: segment for plan in plans for segment in plan.segments}
        if not segments:
            return None
        for plan in plans:
            self._afford(plan)
        place = {segment_id: number for number, segment_id in enumerate(segments)}
        errand = Errand(
            org_id=self.org_id,
            query_id=self.query_id,
            part=part,
            segments=tuple(map(SegmentObjects.of, segments.values())),
            reads=tuple(
                Read(
                    plan.leaf.matchers,
                    plan.leaf.start_ms,
                    plan.leaf.end_ms,
                    tuple(place[segment.segment_id] for segment in plan.segments),
                )
                for plan in plans
            ),
            deadline_s=self._deadline_s,
            max_bytes=self._limits.max_bytes,
        )
        done = self._timed("evaluate", lambda: self._workers.evaluate(errand, self._cancelled))
        if done is None:
            return None
        for plan in plans:
            self._count(plan)
        for answer in done.answers:
            self.stats.answered(answer)
        self.stats.pushed_down(len(part.times), done.worker, done.cpu_s)
        return done.evaluated

    def answers(self, leaf: Leaf, kind: Kind, label: str = "") -> Iterator[SegmentAnswer]:
        """What the segments of a leaf hold of it, in no order; those that failed are counted and left out."""
        plan = self.plan(leaf)
        if not plan.segments:
            return
        if kind is Kind.SAMPLES:
            self._afford(plan)
        request = ScanRequest(
            org_id=self.org_id,
            query_id=self.query_id,
            kind=kind,
            segments=tuple(map(SegmentObjects.of, plan.segments)),
            matchers=leaf.matchers,
            start_ms=leaf.start_ms,
            end_ms=leaf.end_ms,
            deadline_s=self._deadline_s,
            max_bytes=self._limits.max_bytes,
            label=label,
        )
        started = time.perf_counter()
        missed: list[str] = []
        for answer in self._workers.scan(request, self._cancelled):
            self.stats.answered(answer)
            if kind is not Kind.SAMPLES:
                # How much of a segment its labels are is not known before.
                self._check_read(self.stats.read_bytes)
            if answer.error is None:
                self._hold(sum(part.size_bytes for part in answer.samples))
                yield answer
                continue
            missed.append(answer.error)
            # Nothing at all is not a partial answer.
            if not self._limits.partial or len(missed) == len(plan.segments):
                raise Unavailable(f"cannot answer whole: {answer.error}", hint="ask again")
        self.stats.spent("read", time.perf_counter() - started)

    def _afford(self, plan: LeafPlan) -> None:
        """Refuse what is known to be too much before anything of it is read."""
        with self._lock:
            self._read_from |= {segment.segment_id: segment.size_bytes for segment in plan.segments}
            read_bytes = sum(self._read_from.values())
        self._check_read(read_bytes)
        limit = self._limits.max_samples
        if plan.certain_rows > limit:
            raise LimitHit(
                f"cannot answer the query: a selector has {plan.certain_rows:,} samples, more than {limit:,} "
                "(api.max_samples)",
                hint="narrow the selectors or shorten the range",
            )

    def _check_read(self, read_bytes: int) -> None:
        limit = self._limits.max_read_bytes
        if read_bytes > limit:
            raise LimitHit(
                f"cannot answer the query: it reads {read_bytes:,} bytes of segments, more than {limit:,} "
                "(api.max_bytes)",
                hint="narrow the selectors or shorten the range",
            )

    def _hold(self, size_bytes: int) -> None:
        """Count what came. Each worker keeps the limit for itself; together they may still exceed it."""
        with self._lock:
            self._held_bytes += size_bytes
        if self._held_bytes > self._limits.max_bytes:
            raise LimitHit(
                f"cannot hold the samples of the query: more than {self._limits.max_bytes:,} bytes "
                "(api.max_samples, or query.max_scan_bytes)",
                hint="narrow the selectors or the time range",
            )

    def plan(self, leaf: Leaf) -> LeafPlan:
        plan = self._plan(leaf)
        self._count(plan)
        return plan

    def _plan(self, leaf: Leaf) -> LeafPlan:
        return self._timed("plan", lambda: self._planner.plan(leaf))

    def _count(self, plan: LeafPlan) -> None:
        ends = [segment.time_range.end_ns // NS_PER_MS for segment in plan.segments]
        self.stats.planned(plan.explain, max(ends, default=None))
        self.stats.looked_up(self._planner.lookups, self._planner.age_s)
        if self.stats.index_age_s and not self._limits.partial:
            raise Unavailable("cannot answer whole: the index does not answer", hint="ask again")

    def _timed(self, stage: str, call: Callable[[], T]) -> T:
        started = time.perf_counter()
        try:
            return call()
        finally:
            self.stats.spent(stage, time.perf_counter() - started)


def _go_on() -> None:
    """Nobody cancels."""
