"""The work behind a stream of log entries, in a thread: reads entries and passes their frames to the event loop."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa

from lakerunner.model.errors import Bug, Conflict
from lakerunner.query.lake_query import LakeQuery
from lakerunner.query.language import RowPlan
from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.stats import QueryStats
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.caller import Caller
from lakerunner.serve.lake.arrow_stream import CURSOR, ArrowWriter
from lakerunner.serve.lake.frames import frame
from lakerunner.serve.lake.log_cursor import LogCursor, log_id_stem
from lakerunner.serve.lake.pipe import Pipe
from lakerunner.serve.rendering.log_frames import log_frames, places_in_instants
from lakerunner.serve.rendering.streams import TIME
from lakerunner.serve.service import QueryService, Question

#: Entries per piece: few enough that the first piece is sent soon, enough that the cost per piece is small.
_PIECE_ENTRIES = 2_000


@dataclass(frozen=True, slots=True)
class LogRequest:
    question: Question
    #: Maximum number of entries; 0 means all.
    limit: int
    timeout_s: float | None
    explain: bool
    summary: bool
    #: Labels to show; None means all.
    fields: tuple[str, ...] | None
    cursor: LogCursor | None


@dataclass
class LogWork(abc.ABC):
    """One stream: reads the entries of a query and puts them into the pipe."""

    service: QueryService
    request: LogRequest
    caller: Caller
    sent: int = 0
    #: None until entries are read: a client that had all of them already reads nothing.
    _source: LakeQuery | None = None
    _fingerprint: str | None = None
    _last_ns: int | None = None
    _of_last: int = 0

    @property
    def text(self) -> str:
        return self.request.question.text

    @property
    def timeout_s(self) -> float | None:
        return self.request.timeout_s

    def run(self, query: RunningQuery, pipe: Pipe) -> None:
        cursor, limit = self.request.cursor, self.request.limit
        if cursor is not None:
            self.sent, self._last_ns, self._of_last = cursor.sent, cursor.time_ns, cursor.of_instant
        if not limit or self.sent < limit:
            try:
                for batch in self._entries(query):
                    self._put(batch, query, pipe)
            finally:
                self.service.admission.charge(query, 0.0 if self._stats is None else self._stats.worker_cpu_s)
        warnings = [] if self._stats is None else list(self._stats.warnings())
        pipe.put(self.ending(warnings, self._summary(query)), query)

    def _entries(self, query: RunningQuery) -> Iterator[pa.RecordBatch]:
        """The entries that the client has not got yet."""
        question, cursor = self._left(), self.request.cursor
        plan = self.service.compile(question, self.caller)
        if not isinstance(plan, RowPlan):
            raise Bug(f"cannot stream entries: the plan is a {type(plan).__name__}, not a RowPlan")
        self._source = source = self.service.source(query, partial=question.partial)
        source.look_up(plan.leaves)
        if cursor is None:
            self._fingerprint = source.keep_snapshot()
            yield from source.rows(plan)
            return
        if cursor.fingerprint is None:
            raise Conflict(
                "cannot resume the stream: it did not read all segments, or the index did not answer",
                hint="start again, without Last-Event-ID",
            )
        source.return_to(cursor.fingerprint)
        self._fingerprint = cursor.fingerprint
        skip = cursor.of_instant
        for batch in source.rows(plan):
            known = min(skip, batch.num_rows)
            skip -= known
            yield batch.slice(known)

    def _left(self) -> Question:
        """The query of what is left: it begins at the instant of the last entry, whose first entries are known."""
        question, cursor = self.request.question, self.request.cursor
        if cursor is None:
            return question
        start_ns, end_ns = cursor.start_ns, cursor.end_ns
        if question.newest_first:
            end_ns = cursor.time_ns + 1
        else:
            start_ns = cursor.time_ns
        limit = None if question.limit is None else question.limit - cursor.sent + cursor.of_instant
        # A segment that cannot be read would shift the places of entries.
        return replace(question, times=QueryTimes.of_ns(start_ns, end_ns, 0), limit=limit, partial=False)

    def _put(self, batch: pa.RecordBatch, query: RunningQuery, pipe: Pipe) -> None:
        for first in range(0, batch.num_rows, _PIECE_ENTRIES):
            piece = batch.slice(first, _PIECE_ENTRIES)
            times = piece.column(TIME).cast(pa.int64()).to_numpy(zero_copy_only=False)
            places = places_in_instants(times, self._last_ns, self._of_last)
            self._last_ns, self._of_last = int(times[-1]), int(places[-1])
            pipe.put(self.encoded(piece, places), query)
            self.sent += len(times)
            query.check()

    @abc.abstractmethod
    def encoded(self, piece: pa.RecordBatch, places: Ints) -> bytes:
        """Entries for the client. `places` are theirs among the entries of their instant."""

    @abc.abstractmethod
    def ending(self, warnings: list[str], summary: dict[str, object]) -> bytes:
        """The end of the stream."""

    def _summary(self, query: RunningQuery) -> dict[str, object]:
        times, stats = self.request.question.times, self._stats
        summary: dict[str, object] = {
            "queryId": query.query_id,
            "startMs": times.start_ms,
            "endMs": times.end_ms,
            "results": self.sent,
            "truncated": bool(self.request.limit) and self.sent >= self.request.limit,
            "elapsedSeconds": round(query.elapsed_s, 6),
        }
        if stats is not None:
            summary |= stats.to_json() | (stats.explanation() if self.request.explain else {})
        return summary

    @property
    def _stats(self) -> QueryStats | None:
        return None if self._source is None else self._source.stats

    def id_stem(self) -> bytes:
        cursor, times = self.request.cursor, self.request.question.times
        bounds = (times.start_ns, times.end_ns) if cursor is None else (cursor.start_ns, cursor.end_ns)
        # Once a segment is missing, places say nothing about a stream that has it.
        complete = self._stats is None or not self._stats.segments_failed
        fingerprint = self._fingerprint if complete else None
        return log_id_stem(*bounds, fingerprint)


class LogEvents(LogWork):
    """A stream of server-sent events."""

    def encoded(self, piece: pa.RecordBatch, places: Ints) -> bytes:
        frames = log_frames(piece, self.id_stem(), places, self.sent, self.request.fields)
        read = {} if self._stats is None else self._stats.counts()
        return frames + frame("progress", {"results": self.sent + piece.num_rows, **read})

    def ending(self, warnings: list[str], summary: dict[str, object]) -> bytes:
        end = frame("warnings", {"warnings": warnings, "infos": []}) if warnings else b""
        return end + frame("summary", summary) if self.request.summary else end


@dataclass
class LogBatches(LogWork):
    """An Arrow IPC stream. Every batch has the position from which the stream can be resumed after it."""

    writer: ArrowWriter = field(default_factory=ArrowWriter)

    def encoded(self, piece: pa.RecordBatch, places: Ints) -> bytes:
        last = b"%d_%d_%d" % (self._last_ns or 0, int(places[-1]), self.sent + piece.num_rows)
        return self.writer.batch(piece, {CURSOR: self.id_stem() + last})

    def ending(self, warnings: list[str], summary: dict[str, object]) -> bytes:
        return self.writer.last({"warnings": warnings, **summary})
