"""Live tails: each looks for new segments of its org, scans each of them once, and keeps the entries for its reader.

A segment never changes, so every entry is delivered once. A tail looks for segments at a steady pace, whatever its
scans and its reader take, so that it sees each one before compaction replaces it. Between looks it holds no thread: a
scan takes a turn among the queries of its org, as any other query does.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pyarrow as pa

from lakerunner.model.errors import BadInput, Bug, LakeError, LimitHit
from lakerunner.model.segment import Segment
from lakerunner.model.time import NS_PER_MS, NS_PER_S, TimeRange
from lakerunner.query.language import RowPlan
from lakerunner.query.series.times import QueryTimes
from lakerunner.runtime.telemetry import log
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.admission.turns import TooMany
from lakerunner.serve.caller import Caller
from lakerunner.serve.service import QueryService, Question
from lakerunner.serve.tails.pending import Pending, Piece

_Result = TypeVar("_Result")

#: How often a tail looks for new segments. It is a small part of the time that ingest takes.
_LOOK_S = 0.5
#: Only segments whose times are so near to now are looked for; entries that arrive later are not tailed.
_PAST_NS, _FUTURE_NS = 3_600 * NS_PER_S, 600 * NS_PER_S
#: Entries of one look that are kept for the reader, and their bytes. Further ones are dropped: nobody reads that fast.
_MAX_FOUND, _MAX_FOUND_BYTES = 100_000, 64 << 20
#: How long the entries of one look wait for a reader that has no room for them. After that it is no longer live.
_PATIENCE_S = 5.0
#: A tail ends after this time, and its client starts another: its key may have been revoked.
_MAX_S = 3_600.0


@dataclass(frozen=True, slots=True)
class TailRequest:
    #: The query. Its times and limit are set anew for each scan.
    question: Question
    #: Entries since this time are wanted.
    start_ns: int
    #: How many of the entries that are stored already are sent first.
    backlog: int
    #: How long to wait for entries that arrive late, so that they come in order.
    delay_s: float = 0.0


@dataclass(slots=True)
class _Found:
    """The entries of one scan, as far as they are kept."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    entries: int = 0
    size_bytes: int = 0
    #: The first entries that were not kept, and how many there were.
    first_left_out: pa.RecordBatch | None = None
    left_out: int = 0

    def add(self, batch: pa.RecordBatch) -> None:
        room = _MAX_FOUND - self.entries if self.size_bytes < _MAX_FOUND_BYTES else 0
        kept, rest = batch.slice(0, room), batch.slice(room)
        if kept.num_rows:
            self.batches.append(kept)
            self.entries += kept.num_rows
            self.size_bytes += kept.nbytes
        if rest.num_rows:
            if self.first_left_out is None:
                self.first_left_out = rest
            self.left_out += rest.num_rows


class Tails:
    """All tails of this process."""

    def __init__(self, service: QueryService) -> None:
        self._service = service
        self._running: Counter[uuid.UUID] = Counter()

    @asynccontextmanager
    async def tail(self, request: TailRequest, caller: Caller) -> AsyncIterator[Tail]:
        """A tail that looks for entries until the end of the block. Refuses queries that are not about entries."""
        limit = self._service.admission.limits(caller).org_tails
        if self._running[caller.org_id] >= limit:
            raise TooMany(
                f"cannot tail: {limit} tails of this org are running (api.org_tails)", hint="end one of them first"
            )
        self._running[caller.org_id] += 1
        try:
            tail = Tail(self._service, request, caller)
            await tail.begin()
            running = [asyncio.ensure_future(tail.look()), asyncio.ensure_future(tail.read())]
            for each in running:
                each.add_done_callback(tail.fail)
            try:
                yield tail
            finally:
                for each in running:
                    each.cancel()
                await asyncio.wait(running)
        finally:
            self._running[caller.org_id] -= 1
            if not self._running[caller.org_id]:
                del self._running[caller.org_id]


