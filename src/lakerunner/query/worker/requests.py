"""What a worker does with requests, however they reach it: it admits, bounds, evaluates and cancels them."""

from __future__ import annotations

import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import orjson
import pyarrow as pa

from lakerunner.model.errors import BadInput, LimitHit, Unavailable
from lakerunner.query.fanout.answer import Check, SegmentAnswer
from lakerunner.query.fanout.errors import Draining
from lakerunner.query.fanout.fragment import FragmentEvaluation
from lakerunner.query.fanout.local_workers import LocalWorkers
from lakerunner.query.fanout.protocol import (
    EvaluateRequest,
    R,
    Request,
    ScanRequest,
    read_document,
    read_filters_body,
    read_request,
)
from lakerunner.query.fanout.token import check_token
from lakerunner.query.metrics import WORKER_REQUESTS
from lakerunner.store.requests import take_requests

#: How many cancelled queries are remembered, because a request may arrive after its cancellation.
_MAX_CANCELLED = 1_024
#: How long a request waits for a free slot before it is refused.
_PATIENCE_S = 10.0
_POLL_S = 0.1
#: How often a request looks whether its client is still there.
_GONE_POLL_S = 0.05
#: How often a worker sends a sign of life during an evaluation.
_HEARTBEAT_S = 0.5
#: How many batches an evaluation may be ahead of the client.
_PENDING_BATCHES = 4

#: Whether the client of a request is gone.
Gone = Callable[[], bool]


class Requests:
    """The requests of one worker. Safe to share between threads and transports."""

    def __init__(self, workers: LocalWorkers, token: str, at_once: int, max_bytes: int) -> None:
        self._workers = workers
        self._token = token
        self._max_bytes = max_bytes
        self._slots = RequestSlots(at_once)
        self._evaluations = ThreadPoolExecutor(at_once, thread_name_prefix="evaluate")
        self._cancelled: dict[uuid.UUID, None] = {}
        self._lock = threading.Lock()
        self._under_way = 0
        self._draining = False

    def drain(self) -> None:
        """Refuse new work from now on. Requests under way continue."""
        with self._lock:
            self._draining = True

    @property
    def under_way(self) -> int:
        return self._under_way

    def document(self, body: bytes) -> Mapping[str, Any]:
        """A ticket or the body of an action, from somebody who knows the token."""
        document = read_document(body)
        check_token(str(document.get("token")), self._token)
        return document

    def request(self, ticket: bytes) -> Request:
        return read_request(self.document(ticket), self._max_bytes)

    def cancel(self, document: Mapping[str, Any]) -> None:
        """End all requests of a query."""
        try:
            query_id = uuid.UUID(document["query"])
        except (ValueError, KeyError, TypeError, AttributeError) as reason:
            raise BadInput(f"cannot read what to cancel: {reason!r}") from None
        self._cancelled[query_id] = None
        while len(self._cancelled) > _MAX_CANCELLED:
            self._cancelled.pop(next(iter(self._cancelled)), None)

    def filters(self, document: Mapping[str, Any]) -> list[bytes]:
        """The packed filters of the segments that are named, in their order. A segment without rows has none."""
        self.require_open()
        return list(self._workers.packed_filters(read_filters_body(document)))

    def require_open(self) -> None:
        if self._draining:
            raise Draining(
                "cannot take new work: the worker is ending what it has", hint="ask another worker, or retry later"
            )

    def scanned(self, request: ScanRequest, gone: Gone) -> Iterator[tuple[SegmentAnswer, Check]]:
        """What each segment holds, in any order, with a check for sending it."""
        with self._admitted(request, gone) as (bounded, check):
            for answer in self._workers.scan(bounded, check):
                yield answer, check

    def evaluated(self, request: EvaluateRequest, gone: Gone) -> Iterator[pa.RecordBatch | bytes | None]:
        """Yield the batches of the value, then the note.

        While there is no batch to send, there is a None now and then, so that the client can tell a busy worker from
        one that hangs. A slow client pauses the evaluation after a few batches.
        """
        with self._admitted(request, gone) as (bounded, check):
            evaluation = FragmentEvaluation(bounded, self._workers, check)
            if request.small:
                # A thread and a queue would cost more than the evaluation. Pings show that the worker lives.
                yield from list(evaluation.batches())
            else:
                yield from self._ahead(evaluation, check)
            requests = [list(each) for each in take_requests()]
            # A worker has no index: whoever asked stores what it read from the bucket.
            yield orjson.dumps({**evaluation.note, "requests": requests} if requests else evaluation.note)

    def _ahead(self, evaluation: FragmentEvaluation, check: Check) -> Iterator[pa.RecordBatch | None]:
        pending: queue.Queue[pa.RecordBatch | None] = queue.Queue(_PENDING_BATCHES)
        done = self._evaluations.submit(_pump, evaluation, pending)
        try:
            while True:
                try:
                    batch = pending.get(timeout=_HEARTBEAT_S)
                except queue.Empty:
                    check()
                    yield None
                    continue
                if batch is None:
                    break
                check()
                yield batch
            done.result()
        finally:
            evaluation.stop()

    @contextmanager
    def _admitted(self, request: R, gone: Gone) -> Iterator[tuple[R, Check]]:
        """The request, when its turn has come, and a check whether it goes on."""
        looked_at = time.monotonic()

        def check() -> None:
            nonlocal looked_at
            cancelled = bool(self._cancelled) and request.query_id in self._cancelled
            # Asking gRPC takes 0.1 ms, and evaluations check at every small step.
            if time.monotonic() - looked_at > _GONE_POLL_S:
                looked_at = time.monotonic()
                cancelled = cancelled or gone()
            if cancelled:
                raise LimitHit("cannot continue the scan: it was cancelled")

        self._count(1)
        try:
            self._wait_for_slot(request.org_id, check)
            try:
                yield request, check
            finally:
                self._slots.release(request.org_id)
        finally:
            self._count(-1)

    def _count(self, more: int) -> None:
        with self._lock:
            if more > 0:
                self.require_open()
            self._under_way += more
            WORKER_REQUESTS.set(self._under_way)

    def _wait_for_slot(self, org_id: uuid.UUID, check: Check) -> None:
        end_s = time.monotonic() + _PATIENCE_S
        while not self._slots.acquire(org_id, _POLL_S):
            check()
            if time.monotonic() > end_s:
                raise Unavailable("cannot scan now: the worker is busy with other requests")


