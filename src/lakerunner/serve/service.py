"""Answering questions in any language: compile, look up, take the cached answer or compute it, keep account."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from lakerunner.model.errors import LimitHit
from lakerunner.model.time import NS_PER_MS, NS_PER_S
from lakerunner.query.lake import Lake
from lakerunner.query.lake_query import LakeQuery, QueryLimits
from lakerunner.query.language import Plan, QueryOptions
from lakerunner.query.languages import language
from lakerunner.query.plan.leaf import extent_of
from lakerunner.query.run import run
from lakerunner.query.series.results import MatrixResult, QueryResult
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.stats import QueryStats
from lakerunner.runtime.settings import ApiSettings, LimitSettings
from lakerunner.serve.admission.admission import Admission
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.answer_cache import AnswerCache, AnswerKey
from lakerunner.serve.caller import Caller
from lakerunner.serve.metrics import API_CACHE
from lakerunner.serve.query_sizes import QuerySizes

CacheOutcome = Literal["hit", "miss", "bypass"]
#: The evaluator and the workers have deadlines too. The query's own comes first, so that every error about time reads
#: the same.
_GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class Question:
    """One query."""

    language: str
    text: str
    times: QueryTimes
    lookback_ms: int = 0
    #: Compute it even where the answer is cached.
    fresh: bool = False
    #: Whether the answer may miss what cannot be read, and say so.
    partial: bool = True
    #: For answers of rows: which signal, how many, in which order, which columns.
    signal: str = ""
    limit: int | None = None
    newest_first: bool = True
    columns: tuple[str, ...] | None = None


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
        # A cached answer read nothing now.
        return {**explanation, "selectors": []} if self.cache == "hit" else explanation


@dataclass(frozen=True, slots=True)
class Opened:
    """A plan with its view of the lake: one snapshot of the index, and the place of its answer in the cache."""

    plan: Plan
    source: LakeQuery
    #: None: the answer may not be cached.
    key: AnswerKey | None

    @property
    def outcome(self) -> CacheOutcome:
        return "bypass" if self.key is None else "miss"


class QueryService:
    """Its methods run in threads that `admission` gives, and know neither a language nor HTTP."""

    def __init__(self, settings: ApiSettings, lake: Lake, admission: Admission) -> None:
        self.settings = settings
        self.lake = lake
        self.admission = admission
        self._cache = AnswerCache(settings.cache_bytes, settings.cache_ttl_s)
        self._sizes = QuerySizes()

    def answer(self, question: Question, query: RunningQuery) -> Answer:
        """The whole answer, cached or computed."""
        opened = self.open(self.compile(question, query.caller), question, query)
        if (cached := self.cached(opened, query)) is not None:
            return cached
        try:
            small = self._sizes.is_small(query.caller.org_id, opened.plan)
            result = run(opened.plan, opened.source, query.check, most_groups=1 if small else None)
        finally:
            self.admission.charge(query, opened.source.stats.worker_cpu_s)
        self._sizes.record(query.caller.org_id, opened.plan, result.samples)
        _check_points(result, self.admission.limits(query.caller).max_points)
        self.keep(opened, result)
        return Answer(result, opened.source.stats, opened.outcome, query.query_id, query.elapsed_s)

    def compile(self, question: Question, caller: Caller) -> Plan:
        """The plan of a question that is within the org's limits."""
        limits = self.admission.limits(caller)
        options = QueryOptions(
            lookback_ms=question.lookback_ms,
            max_samples=limits.max_samples,
            max_series=limits.max_series,
            max_steps=limits.max_steps,
            timeout_s=limits.timeout_s + _GRACE_S,
            signal=question.signal,
            limit=question.limit,
            newest_first=question.newest_first,
            columns=question.columns,
        )
        plan = language(question.language).compile(question.text, question.times, options)
        _check_range(plan, limits)
        return plan

    def open(self, plan: Plan, question: Question, query: RunningQuery) -> Opened:
        """Look up what the plan needs.

        The fingerprint is of the very segments that will be read: one that comes in later makes the cached answer
        invalid, never wrong.
        """
        source = self.source(query, partial=question.partial)
        fingerprint = source.prepare(plan.leaves)
        if question.fresh or not self.settings.cache_bytes or not plan.leaves or fingerprint is None:
            return Opened(plan, source, None)
        times, lookback_ms = question.times, question.lookback_ms
        key = AnswerKey(query.caller.org_id, plan.language, plan.canonical, times, lookback_ms, fingerprint)
        return Opened(plan, source, key)

    def source(self, query: RunningQuery, *, partial: bool = True) -> LakeQuery:
        """Everything that the query's caller may see."""
        allowed = self.admission.limits(query.caller)
        timeout_s = query.remaining_s + _GRACE_S
        limits = QueryLimits(timeout_s, allowed.max_bytes, allowed.max_series, allowed.max_samples, partial)
        return self.lake.query(query.caller.org_id, limits, query.check)

    def cached(self, opened: Opened, query: RunningQuery) -> Answer | None:
        found = None if opened.key is None else self._cache.get(opened.key)
        API_CACHE.labels("bypass" if opened.key is None else "miss" if found is None else "hit").inc()
        if found is None:
            return None
        result, stats = found
        return Answer(result, stats, "hit", query.query_id, query.elapsed_s)

    def keep(self, opened: Opened, result: QueryResult) -> None:
        """Cache a complete answer. One that misses something may be whole the next time."""
        if opened.key is not None and opened.source.stats.complete:
            self._cache.put(opened.key, result, opened.source.stats)

    def recent(self) -> tuple[int, int]:
        """The time that is meant where a request for labels or metadata gives none."""
        end_ms = now_ms()
        return end_ms - round(self.settings.metadata_range_s * 1000), end_ms


def _check_range(plan: Plan, limits: LimitSettings) -> None:
    extent = extent_of(plan.leaves)
    if extent is not None and extent.end_ns - extent.start_ns > limits.max_range_s * NS_PER_S:
        days = (extent.end_ns - extent.start_ns) / (86_400 * NS_PER_S)
        raise LimitHit(
            f"cannot run a query over {days:,.1f} days: more than {limits.max_range_s / 86_400:,.1f} (api.max_range_s)",
            hint="shorten the range, the range selectors or the offsets",
        )


def _check_points(result: QueryResult, limit: int) -> None:
    """Refuse an answer that is too large to be written and sent, before that begins."""
    value = result.value
    points = value.samples if isinstance(value, MatrixResult) else 0
    if points > limit:
        raise LimitHit(
            f"cannot answer with {points:,} samples: more than {limit:,} (api.max_points)",
            hint="aggregate, narrow the selectors, shorten the range or widen the step",
        )


def now_ms() -> int:
    return time.time_ns() // NS_PER_MS