@dataclass(slots=True)
class Tail:
    """One client's tail."""

    service: QueryService
    request: TailRequest
    caller: Caller
    pending: Pending = field(default_factory=Pending)
    #: Why the tail ended; None while it runs.
    error: LakeError | None = None
    _seen: set[uuid.UUID] = field(default_factory=set)
    #: New segments that were not read yet.
    _fresh: list[Segment] = field(default_factory=list)
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)
    _began_s: float = field(default_factory=time.monotonic)

    async def begin(self) -> None:
        """Read what is stored already. Raises if the query cannot be tailed."""
        segments = await asyncio.to_thread(self._segments, self.request.start_ns)
        self._seen = {segment.segment_id for segment in segments}
        question = replace(self.request.question, limit=self.request.backlog, newest_first=True)
        stored = await self._scan(question, segments, self.request.start_ns)
        self.pending.begin_with(_oldest_first(stored.batches))
        self._drop_left_out(stored)

    async def look(self) -> None:
        """Look for new segments until the tail ends."""
        while self.error is None:
            await asyncio.sleep(_LOOK_S)
            start_ns = max(self.request.start_ns, time.time_ns() - _PAST_NS)
            segments = await self._tried(asyncio.to_thread(self._segments, start_ns))
            if segments is not None:
                # Later stages write rows again that ingest wrote first.
                self._fresh += [each for each in segments if each.level == 0 and each.segment_id not in self._seen]
                self._seen = {segment.segment_id for segment in segments}
            if self._fresh:
                self._arrived.set()
            if time.monotonic() - self._began_s > _MAX_S:
                self.error = LimitHit(f"the tail ended: it ran for {_MAX_S:,.0f} s", hint="start another")

    async def read(self) -> None:
        """Read the entries of new segments until the tail ends."""
        while self.error is None:
            await self._arrived.wait()
            await asyncio.sleep(self.request.delay_s)
            self._arrived.clear()
            segments = list(self._fresh)
            if not segments:
                continue
            question = replace(self.request.question, limit=None, newest_first=False)
            found = await self._tried(self._scan(question, segments, self.request.start_ns))
            if found is None:
                continue  # The next look wakes it again.
            del self._fresh[: len(segments)]
            until_s = asyncio.get_running_loop().time() + _PATIENCE_S
            for batch in found.batches:
                await self.pending.put(batch, until_s)
            self._drop_left_out(found)

    def _drop_left_out(self, found: _Found) -> None:
        """Tell the reader about the entries that were not kept."""
        if found.first_left_out is not None:
            self.pending.drop(found.first_left_out, found.left_out)

    async def _tried(self, work: Awaitable[_Result]) -> _Result | None:
        """The result; None after an error. An error that is not worth trying again ends the tail."""
        try:
            return await work
        except LakeError as error:
            if error.retryable:
                log().warning("a tail waits", reason=str(error), org=str(self.caller.org_id))
            else:
                self.error = error
            return None

    def fail(self, task: asyncio.Future[None]) -> None:
        """End the tail if one of its tasks failed: its reader would wait for ever."""
        if not task.cancelled() and (reason := task.exception()) is not None:
            log().error("a tail failed", reason=repr(reason), org=str(self.caller.org_id))
            self.error = Bug(f"the tail failed: {reason!r}")

    async def take(self, most: int, timeout_s: float) -> Piece | None:
        """The next entries, at most `most`; None if none came in time. Raises when the tail has ended."""
        piece = await self.pending.take(most, timeout_s)
        if piece is None and self.error is not None:
            raise self.error
        return piece

    def _segments(self, start_ns: int) -> list[Segment]:
        around = TimeRange(min(start_ns, time.time_ns()), time.time_ns() + _FUTURE_NS)
        return self.service.lake.segments(self.caller.org_id, "logs", around)

    async def _scan(self, question: Question, segments: Sequence[Segment], start_ns: int) -> _Found:
        end_ns = max(start_ns, time.time_ns()) + _FUTURE_NS
        # The step is of no use to a log query, but without one a metric query is refused for that reason.
        step_ms = -(-(end_ns - start_ns) // NS_PER_MS)
        question = replace(question, times=QueryTimes.of_ns(start_ns, end_ns, step_ms))
        admission = self.service.admission
        with admission.listed(self.caller, "tail", question.text) as query:
            try:
                scan = admission.submit(query, lambda query: self._entries(question, segments, query))
                return await asyncio.wrap_future(scan)
            finally:
                query.cancel("the tail has ended")

    def _entries(self, question: Question, segments: Sequence[Segment], query: RunningQuery) -> _Found:
        plan = self.service.compile(question, self.caller)
        if not isinstance(plan, RowPlan):
            raise BadInput("cannot tail a metric query: only log queries can be tailed")
        batches, _ = self.service.rows(plan, question, query, only=segments)
        found = _Found()
        for batch in batches:
            found.add(batch)
        return found


def _oldest_first(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    return [batch.take(pa.array(range(batch.num_rows - 1, -1, -1), pa.int64())) for batch in reversed(batches)]
