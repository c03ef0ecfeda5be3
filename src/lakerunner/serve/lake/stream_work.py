"""The work behind a stream, in a thread: groups evaluated, frames made, handed to the event loop as it takes them."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass

from lakerunner.query.evalflow import EvalFlow, joined
from lakerunner.query.lake_port import ScanStats
from lakerunner.query.series.results import MatrixResult
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.lake.cursor import id_stem
from lakerunner.serve.lake.frames import frame, result_frames
from lakerunner.serve.lake.request import StreamRequest
from lakerunner.serve.service import Answer, CacheOutcome, Place, QueryService, shortfalls

#: Pieces made and not yet sent. A client that reads slowly makes the evaluation wait, until its time is over.
_PIECES = 16
#: How often a thread that waits for its client looks whether it is still wanted.
_LOOK_S = 0.25
#: Samples of an answer that is put together again to be kept.
_KEPT_SAMPLES = 2_000_000


class Pipe:
    """Bytes from a thread to the event loop, a bounded number of pieces at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._room = threading.Semaphore(_PIECES)
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.ended = False

    def put(self, piece: bytes, query: RunningQuery) -> None:
        """From the thread. Waits for room; raises when the query is not wanted any more."""
        while not self._room.acquire(timeout=_LOOK_S):
            query.check()
        self._loop.call_soon_threadsafe(self._pieces.put_nowait, piece)

    def end(self) -> None:
        """On the loop: nothing comes after what was put."""
        self._pieces.put_nowait(None)

    async def get(self, timeout_s: float) -> bytes | None:
        """The next piece; None after that time, or at the end."""
        try:
            piece = await asyncio.wait_for(self._pieces.get(), timeout_s)
        except TimeoutError:
            return None
        if piece is None:
            self.ended = True
        else:
            self._room.release()
        return piece


@dataclass
class StreamWork:
    service: QueryService
    wanted: StreamRequest
    pipe: Pipe
    sent: int = 0
    truncated: bool = False

    def run(self, query: RunningQuery) -> None:
        cursor = self.wanted.cursor
        if cursor is not None and cursor.ended:
            return
        question = self.wanted.question
        expr, extent = self.service.read(question, query.caller)
        place = self.service.place(question, query, expr, extent)
        kept = self.service.kept(place, query)
        if kept is not None and isinstance(kept.result.value, MatrixResult):
            self._results(query, kept.result.value)
            self._ending(query, kept)
        else:
            self._ending(query, self._computed(query, place))

    def _computed(self, query: RunningQuery, place: Place | None) -> Answer:
        question, cursor = self.wanted.question, self.wanted.cursor
        options = self.service.options(question, query)
        source = self.service.source(question, query, options)
        from_ms = None if cursor is None else cursor.time_ms
        flow = EvalFlow(source, question.text, question.context, options, query.check, from_ms)
        matrices: list[MatrixResult] = []
        for group in flow:
            self._results(query, group.matrix)
            if self.truncated:
                break
            done = {"group": group.number + 1, "groups": group.groups, "upToMs": group.end_ms}
            self.pipe.put(frame("progress", {**done, **_read(source.stats())}), query)
            if flow.samples < _KEPT_SAMPLES:
                matrices.append(group.matrix)
        self.service.charge(query, source)
        result = joined(flow, matrices)
        if cursor is None and not self.truncated and flow.samples < _KEPT_SAMPLES:
            self.service.keep(place, result, source.stats())
        outcome: CacheOutcome = "bypass" if place is None else "miss"
        return Answer(result, source.stats(), outcome, query.query_id, query.elapsed_s, source.explain())

    def _results(self, query: RunningQuery, matrix: MatrixResult) -> None:
        cursor, limit = self.wanted.cursor, self.wanted.limit
        question = self.wanted.question
        stem = id_stem(question.start_ms, question.end_ms, question.step_ms)
        skip = None if cursor is None else (cursor.time_ms, cursor.place)
        for piece, number in result_frames(matrix, stem, skip, limit - self.sent if limit else None):
            self.pipe.put(piece, query)
            self.sent += number
            query.check()
        self.truncated = bool(limit) and self.sent >= limit

    def _ending(self, query: RunningQuery, answer: Answer) -> None:
        """Warnings and the summary. The summary's id says that all results arrived."""
        warnings, infos = [*answer.result.warnings, *shortfalls(answer.stats)], answer.result.infos
        if warnings or infos:
            self.pipe.put(frame("warnings", {"warnings": warnings, "infos": infos}), query)
        if not self.wanted.summary:
            return
        question = self.wanted.question
        summary: dict[str, object] = {
            "queryId": query.query_id,
            "startMs": question.start_ms,
            "endMs": question.end_ms,
            "stepMs": question.step_ms,
            "results": self.sent,
            "truncated": self.truncated,
            "samples": answer.result.samples,
            "cache": answer.cache,
            "elapsedSeconds": round(query.elapsed_s, 6),
            **answer.stats.to_json(),
        }
        if self.wanted.explain:
            summary |= answer.explanation()
        stem = id_stem(question.start_ms, question.end_ms, question.step_ms)
        self.pipe.put(frame("summary", summary, stem + b"%d_end" % question.start_ms), query)


def _read(stats: ScanStats) -> dict[str, object]:
    return {
        "segmentsPlanned": stats.segments_planned,
        "segmentsRead": stats.segments_read,
        "segmentsFailed": stats.segments_failed,
        "rows": stats.rows,
        "bytes": stats.bytes,
    }
