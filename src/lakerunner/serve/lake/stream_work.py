"""The work behind a stream, in a thread: evaluates groups of steps and passes their frames to the event loop."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from lakerunner.model.errors import Conflict
from lakerunner.query.lake_query import LakeQuery
from lakerunner.query.language import StepPlan
from lakerunner.query.run import STREAMED_GROUPS, StepRun, joined
from lakerunner.query.series.results import MatrixResult
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.lake.cursor import id_stem
from lakerunner.serve.lake.frames import frame, result_frames
from lakerunner.serve.lake.pipe import Pipe
from lakerunner.serve.lake.request import StreamRequest
from lakerunner.serve.service import Answer, Opened, QueryService

#: A streamed answer of fewer samples is joined again for the cache.
_MAX_CACHED_SAMPLES = 2_000_000


@dataclass
class StreamWork:
    """One stream: runs the plan in groups of steps and puts their frames into the pipe."""

    service: QueryService
    request: StreamRequest
    plan: StepPlan
    sent: int = 0
    truncated: bool = False
    pipe: Pipe = field(init=False)
    _source: LakeQuery = field(init=False)
    _fingerprint: str | None = field(init=False)

    @property
    def text(self) -> str:
        return self.request.question.text

    @property
    def timeout_s(self) -> float | None:
        return self.request.timeout_s

    def run(self, query: RunningQuery, pipe: Pipe) -> None:
        self.pipe = pipe
        cursor = self.request.cursor
        if cursor is not None and cursor.ended:
            return
        opened = self._opened(query)
        cached = self.service.cached(opened, query)
        if cached is not None and isinstance(cached.result.value, MatrixResult):
            self._put_results(query, cached.result.value)
            self._put_ending(query, cached)
        else:
            self._put_ending(query, self._compute(query, opened))

    def _opened(self, query: RunningQuery) -> Opened:
        """The plan over the present segments, or over those of the stream that is resumed."""
        cursor, question = self.request.cursor, self.request.question
        if cursor is None:
            opened = self.service.open(self.plan, question, query)
            self._source, self._fingerprint = opened.source, opened.source.keep_snapshot()
            return opened
        if cursor.fingerprint is None:
            raise Conflict(
                "cannot resume the stream: it did not read all segments, or the index did not answer",
                hint="start again, without Last-Event-ID",
            )
        # A segment that cannot be read would shift the positions. The cache has answers over the present segments.
        # Which steps rules answer depends on the present segments, and so would the last digits of sums.
        question = replace(question, partial=False, fresh=True, rewrite=False)
        opened = self.service.open(self.plan, question, query)
        opened.source.return_to(cursor.fingerprint)
        self._source, self._fingerprint = opened.source, cursor.fingerprint
        return opened

    def _compute(self, query: RunningQuery, opened: Opened) -> Answer:
        cursor, source = self.request.cursor, opened.source
        from_ms = None if cursor is None else cursor.time_ms
        plan = opened.plan
        assert isinstance(plan, StepPlan)
        steps = StepRun(plan, source, query.check, from_ms, STREAMED_GROUPS)
        began_cpu_s = time.thread_time()
        matrices: list[MatrixResult] = []
        for group in steps:
            self._put_results(query, group.matrix)
            if self.truncated:
                break
            done = {"group": group.number + 1, "groups": group.groups, "upToMs": group.end_ms}
            self.pipe.put(frame("progress", {**done, **source.stats.counts()}), query)
            if steps.samples < _MAX_CACHED_SAMPLES:
                matrices.append(group.matrix)
        self.service.admission.charge(query, source.stats.worker_cpu_s)
        self.service.logged(opened, query, time.thread_time() - began_cpu_s)
        result = joined(steps, matrices)
        if cursor is None and not self.truncated and steps.samples < _MAX_CACHED_SAMPLES:
            self.service.keep(opened, result)
        return Answer(result, source.stats, opened.outcome, query.query_id, query.elapsed_s)

    def _put_results(self, query: RunningQuery, matrix: MatrixResult) -> None:
        cursor, limit = self.request.cursor, self.request.limit
        skip = None if cursor is None else (cursor.time_ms, cursor.position)
        for piece, number in result_frames(matrix, self._id_stem(), skip, limit - self.sent if limit else None):
            self.pipe.put(piece, query)
            self.sent += number
            query.check()
        self.truncated = bool(limit) and self.sent >= limit

    def _put_ending(self, query: RunningQuery, answer: Answer) -> None:
        """Send the warnings and the summary. The summary's id marks that all results were sent."""
        if answer.warnings or answer.result.infos:
            self.pipe.put(frame("warnings", {"warnings": answer.warnings, "infos": answer.result.infos}), query)
        if not self.request.summary:
            return
        times = self.plan.times
        summary: dict[str, object] = {
            "queryId": query.query_id,
            "startMs": times.start_ms,
            "endMs": times.end_ms,
            "stepMs": times.step_ms,
            "results": self.sent,
            "truncated": self.truncated,
            "samples": answer.result.samples,
            "cache": answer.cache,
            "elapsedSeconds": round(query.elapsed_s, 6),
            **answer.stats.to_json(),
        }
        if self.request.explain:
            summary |= answer.explanation()
        self.pipe.put(frame("summary", summary, self._id_stem() + b"%d_end" % times.start_ms), query)

    def _id_stem(self) -> bytes:
        times = self.plan.times
        # Once a segment is missing, positions say nothing about a stream that has it.
        fingerprint = None if self._source.stats.segments_failed else self._fingerprint
        return id_stem(times.start_ms, times.end_ms, times.step_ms, fingerprint)
