"""Answers queries in any language: compile the query, look up its segments, then use the cache or compute."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from lakerunner.model.errors import LimitHit
from lakerunner.model.segment import Segment
from lakerunner.model.time import NS_PER_MS, NS_PER_S
from lakerunner.query.lake import Lake
from lakerunner.query.lake_query import LakeQuery
from lakerunner.query.language import Plan, QueryOptions, RowPlan, StepPlan
from lakerunner.query.languages import language
from lakerunner.query.limits import QueryLimits, Size
from lakerunner.query.plan.leaf import extent_of
from lakerunner.query.rewriting import Considered, LiveRules, Ruled, rewriter
from lakerunner.query.run import run
from lakerunner.query.series.results import MatrixResult, QueryResult
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.stats import QueryStats
from lakerunner.runtime.settings import ApiSettings, LimitSettings
from lakerunner.serve.admission.admission import Admission
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.answer_cache import AnswerCache, AnswerKey
from lakerunner.serve.caller import Caller
from lakerunner.serve.metrics import API_CACHE, API_REWRITES
from lakerunner.serve.query_log import QueryLog
from lakerunner.serve.query_sizes import QuerySizes
from lakerunner.serve.shadow import ShadowCheck

CacheOutcome = Literal["hit", "miss", "bypass"]
#: The evaluator and the workers have their own deadlines, later by this much. The query's deadline then expires first,
#: and every timeout gives the same error.
_GRACE_S = 5.0
#: How often the query log is written.
_LOG_S = 10.0


@dataclass(frozen=True, slots=True)
class Question:
    """A query as the client asked it: its language, text, times and options."""

    language: str
    text: str
    times: QueryTimes
    lookback_ms: int = 0
    #: Compute the answer even if it is cached.
    fresh: bool = False
    #: Whether the answer may leave out unreadable data, with a warning.
    partial: bool = True
    #: The coarsest tier that may stand for raw samples; None: what the org's limits allow.
    max_tier_s: int | None = None
    #: Whether sketches of tiers may stand for raw samples; None: what the org's limits say.
    approximate: bool | None = None
    #: Only for row queries: the signal, the maximum number of rows, their order and their columns.
    signal: str = ""
    limit: int | None = None
    newest_first: bool = True
    columns: tuple[str, ...] | None = None
    #: Whether materialization rules may answer parts of the query.
    rewrite: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    result: QueryResult
    stats: QueryStats
    cache: CacheOutcome
    query_id: str
    elapsed_s: float

    @property
    def warnings(self) -> list[str]:
        return [*self.result.warnings, *self.stats.warnings()]

    def explanation(self) -> dict[str, object]:
        explanation = self.stats.explanation()
        # A cached answer read no segments this time.
        return {**explanation, "selectors": []} if self.cache == "hit" else explanation


@dataclass(frozen=True, slots=True)
class Opened:
    """A plan with one snapshot of the index and the cache key of its answer."""

    plan: Plan
    source: LakeQuery
    #: None when the answer must not be cached.
    key: AnswerKey | None

    @property
    def outcome(self) -> CacheOutcome:
        return "bypass" if self.key is None else "miss"


class QueryService:
    """Answers queries, independent of languages and HTTP. Its methods run in the threads of `admission`."""

    def __init__(self, settings: ApiSettings, lake: Lake, admission: Admission) -> None:
        self.settings = settings
        self.lake = lake
        self.admission = admission
        self._cache = AnswerCache(settings.cache_bytes, settings.cache_ttl_s)
        self._sizes = QuerySizes()
        self._rules = LiveRules(lake.database)
        self._shadow = ShadowCheck(settings.shadow_share, lake.database, self._rules)
        self.log = QueryLog(lake.database, settings.query_log_queries, _LOG_S if settings.query_log else 0.0)

    def close(self) -> None:
        self._shadow.close()
        self.log.close()

    def answer(self, question: Question, query: RunningQuery) -> Answer:
        """The whole answer, cached or computed."""
        return self.answer_of(self.compile(question, query.caller), question, query)

    def answer_of(self, plan: Plan, question: Question, query: RunningQuery) -> Answer:
        """The whole answer of a plan that has a value."""
        opened = self.open(plan, question, query)
        if (cached := self.cached(opened, query)) is not None:
            return cached
        began_cpu_s = time.thread_time()
        try:
            result = run(opened.plan, opened.source, query.check)
        finally:
            self.admission.charge(query, opened.source.stats.worker_cpu_s)
        self.logged(opened, query, time.thread_time() - began_cpu_s)
        if isinstance(opened.plan, Ruled):
            self._sizes.record_samples(query.caller.org_id, opened.plan, result.samples)
        elif isinstance(plan, StepPlan) and plan.reads_rows:
            # Kernels count rows so fast that their number says little.
            self._sizes.record_rows(query.caller.org_id, plan, opened.source.stats.worker_cpu_s)
        else:
            self._sizes.record_samples(query.caller.org_id, plan, result.samples)
        self._shadow.consider(opened.plan, result, opened.source, query.remaining_s + _GRACE_S)
        _check_points(result, self.admission.limits(query.caller).max_points)
        self.keep(opened, result)
        return Answer(result, opened.source.stats, opened.outcome, query.query_id, query.elapsed_s)

    def compile(self, question: Question, caller: Caller) -> Plan:
        """Compile a question to a plan and check it against the org's limits."""
        limits = self.admission.limits(caller)
        options = QueryOptions(
            lookback_ms=question.lookback_ms,
            max_samples=limits.max_samples,
            max_series=limits.max_series,
            max_steps=limits.max_steps,
            timeout_s=limits.timeout_s + _GRACE_S,
            max_tier_s=_max_tier_s(question, limits),
            approximate=bool(limits.approximate) if question.approximate is None else question.approximate,
            signal=question.signal,
            limit=question.limit,
            newest_first=question.newest_first,
            columns=question.columns,
            trace_reach_s=self.settings.trace_reach_s,
        )
        plan = language(question.language).compile(question.text, question.times, options)
        _check_range(plan, limits)
        return plan

    def open(self, plan: Plan, question: Question, query: RunningQuery) -> Opened:
        """Look up the segments that the plan reads, and which parts of it rules answer, in one snapshot.

        The fingerprint covers exactly the segments that will be read. A segment that arrives later changes the
        fingerprint, so the cached answer is no longer found; it is never served stale.
        """
        size = self._sizes.size_of(query.caller.org_id, plan)
        source = self.source(query, partial=question.partial, size=size)
        considered = self._considered(plan, question, query)
        if considered is None:
            fingerprint = source.prepare(plan.leaves)
        else:
            fingerprint = source.prepare(considered.leaves, considered.wants)
            plan, notes = considered.decided(source.gaps, source.looked_up)
            if isinstance(plan, Ruled):
                # Its size says nothing of the same query over raw rows, nor the other way round.
                source.size = self._sizes.size_of(query.caller.org_id, plan)
                source.expect(plan.reads)
            source.stats.rewrites = [note.to_json() for note in notes]
            outcome = "refused" if not isinstance(plan, Ruled) else "split" if plan.splits else "rewritten"
            API_REWRITES.labels(plan.language, outcome).inc()
        if question.fresh or not self.settings.cache_bytes or not plan.leaves or fingerprint is None:
            return Opened(plan, source, None)
        times, lookback_ms = question.times, question.lookback_ms
        key = AnswerKey(
            query.caller.org_id, plan.language, plan.canonical, times, lookback_ms, fingerprint,
            plan.options.max_tier_s, plan.options.approximate,
        )  # fmt: skip
        return Opened(plan, source, key)

    def _considered(self, plan: Plan, question: Question, query: RunningQuery) -> Considered | None:
        """The rules that could answer parts of the plan; None where that is switched off, or there are no rules."""
        if not question.rewrite or not self.admission.limits(query.caller).rule_rewrites:
            return None
        rules = self._rules.of_org(query.caller.org_id)
        return rewriter().consider_stored(plan, rules) if rules else None

    def rows(
        self, plan: RowPlan, question: Question, query: RunningQuery, only: Sequence[Segment] | None = None
    ) -> tuple[Iterator[pa.RecordBatch], LakeQuery]:
        """The rows of a plan as they are found, and the account of what is read for them.

        With `only`, the rows of these segments and no others.
        """
        size = self._sizes.size_of(query.caller.org_id, plan)
        source = self.source(query, partial=question.partial, size=size, only=only)
        source.look_up(plan.leaves)
        return self._charged(plan, source, query), source

    def _charged(self, plan: RowPlan, source: LakeQuery, query: RunningQuery) -> Iterator[pa.RecordBatch]:
        try:
            yield from source.rows(plan)
        finally:
            self.admission.charge(query, source.stats.worker_cpu_s)
            if source.stats.worker_cpu_s:
                self._sizes.record_rows(query.caller.org_id, plan, source.stats.worker_cpu_s)

    def source(
        self,
        query: RunningQuery,
        *,
        partial: bool = True,
        size: Size = Size.LARGE,
        only: Sequence[Segment] | None = None,
    ) -> LakeQuery:
        """A view of the lake restricted to the caller's org and its limits."""
        allowed = self.admission.limits(query.caller)
        timeout_s = query.remaining_s + _GRACE_S
        limits = QueryLimits(timeout_s, allowed.max_bytes, allowed.max_series, allowed.max_samples, partial)
        return self.lake.query(query.caller.org_id, limits, query.check, size=size, only=only)

    def cached(self, opened: Opened, query: RunningQuery) -> Answer | None:
        entry = None if opened.key is None else self._cache.get(opened.key)
        API_CACHE.labels("bypass" if opened.key is None else "miss" if entry is None else "hit").inc()
        if entry is None:
            return None
        result, stats = entry
        self.log.record(query.caller, opened.plan, stats, 0.0, query.elapsed_s, cached=True)
        # The same segments as then. Meanwhile objects may have come to wait, or have ended without rows in the range.
        stats.watermark_ms = opened.source.watermark_ms
        return Answer(result, stats, "hit", query.query_id, query.elapsed_s)

    def logged(self, opened: Opened, query: RunningQuery, cpu_s: float) -> None:
        """Log a computed answer, which took so much CPU time of this process."""
        stats = opened.source.stats
        self.log.record(query.caller, opened.plan, stats, cpu_s + stats.worker_cpu_s, query.elapsed_s, cached=False)

    def keep(self, opened: Opened, result: QueryResult) -> None:
        """Cache the answer if it is complete. An incomplete one may be complete the next time."""
        if opened.key is not None and opened.source.stats.complete:
            self._cache.put(opened.key, result, opened.source.stats)

    def recent(self) -> tuple[int, int]:
        """The default time range, in milliseconds, for requests for labels or metadata."""
        end_ms = now_ms()
        return end_ms - round(self.settings.metadata_range_s * 1000), end_ms


def _max_tier_s(question: Question, limits: LimitSettings) -> int:
    asked = question.max_tier_s
    return limits.max_tier_s if asked is None else min(asked, limits.max_tier_s)


def _check_range(plan: Plan, limits: LimitSettings) -> None:
    extent = extent_of(plan.leaves)
    if extent is not None and extent.end_ns - extent.start_ns > limits.max_range_s * NS_PER_S:
        days = (extent.end_ns - extent.start_ns) / (86_400 * NS_PER_S)
        raise LimitHit(
            f"cannot run a query over {days:,.1f} days: more than {limits.max_range_s / 86_400:,.1f} (api.max_range_s)",
            hint="shorten the range, the range selectors or the offsets",
        )


def _check_points(result: QueryResult, limit: int) -> None:
    """Refuse an answer that is too large to send, before rendering it."""
    value = result.value
    points = value.samples if isinstance(value, MatrixResult) else 0
    if points > limit:
        raise LimitHit(
            f"cannot answer with {points:,} samples: more than {limit:,} (api.max_points)",
            hint="aggregate, narrow the selectors, shorten the range or widen the step",
        )


def now_ns() -> int:
    return time.time_ns()


def now_ms() -> int:
    return now_ns() // NS_PER_MS
