"""The worker's side of an errand: its series, read from its segments, and the part evaluated over them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

from lakerunner.model.errors import BadInput, Bug, LakeError, Unavailable
from lakerunner.query.fanout.answer import Check, SegmentAnswer
from lakerunner.query.fanout.budget import Budget
from lakerunner.query.fanout.errors import Unread
from lakerunner.query.fanout.local_workers import LocalWorkers
from lakerunner.query.fanout.request import Kind, ScanRequest
from lakerunner.query.promql.part import Evaluated, evaluated_here
from lakerunner.query.pushdown.errand import Errand
from lakerunner.query.scan.samples.merge import merge
from lakerunner.query.series.batch import SeriesBatch
from lakerunner.query.series.matchers import Matcher
from lakerunner.runtime.telemetry import log


class ErrandSource:
    """Implements `SeriesSource`. A segment that cannot be read ends the errand: who sent it knows what to do then."""

    def __init__(self, errand: Errand, workers: LocalWorkers, check: Check) -> None:
        self._errand = errand
        self._workers = workers
        self._check = check
        self._stopped = False
        self._budget: Budget | None = None
        self._reads = {(read.matchers, read.start_ms, read.end_ms): read.segments for read in errand.reads}
        self._answers: list[SegmentAnswer] = []
        #: Of a core: the evaluation's own and that of the scans, whose clock is near it.
        self.cpu_s = 0.0

    def evaluated(self) -> Evaluated:
        """The part's value. All that it holds on the way counts as its query's."""
        began_s = time.thread_time()
        try:
            with self._workers.budgets.opened(self._errand, self._look) as self._budget:
                return evaluated_here(self, self._errand.part, self._budget.look)
        except LakeError:
            raise
        except Exception as reason:  # noqa: BLE001  (else it counts as the worker's death, and then as the others')
            log().exception("evaluation failed", query=self._errand.part.text[:500])
            raise Bug(f"cannot evaluate the part: {reason!r}") from None
        finally:
            self.cpu_s = time.thread_time() - began_s + sum(answer.cost.scan_s for answer in self._answers)

    def stop(self) -> None:
        """Nobody waits any more: whatever is under way ends at its next look."""
        self._stopped = True

    def costs(self) -> list[dict[str, Any]]:
        """What each segment took, once a select that needed it."""
        return [{"segment": str(answer.segment_id), **answer.cost.to_json()} for answer in self._answers]

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> SeriesBatch:
        errand = self._errand
        segments = self._reads.get((tuple(matchers), start_ms, end_ms))
        if segments is None:
            raise BadInput("cannot evaluate the part: it selects what its errand does not name")
        if not segments:
            return SeriesBatch.empty()
        request = ScanRequest(
            org_id=errand.org_id,
            query_id=errand.query_id,
            kind=Kind.SAMPLES,
            segments=tuple(errand.segments[place] for place in segments),
            matchers=tuple(matchers),
            start_ms=start_ms,
            end_ms=end_ms,
            deadline_s=errand.deadline_s,
            max_bytes=errand.max_bytes,
        )
        answers = []
        for answer in self._workers.scan(request, self._look):
            if answer.error is not None:
                raise Unread(answer.error)
            # Without the samples, which are merged and then let go.
            self._answers.append(dataclasses.replace(answer, samples=()))
            answers.append(answer)
        answers.sort(key=lambda answer: answer.segment_id)
        parts = [part for answer in answers for part in answer.samples]
        if self._budget is not None:
            self._budget.settle(sum(part.size_bytes for part in parts))
        return merge(parts, errand.org_id, start_ms)

    def _look(self) -> None:
        if self._stopped:
            raise Unavailable("cannot go on with the evaluation: nobody waits for it")
        self._check()
