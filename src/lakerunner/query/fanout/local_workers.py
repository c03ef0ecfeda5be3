"""Scans in this process: the work of a worker, and the replacement for workers where there are none."""

from __future__ import annotations

import itertools
import time
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

import pyarrow as pa

from lakerunner.model.errors import LakeError, LimitHit, Unavailable
from lakerunner.query.fanout.answer import Check, Cost, EvaluateAnswer, SegmentAnswer
from lakerunner.query.fanout.budget import Budget, Budgets
from lakerunner.query.fanout.fragment import FragmentEvaluation
from lakerunner.query.fanout.joined_tiers import JoinedTiers
from lakerunner.query.fanout.protocol import EvaluateRequest, Kind, ScanRequest, SegmentObjects
from lakerunner.query.metrics import SCAN_ERRORS, SCAN_ROWS, SCAN_SECONDS
from lakerunner.query.scan.object_cache import DAMAGED_HINT
from lakerunner.query.scan.rows.filter_bytes import packed_filters
from lakerunner.query.scan.rows.opened import RowsOpener
from lakerunner.query.scan.rows.request import RowSegment
from lakerunner.query.scan.samples.exemplars import scan_exemplars
from lakerunner.query.scan.samples.label_rows import scan_labels
from lakerunner.query.scan.samples.opened import BAD_BYTES, Opener, SampleTally
from lakerunner.query.scan.samples.rollups import needed
from lakerunner.query.scan.samples.runs import Samples
from lakerunner.query.scan.samples.segment import scan_samples
from lakerunner.query.scan.samples.series_rows import scan_series

#: How often a thread that waits for a scan checks whether the answer is still wanted.
_POLL_S = 0.1
#: Choosing series and times among this many decoded rows takes a few milliseconds.
_QUICK_ROWS = 1_000_000
#: A small segment is decoded by many short calls, between which threads hand the interpreter's lock to each other: of
#: 24 segments of 150 KB, four threads on two cores took 2.2 times the CPU of one, and no less time (2026-11-17).
_SMALL_BYTES = 512 << 10
_SMALL_TOTAL_BYTES = 16 << 20
#: A fetch that takes longer is worth a thread.
_SLOW_FETCH_S = 0.02


