"""Where questions become answers: limits checked, turns taken, running queries listed, answers kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from starlette.requests import Request

from lakerunner.model.errors import BadInput, LakeError, LimitHit
from lakerunner.query.evalflow import whole
from lakerunner.query.lake_port import LakePort, OrgSource, ScanLimits, ScanStats
from lakerunner.query.promql.ast import Expr
from lakerunner.query.promql.engine import Engine
from lakerunner.query.promql.extent import Extent, extent_of
from lakerunner.query.promql.parser import parse
from lakerunner.query.promql.printer import print_expr
from lakerunner.query.series.results import MatrixResult, QueryResult
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.vectors.context import EngineOptions
from lakerunner.runtime.settings import ApiSettings, LimitSettings
from lakerunner.serve.admission.running import Running, RunningQuery
from lakerunner.serve.admission.turns import Admission
from lakerunner.serve.answer_cache import AnswerCache, AnswerKey
from lakerunner.serve.caller import Authenticator, Caller
from lakerunner.serve.lanes.usage import Usage
from lakerunner.serve.metrics import API_CACHE

T = TypeVar("T")
CacheOutcome = Literal["hit", "miss", "bypass"]
#: The engine has a deadline too; ours comes first, so that every error of time reads the same.
_ENGINE_GRACE_S = 5.0
#: What a second of waiting counts as use of the fast lane.
_WAITING_SHARE = 0.1
#: How long past its time a query is waited for: mostly it stops by itself, and says so better.
_GRACE_S = 0.5


@dataclass(frozen=True, slots=True)
class Question:
    """One query. A step of 0 asks for one moment."""

    text: str
    start_ms: int
    end_ms: int
    step_ms: int
    lookback_ms: int
    #: Compute it, whatever is kept.
    fresh: bool = False
    #: Whether the answer may miss what cannot be read, and say so.
    partial: bool = True

    @property
    def context(self) -> QueryTimes:
        return QueryTimes(self.start_ms, self.end_ms, self.step_ms)

    @property
    def steps(self) -> int:
        return (self.end_ms - self.start_ms) // self.step_ms + 1 if self.step_ms else 1


@dataclass(frozen=True, slots=True)
class Answer:
    result: QueryResult
    stats: ScanStats
    cache: CacheOutcome
    query_id: str
    elapsed_s: float
    explain: Sequence[Mapping[str, object]] = ()

    @property
    def warnings(self) -> list[str]:
        return [*self.result.warnings, *shortfalls(self.stats)]

    def explanation(self) -> dict[str, object]:
        """How the answer came to be: stage by stage, where its steps were evaluated, and selector by selector."""
        stats = self.stats
        return {
            "stageSeconds": {stage: round(seconds, 6) for stage, seconds in stats.seconds.items()},
            "pushDown": {"stepsByWorker": stats.pushed, "workerCpuSeconds": round(stats.worker_cpu_s, 6)},
            "selectors": list(self.explain),
        }


@dataclass(frozen=True, slots=True)
class Place:
    """Of an answer among those kept."""

    key: AnswerKey
    fingerprint: str


def shortfalls(stats: ScanStats) -> list[str]:
    """What an answer must admit to: in the lake's own words, where it has some."""
    if stats.segments_failed and not stats.warnings:
        return [f"{stats.segments_failed} of {stats.segments_planned} segments could not be read"]
    return list(stats.warnings)


class TooSlow(Exception):
    """A query that took more of the fast lane than one may. No error: it begins again in the slow one."""