class RequestSlots:
    """Limits concurrent requests. One org gets at most half of the slots, so that others soon find a free one."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._share = max(1, at_once // 2)
        self._running: dict[uuid.UUID, int] = {}
        self._total = 0
        self._changed = threading.Condition()

    def acquire(self, org_id: uuid.UUID, timeout_s: float) -> bool:
        def free() -> bool:
            return self._running.get(org_id, 0) < self._share and self._total < self._at_once

        with self._changed:
            if not free() and not self._changed.wait_for(free, timeout_s):
                return False
            self._running[org_id] = self._running.get(org_id, 0) + 1
            self._total += 1
            return True

    def release(self, org_id: uuid.UUID) -> None:
        with self._changed:
            self._total -= 1
            left = self._running[org_id] - 1
            if left:
                self._running[org_id] = left
            else:
                del self._running[org_id]
            self._changed.notify_all()


def _pump(evaluation: FragmentEvaluation, pending: queue.Queue[pa.RecordBatch | None]) -> None:
    """Put the batches into the queue that the stream reads, then None, also after a failure."""
    try:
        for batch in evaluation.batches():
            _put(evaluation, pending, batch)
    finally:
        _put(evaluation, pending, None)


def _put(
    evaluation: FragmentEvaluation, pending: queue.Queue[pa.RecordBatch | None], batch: pa.RecordBatch | None
) -> None:
    while not evaluation.stopped:
        try:
            pending.put(batch, timeout=_POLL_S)
            return
        except queue.Full:
            continue