class LocalWorkers:
    """Scans segments in a pool of threads. Reading and decoding release the interpreter's lock."""

    def __init__(self, opener: Opener, row_opener: RowsOpener, threads: int) -> None:
        self._opener = opener
        self.row_opener = row_opener
        self._closing = False
        self.budgets = Budgets()
        self._joined = JoinedTiers(opener.memory)
        self._share = max(1, threads // 2)
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix="scan")

    def scan(self, request: ScanRequest, check: Check) -> Iterator[SegmentAnswer]:
        def wanted() -> None:
            if self._closing:
                raise Unavailable("cannot continue the scan: the worker is shutting down")
            check()

        with self.budgets.opened(request, wanted) as budget:
            yield from self._answers(request, budget)

    def _answers(self, request: ScanRequest, budget: Budget) -> Iterator[SegmentAnswer]:
        def settle(held_bytes: int) -> None:
            budget.look(held_bytes)
            budget.settle(held_bytes)

        answers, rest = self._joined.answer(request, lambda part: self._one_by_one(part, budget), settle)
        yield from answers
        if rest.segments:
            yield from self._one_by_one(rest, budget)

    def _one_by_one(self, request: ScanRequest, budget: Budget) -> Iterator[SegmentAnswer]:
        if self._is_quick(request):
            # Threads of the pool would only add thread switches.
            for segment in request.segments:
                yield self._scan(request, segment, budget)
            return
        if _are_small(request.segments):
            yield from self._here(request, budget)
            return
        segments = iter(request.segments)
        waiting: set[Future[SegmentAnswer]] = set()
        try:
            while True:
                # A few at a time: a request for very many segments must leave threads for other requests.
                for segment in itertools.islice(segments, self._share - len(waiting)):
                    waiting.add(self.pool.submit(self._scan, request, segment, budget))
                if not waiting:
                    return
                done, waiting = wait(waiting, timeout=_POLL_S, return_when=FIRST_COMPLETED)
                budget.look()
                for future in done:
                    yield future.result()
        except BaseException:
            budget.stop(Unavailable("cannot continue the scan: the client has gone"))
            raise
        finally:
            for future in waiting:
                future.cancel()

    def _here(self, request: ScanRequest, budget: Budget) -> Iterator[SegmentAnswer]:
        """Scan in this thread, while threads of the pool fetch what comes next."""
        ahead: deque[Future[SampleTally]] = deque()
        is_slow = self._opener.is_remote
        try:
            for number, segment in enumerate(request.segments):
                if is_slow:
                    for each in request.segments[number + len(ahead) : number + self._share]:
                        ahead.append(self.pool.submit(self._opener.fetch, each.keys))
                fetched = _within(ahead.popleft(), budget) if ahead else None
                answer = self._scan(request, segment, budget, fetched)
                # A folder may be a mount of another machine.
                is_slow = is_slow or answer.cost.fetch_s > _SLOW_FETCH_S
                yield answer
        finally:
            for future in ahead:
                future.cancel()

    def _is_quick(self, request: ScanRequest) -> bool:
        """Whether there is nothing to wait for, and little to do."""
        opener, segments = self._opener, request.segments
        if request.small or len(segments) == 1:
            return all(opener.is_local(segment.keys) for segment in segments)
        if request.kind is not Kind.SAMPLES:
            return False
        total = 0
        for segment in segments:
            rows = opener.decoded_rows(segment.keys, needed(request.leaf.reading.need, segment.tier_s))
            if rows is None:
                return False
            total += rows
        return total <= _QUICK_ROWS

    @property
    def count(self) -> int:
        return 0

    def shares(self, org_id: uuid.UUID, segments: Sequence[SegmentObjects]) -> list[list[SegmentObjects]]:
        return [list(segments)]

    def places(self, org_id: uuid.UUID, parts: Sequence[Sequence[SegmentObjects]]) -> list[str | None]:
        return [None] * len(parts)

    def evaluate(self, request: EvaluateRequest, check: Check) -> None:
        """Always None: the caller runs in this process and can evaluate just as well."""
        return None

    def stream(self, request: EvaluateRequest, check: Check) -> Iterator[pa.RecordBatch | EvaluateAnswer]:
        """Evaluate the fragment in this process, batch by batch."""
        evaluation = FragmentEvaluation(request, self, check)
        yield from evaluation.batches()
        yield EvaluateAnswer.of_note(evaluation.note, "here")

    def filters(
        self, org_id: uuid.UUID, segments: Sequence[SegmentObjects]
    ) -> Iterator[tuple[uuid.UUID, bytes]]:  # fmt: skip
        """Nothing: what reads in this process has the filters at hand."""
        return iter(())

    def packed_filters(self, segments: Sequence[SegmentObjects]) -> Iterator[bytes]:
        """The filters of segments of rows, for those who want to hold them."""
        for each in segments:
            segment = RowSegment(each.segment_id, each.keys[0], each.size_bytes, each.start_ns, each.end_ns)
            yield packed_filters(self.row_opener, segment)

    def forget(self) -> None:
        """Empty the caches in memory. They refill on demand."""
        self._opener.forget()
        self.row_opener.forget()

    def close(self) -> None:
        """Stop. Scans under way end at their next check."""
        self._closing = True
        self.pool.shutdown(wait=False, cancel_futures=True)

    def _scan(
        self, request: ScanRequest, segment: SegmentObjects, budget: Budget, fetched: SampleTally | None = None
    ) -> SegmentAnswer:
        """Scan one segment. Raises only what ends the whole request: a limit, or its cancellation.

        `fetched` is what fetching its objects cost already.
        """
        budget.look()
        tally = fetched or SampleTally()
        started = time.perf_counter() - tally.fetch_s
        samples: list[Samples] = []
        table: pa.Table | None = None
        leaf = request.leaf
        try:
            if request.kind is Kind.SAMPLES:
                spans, need = request.spans_ms(segment), needed(leaf.reading.need, segment.tier_s)
                samples = scan_samples(
                    self._opener, segment.keys, leaf.matchers, spans, budget.look, tally, need, segment.hidden
                )
                budget.settle(sum(part.size_bytes for part in samples))
            elif request.kind is Kind.SERIES:
                table = scan_series(self._opener, segment.keys, leaf.matchers, budget.look, tally, segment.hidden)
            elif request.kind is Kind.LABELS:
                table = scan_labels(
                    self._opener, segment.keys, leaf.matchers, request.label, budget.look, tally, segment.hidden
                )
            else:
                table = scan_exemplars(
                    self._opener,
                    segment.keys,
                    leaf.matchers,
                    leaf.start_ms,
                    leaf.end_ms,
                    budget.look,
                    tally,
                    segment.hidden,
                )
        except LimitHit:
            raise
        except LakeError as error:
            budget.look()
            SCAN_ERRORS.labels(error.code).inc()
            return SegmentAnswer(segment.segment_id, cost=_cost(tally, 0, started), error=str(error))
        except BAD_BYTES as error:
            SCAN_ERRORS.labels("bad_bytes").inc()
            reason = f"cannot read segment {segment.segment_id}: {type(error).__name__}: {error}; {DAMAGED_HINT}"
            return SegmentAnswer(segment.segment_id, cost=_cost(tally, 0, started), error=reason)
        rows = sum(map(len, samples)) if table is None else table.num_rows
        cost = _cost(tally, rows, started)
        SCAN_SECONDS.labels(request.kind.value).observe(cost.fetch_s + cost.scan_s)
        SCAN_ROWS.labels(request.kind.value).inc(rows)
        return SegmentAnswer(segment.segment_id, samples, table, cost)


def _are_small(segments: Sequence[SegmentObjects]) -> bool:
    sizes = [segment.size_bytes for segment in segments]
    return max(sizes, default=0) <= _SMALL_BYTES and sum(sizes) <= _SMALL_TOTAL_BYTES


def _within(fetch: Future[SampleTally], budget: Budget) -> SampleTally:
    """What a fetch cost, while the answer is still wanted."""
    while True:
        try:
            return fetch.result(_POLL_S)
        except TimeoutError:
            budget.look()


def _cost(tally: SampleTally, rows: int, started: float) -> Cost:
    scan_s = time.perf_counter() - started - tally.fetch_s
    return Cost(rows, tally.read_bytes, tally.hits, tally.misses, tally.fetch_s, scan_s)