class QueryService:
    def __init__(self, settings: ApiSettings, lake: LakePort, auth: Authenticator) -> None:
        self.settings = settings
        self.lake = lake
        self.auth = auth
        self.running = Running()
        self.usage = Usage()
        self._admission = Admission(settings.threads, settings.org_queries, settings.org_waiting)
        self._cache = AnswerCache(settings.cache_bytes, settings.cache_ttl_s)

    def close(self) -> None:
        self.running.cancel_all("the server stops")
        self._admission.close()

    # -- on the event loop -------------------------------------------------------------------------------------

    async def turn(
        self,
        request: Request,
        caller: Caller,
        kind: str,
        text: str,
        call: Callable[[RunningQuery], T],
        timeout_s: float | None = None,
    ) -> T:
        """Run a call in a thread when the org's turn comes. It ends when the client goes, or its time is over."""
        with self.listed(caller, kind, text, timeout_s) as query:
            if request.scope.get("lakerunner.hurry"):
                query.hurry(TooSlow)
            future = self.submit(query, call)
            done = asyncio.wrap_future(future)
            stopped = await first_of(request, query, done)
            if stopped is None:
                return done.result()
            future.cancel()
            done.add_done_callback(taken_note_of)
            raise stopped

    def listed(
        self, caller: Caller, kind: str, text: str, timeout_s: float | None = None
    ) -> AbstractContextManager[RunningQuery]:
        """A query among those that run, with the time that it may take: the org's, or less where the client says so."""
        allowed_s = self.limits(caller).timeout_s
        return self.running.listed(caller, kind, text, min(timeout_s or allowed_s, allowed_s))

    def submit(self, query: RunningQuery, call: Callable[[RunningQuery], T]) -> Future[T]:
        """As `turn`, for a call whose ends its caller watches itself."""
        caller = query.caller

        def timed() -> T:
            began_s, began_cpu_s = time.monotonic(), time.thread_time()
            try:
                return begun(query, call)
            finally:
                # Waiting counts little: it is for a worker, or for others on a machine that has too much to do.
                cpu_s, all_s = time.thread_time() - began_cpu_s, time.monotonic() - began_s
                self.usage.spent(caller.org_id, cpu_s + _WAITING_SHARE * (all_s - cpu_s))

        return self._admission.submit(caller.org_id, timed, self.limits(caller).org_queries)

    def limits(self, caller: Caller) -> LimitSettings:
        """What the caller's org may ask for."""
        return self.settings.model_copy(update=dict(caller.limits)) if caller.limits else self.settings

    # -- in a thread -------------------------------------------------------------------------------------------

    def read(self, question: Question, caller: Caller) -> tuple[Expr, Extent | None]:
        """The question's tree and the time that it looks at, when both are within limits."""
        expr = parse(question.text)
        limits = self.limits(caller)
        if question.end_ms < question.start_ms:
            raise BadInput('cannot run a range query: "end" is before "start"')
        if question.steps > limits.max_steps:
            raise LimitHit(
                f"cannot run a range query of {question.steps:,} steps: more than {limits.max_steps:,} (api.max_steps)",
                hint="exceeded maximum resolution: widen the step or shorten the range",
            )
        extent = extent_of(expr, question.context, question.lookback_ms)
        if extent is not None and extent.width_ms > limits.max_range_s * 1000:
            raise LimitHit(
                f"cannot run a query over {extent.width_ms / 86_400_000:,.1f} days: more than "
                f"{limits.max_range_s / 86_400:,.1f} (api.max_range_s)",
                hint="shorten the range, the range selectors or the offsets",
            )
        return expr, extent

    def source(self, question: Question, query: RunningQuery, options: EngineOptions) -> OrgSource:
        """What the query reads from: all of it on one state of the lake."""
        source = self.scan(query, partial=question.partial)
        source.prepare(question.text, question.start_ms, question.end_ms, question.step_ms, options)
        return source

    def scan(self, query: RunningQuery, *, partial: bool = True) -> OrgSource:
        """All that the query's caller may see."""
        allowed = self.limits(query.caller)
        limits = ScanLimits(allowed.max_bytes, allowed.max_series, allowed.max_samples, query.remaining_s, partial)
        return self.lake.source(query.caller.org_id, limits, query.check)

    def recent(self) -> tuple[int, int]:
        """The time that is meant where a request for labels or metadata gives none."""
        end_ms = now_ms()
        return end_ms - round(self.settings.metadata_range_s * 1000), end_ms

    def options(self, question: Question, query: RunningQuery) -> EngineOptions:
        limits = self.limits(query.caller)
        return EngineOptions(
            lookback_ms=question.lookback_ms,
            max_samples=limits.max_samples,
            max_series=limits.max_series,
            max_steps=limits.max_steps,
            timeout_s=query.remaining_s + _ENGINE_GRACE_S,
        )

    def answer(self, question: Question, query: RunningQuery) -> Answer:
        """The whole answer, kept or computed."""
        expr, extent = self.read(question, query.caller)
        place = self.place(question, query, expr, extent)
        if (kept := self.kept(place, query)) is not None:
            return kept
        options = self.options(question, query)
        source = self.source(question, query, options)
        try:
            if question.step_ms:
                result = whole(source, question.text, question.context, options, query.check)
            else:
                result = Engine(source, options).instant(question.text, question.start_ms, query.check)
        finally:
            self.charge(query, source)
        check_points(result, self.limits(query.caller).max_points)
        self.keep(place, result, source.stats())
        outcome: CacheOutcome = "bypass" if place is None else "miss"
        return Answer(result, source.stats(), outcome, query.query_id, query.elapsed_s, source.explain())

    def charge(self, query: RunningQuery, source: OrgSource) -> None:
        """What workers did for the query is its org's use as well."""
        self.usage.spent(query.caller.org_id, source.stats().worker_cpu_s)

    def place(self, question: Question, query: RunningQuery, expr: Expr, extent: Extent | None) -> Place | None:
        """Where the answer may be kept; None where it may not.

        The fingerprint is taken before the data is read: a segment that comes in between makes what is kept
        invalid at once, never wrong.
        """
        if question.fresh or not self.settings.cache_bytes or extent is None:
            return None
        org_id = query.caller.org_id
        fingerprint = self.lake.fingerprint(org_id, extent.start_ms, extent.end_ms)
        if fingerprint is None:
            return None
        times = (question.start_ms, question.end_ms, question.step_ms, question.lookback_ms)
        return Place(AnswerKey(org_id, print_expr(expr), *times), fingerprint)

    def kept(self, place: Place | None, query: RunningQuery) -> Answer | None:
        found = None if place is None else self._cache.get(place.key, place.fingerprint)
        API_CACHE.labels("bypass" if place is None else "miss" if found is None else "hit").inc()
        if found is None:
            return None
        return Answer(found.result, found.stats, "hit", query.query_id, query.elapsed_s)

    def keep(self, place: Place | None, result: QueryResult, stats: ScanStats) -> None:
        """Keep a complete answer: one that is short of something may be whole the next time."""
        if place is not None and not shortfalls(stats):
            self._cache.put(place.key, place.fingerprint, result, stats)


