"""Evaluates a fragment next to its segments: its language reads only the segments that the request names."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import orjson
import pyarrow as pa

from lakerunner.model.errors import BadInput, Bug, LakeError, Unavailable
from lakerunner.query.fanout.answer import Check, SegmentAnswer
from lakerunner.query.fanout.budget import Budget
from lakerunner.query.fanout.errors import Unread
from lakerunner.query.fanout.protocol import EvaluateRequest, Kind, ScanRequest
from lakerunner.query.languages import language
from lakerunner.query.plan.leaf import Leaf
from lakerunner.query.scan.rows.conditions.predicate import Predicate, to_json
from lakerunner.query.scan.rows.request import RowScan, RowSegment, RowTally
from lakerunner.query.scan.rows.row_group.rows import KeptForm, ReadableRows, Shape
from lakerunner.query.scan.rows.scan import row_schema, scan_segments
from lakerunner.query.scan.rows.unordered import map_groups
from lakerunner.query.scan.samples.merge import merge
from lakerunner.query.series.batch import SeriesBatch
from lakerunner.query.series.matchers import Matcher
from lakerunner.query.series.reading import RAW, Reading
from lakerunner.runtime.telemetry import log

if TYPE_CHECKING:
    from lakerunner.query.fanout.local_workers import LocalWorkers

T = TypeVar("T")
#: How many predicates a note names, and how large one may be.
_MAX_PREDICATES, _MAX_PREDICATE_BYTES = 8, 4_096
#: Predicates as notes show them, by identity, with the predicate, which no other can replace as long as it is here.
_SHOWN: dict[int, tuple[Predicate, dict[str, Any]]] = {}
_MAX_SHOWN = 128


class FragmentEvaluation:
    """One evaluation, and the `Source` that its language reads from.

    An unreadable metric segment ends the evaluation: the API then reads segment by segment and reports what is missing.
    An evaluation of rows leaves an unreadable segment out and names it in the note.
    """

    def __init__(self, request: EvaluateRequest, workers: LocalWorkers, check: Check) -> None:
        self._request = request
        self._workers = workers
        self._check = check
        self._stopped = False
        self._budget: Budget | None = None
        self._answers: list[SegmentAnswer] = []
        self._tally = RowTally()
        self._predicates: list[Predicate] = []
        #: The language's note, the costs and the failures. Set after the last batch.
        self.note: dict[str, Any] = {}

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The fragment's value, batch by batch."""
        began_s = time.thread_time()
        fragment = self._request.fragment
        try:
            with self._workers.budgets.opened(self._request, self._look) as self._budget:
                stream = language(fragment.language).evaluate(fragment.payload, self, self._budget.look)
                for batch in stream.batches:
                    self._look()
                    yield batch
                note = stream.note()
        except LakeError:
            raise
        except Exception as reason:  # noqa: BLE001  (else the client believes that the worker died, and tries others)
            log().exception("evaluation failed", language=fragment.language)
            raise Bug(f"cannot evaluate the fragment: {reason!r}") from None
        # CPU time of this thread and of those that scan rows, and the elapsed time of those that scan samples, which is
        # close to it.
        cpu_s = time.thread_time() - began_s + self._tally.cpu_s + sum(each.cost.scan_s for each in self._answers)
        costs = [{"segment": str(answer.segment_id), **answer.cost.to_json()} for answer in self._answers]
        self.note = {**note, "cpu_s": cpu_s, "costs": costs}
        if fragment.rows:
            self.note["tally"] = self._tally.to_json()
            self.note["predicates"] = [_shown(predicate) for predicate in self._predicates]

    @property
    def stopped(self) -> bool:
        return self._stopped

    def stop(self) -> None:
        """End the evaluation at its next check, because the client is gone."""
        self._stopped = True

    # -- the source that the language reads from -----------------------------------------------------------------

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int, reading: Reading = RAW) -> SeriesBatch:
        request = self._request
        leaf = Leaf.of_samples(matchers, start_ms, end_ms, reading)
        read = next((each for each in request.fragment.reads if each.leaf == leaf), None)
        if read is None:
            raise BadInput("cannot evaluate the fragment: it selects series that its request does not name")
        if not read.segments:
            return SeriesBatch.empty()
        scan = ScanRequest(
            org_id=request.org_id,
            query_id=request.query_id,
            segments=tuple(request.segments[number] for number in read.segments),
            deadline_s=request.deadline_s,
            max_bytes=request.max_bytes,
            kind=Kind.SAMPLES,
            leaf=leaf,
            pieces=read.pieces,
            small=request.small,
        )
        answers = []
        for answer in self._workers.scan(scan, self._look):
            if answer.error is not None:
                raise Unread(answer.error)
            # Kept without the samples, which are freed once they are merged.
            self._answers.append(dataclasses.replace(answer, samples=()) if answer.samples else answer)
            answers.append(answer)
        answers.sort(key=lambda answer: answer.segment_id)
        parts = [part for answer in answers for part in answer.samples]
        if self._budget is not None:
            self._budget.settle(sum(part.size_bytes for part in parts))
        batch = merge(parts, request.org_id, start_ms)
        if batch.rollup is not None and not batch.rollup.derivable:
            # The API has the raw segments too, and evaluates over these.
            raise Unread("cannot evaluate the fragment over tiers: the function needs raw samples of these series")
        return batch

    def rows(self, scan: RowScan, shape: Shape | None = None) -> Iterator[pa.RecordBatch]:
        self._remember(scan.predicate)
        workers, segments = self._workers, self._row_segments()
        return scan_segments(
            workers.row_opener, segments, scan, self._spend, self._tally, _leave_out, workers.pool, shape
        )

    def mapped(self, scan: RowScan, make: Callable[[ReadableRows], T], form: KeptForm[T] | None = None) -> Iterator[T]:
        self._remember(scan.predicate)
        workers, segments = self._workers, self._row_segments()
        before = self._tally.rows_found
        yield from map_groups(
            workers.row_opener,
            segments,
            scan,
            self._spend,
            self._tally,
            _leave_out,
            make,
            workers.pool,
            small=self._request.small,
            form=form,
        )
        self._tally.rows += self._tally.rows_found - before

    def row_schema(self, scan: RowScan) -> pa.Schema:
        return row_schema(self._workers.row_opener, self._row_segments(), scan, self._spend, self._tally, _leave_out)

    def _remember(self, predicate: Predicate) -> None:
        """Remember for EXPLAIN what the scans were asked for; the pieces of one query ask for the same."""
        if len(self._predicates) < _MAX_PREDICATES and predicate not in self._predicates:
            self._predicates.append(predicate)

    def _row_segments(self) -> list[RowSegment]:
        return [
            RowSegment(each.segment_id, each.keys[0], each.size_bytes, each.start_ns, each.end_ns, each.hidden)
            for each in self._request.segments
        ]

    def _spend(self, held_bytes: int) -> None:
        assert self._budget is not None
        self._budget.look(held_bytes)

    def _look(self) -> None:
        if self._stopped:
            raise Unavailable("cannot continue the evaluation: the client has gone")
        self._check()


def _shown(predicate: Predicate) -> dict[str, Any]:
    """The predicate as JSON. It is found by identity: compiled queries are kept, and comparing trees takes long."""
    known = _SHOWN.get(id(predicate))
    if known is None or known[0] is not predicate:
        if len(_SHOWN) >= _MAX_SHOWN:
            _SHOWN.clear()
        known = _SHOWN[id(predicate)] = predicate, _as_json(predicate)
    return known[1]


def _as_json(predicate: Predicate) -> dict[str, Any]:
    """The predicate, if it is not too large to be read."""
    document = to_json(predicate)
    try:
        size_bytes = len(orjson.dumps(document))
    except TypeError:
        return {"omitted": "it has an integer of more than 64 bits"}
    return document if size_bytes <= _MAX_PREDICATE_BYTES else {"omitted": f"{size_bytes:,} bytes"}


def _leave_out(segment: RowSegment, error: LakeError) -> None:
    """Continue without the segment: the tally names it."""