def check_points(result: QueryResult, limit: int) -> None:
    """Refuse an answer that is too large to be written out and sent, before that is begun."""
    value = result.value
    points = value.samples if isinstance(value, MatrixResult) else 0
    if points > limit:
        raise LimitHit(
            f"cannot answer with {points:,} samples: more than {limit:,} (api.max_points)",
            hint="aggregate, narrow the selectors, shorten the range or widen the step",
        )


def begun(query: RunningQuery, call: Callable[[RunningQuery], T]) -> T:
    query.begin()
    return call(query)


async def first_of(request: Request, query: RunningQuery, done: asyncio.Future[T]) -> LakeError | None:
    """Wait for the future. What stopped the query instead: its client went, it was cancelled, or its time was over.

    A call that does not look at the clock is answered for all the same; its thread ends by itself.
    """
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    query.tell_when_cancelled(lambda: loop.call_soon_threadsafe(stopped.set))
    gone = asyncio.ensure_future(disconnected(request))
    told = asyncio.ensure_future(stopped.wait())
    watched: set[asyncio.Future[Any]] = {done, gone, told}
    try:
        await asyncio.wait(watched, timeout=query.remaining_s + _GRACE_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if gone.done():
            query.cancel("its client went away")
        reason = None if done.done() else query.cancelled or query.timed_out()
        if reason is not None:
            query.cancel("nobody waits for it any more")
        gone.cancel()
        told.cancel()
    return reason


async def disconnected(request: Request) -> None:
    """Returns when the client has gone. To be used after the body was read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def taken_note_of(done: asyncio.Future[T]) -> None:
    """An error that nobody waits for any more must not be reported as forgotten."""
    if not done.cancelled():
        done.exception()


def now_ms() -> int:
    return time.time_ns() // 1_000_000
