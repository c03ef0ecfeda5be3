"""A worker's Arrow Flight server. A ticket is a request, and the stream is its answer."""

from __future__ import annotations

import queue
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.flight as flight

from lakerunner.model.errors import BadInput, LakeError, LimitHit, Unavailable
from lakerunner.query.fanout.answer import Check, SegmentAnswer
from lakerunner.query.fanout.errors import Draining, to_flight
from lakerunner.query.fanout.fragment import FragmentEvaluation
from lakerunner.query.fanout.local_workers import LocalWorkers
from lakerunner.query.fanout.protocol import (
    CANCEL,
    PACKED_SCHEMA,
    PING,
    EvaluateRequest,
    Kind,
    R,
    ScanRequest,
    packed_batch,
    read_document,
    read_request,
)
from lakerunner.query.fanout.tls import Tls
from lakerunner.query.fanout.token import check_token
from lakerunner.query.metrics import WORKER_REQUESTS
from lakerunner.query.scan.samples import arrow as wire
from lakerunner.query.scan.samples import exemplars, label_rows, series_rows
from lakerunner.query.series import block_arrow

SCHEMAS = {
    Kind.SAMPLES: wire.SCHEMA,
    Kind.SERIES: series_rows.SCHEMA,
    Kind.EXEMPLARS: exemplars.SCHEMA,
    Kind.LABELS: label_rows.SCHEMA,
}
_EMPTY_PACKED = pa.RecordBatch.from_pylist([], schema=PACKED_SCHEMA)
_EMPTY_BLOCK = pa.RecordBatch.from_pylist([], schema=block_arrow.SCHEMA)
#: How many cancelled queries are remembered, because a request may arrive after its cancellation.
_MAX_CANCELLED = 1_024
#: How long a request waits for a free slot before it is refused.
_PATIENCE_S = 10.0
_POLL_S = 0.1
#: How often a request asks gRPC whether its client is still there.
_CANCEL_POLL_S = 0.05
#: How often a worker sends a sign of life during an evaluation.
_HEARTBEAT_S = 0.5
#: How many batches an evaluation may be ahead of the client.
_PENDING_BATCHES = 4


class WorkerServer(flight.FlightServerBase):  # type: ignore[misc]
    """Serves requests until it is shut down. gRPC gives each request its own thread."""

    def __init__(
        self, location: str, workers: LocalWorkers, token: str, at_once: int, max_bytes: int, tls: Tls | None = None
    ) -> None:
        super().__init__(location, **({} if tls is None else tls.of_server()))
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

    def do_get(self, context: Any, ticket: Any) -> Any:
        try:
            document = read_document(ticket.ticket)
            check_token(str(document.get("token")), self._token)
            request = read_request(document)
            if isinstance(request, EvaluateRequest):
                schema = PACKED_SCHEMA if request.fragment.rows else block_arrow.SCHEMA
                return flight.GeneratorStream(schema, self._stream(context, request, self._evaluate))
            return flight.GeneratorStream(SCHEMAS[request.kind], self._stream(context, request, self._scan))
        except LakeError as error:
            raise to_flight(error) from None

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        try:
            document = read_document(action.body.to_pybytes())
            check_token(str(document.get("token")), self._token)
            if action.type == PING:
                self._require_open()
            elif action.type == CANCEL:
                self._cancel(document)
            else:
                raise BadInput(f"cannot do {action.type!r}: this worker knows {CANCEL!r} and {PING!r}")
        except LakeError as error:
            raise to_flight(error) from None
        return iter([flight.Result(b"{}")])

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        return [(CANCEL, "End all requests of a query."), (PING, "Say whether new work is taken.")]

    def _cancel(self, document: Mapping[str, Any]) -> None:
        try:
            query_id = uuid.UUID(document["query"])
        except (ValueError, KeyError, TypeError, AttributeError) as reason:
            raise BadInput(f"cannot read what to cancel: {reason!r}") from None
        self._cancelled[query_id] = None
        while len(self._cancelled) > _MAX_CANCELLED:
            self._cancelled.pop(next(iter(self._cancelled)), None)

    def _require_open(self) -> None:
        if self._draining:
            raise Draining(
                "cannot take new work: the worker is ending what it has", hint="ask another worker, or retry later"
            )

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._lock:
            self._require_open()
            self._under_way += 1
            WORKER_REQUESTS.set(self._under_way)
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= 1
                WORKER_REQUESTS.set(self._under_way)

    def _stream(self, context: Any, request: R, messages: Callable[[R, Check], Iterator[Any]]) -> Iterator[Any]:
        looked_at = time.monotonic()

        def check() -> None:
            nonlocal looked_at
            gone = request.query_id in self._cancelled
            # Asking gRPC takes 0.1 ms, and evaluations check at every small step.
            if time.monotonic() - looked_at > _CANCEL_POLL_S:
                looked_at = time.monotonic()
                gone = gone or context.is_cancelled()
            if gone:
                raise LimitHit("cannot continue the scan: it was cancelled")

        try:
            with self._counted(), self._slot(request.org_id, check):
                yield from messages(self._bounded(request), check)
        except LakeError as error:
            raise to_flight(error) from None

    @contextmanager
    def _slot(self, org_id: uuid.UUID, check: Check) -> Iterator[None]:
        end_s = time.monotonic() + _PATIENCE_S
        while not self._slots.acquire(org_id, _POLL_S):
            check()
            if time.monotonic() > end_s:
                raise Unavailable("cannot scan now: the worker is busy with other requests")
        try:
            yield
        finally:
            self._slots.release(org_id)

    def _bounded(self, request: R) -> R:
        """The request, limited to this worker's own `max_bytes`."""
        return replace(request, max_bytes=min(request.max_bytes, self._max_bytes))

    def _scan(self, request: ScanRequest, check: Check) -> Iterator[Any]:
        for answer in self._workers.scan(request, check):
            yield from self._messages(request.kind, answer, check)

    def _evaluate(self, request: EvaluateRequest, check: Check) -> Iterator[Any]:
        """Yield the batches of the value. The note comes with the last batch, or with an empty one after it.

        While there is no batch to send, the worker sends an empty one without a note now and then, so that the client
        can tell a busy worker from one that hangs. A slow client pauses the evaluation after a few batches.
        """
        rows = request.fragment.rows
        empty = _EMPTY_PACKED if rows else _EMPTY_BLOCK
        sent = packed_batch if rows else _as_it_is
        evaluation = FragmentEvaluation(request, self._workers, check)
        if request.small:
            # A thread and a queue would cost more than the evaluation. Pings show that the worker lives.
            *batches, last = [*map(sent, evaluation.batches())] or [empty]
            yield from batches
            yield last, orjson.dumps(evaluation.note)
            return
        pending: queue.Queue[pa.RecordBatch | None] = queue.Queue(_PENDING_BATCHES)
        done = self._evaluations.submit(_pump, evaluation, pending)
        try:
            while True:
                try:
                    batch = pending.get(timeout=_HEARTBEAT_S)
                except queue.Empty:
                    check()
                    yield empty, b"{}"
                    continue
                if batch is None:
                    break
                check()
                yield sent(batch)
            done.result()
        finally:
            evaluation.stop()
        yield empty, orjson.dumps(evaluation.note)

    def _messages(self, kind: Kind, answer: SegmentAnswer, check: Check) -> Iterator[Any]:
        """Yield the segment's batches, then an empty one with the outcome, which marks the segment as done."""
        for part in answer.samples:
            for batch in wire.to_batches(part):
                check()
                yield batch
        if answer.table is not None:
            for batch in answer.table.to_batches():
                check()
                yield batch
        note = {"segment": str(answer.segment_id), "error": answer.error, "cost": answer.cost.to_json()}
        empty = pa.RecordBatch.from_pylist([], schema=SCHEMAS[kind])
        yield empty, orjson.dumps(note)


class RequestSlots:
    """Limits concurrent requests. One org gets at most half of the slots, so that others soon find a free one."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._share = max(1, at_once // 2)
        self._running: Counter[uuid.UUID] = Counter()
        self._changed = threading.Condition()

    def acquire(self, org_id: uuid.UUID, timeout_s: float) -> bool:
        def free() -> bool:
            return self._running[org_id] < self._share and self._running.total() < self._at_once

        with self._changed:
            if not self._changed.wait_for(free, timeout_s):
                return False
            self._running[org_id] += 1
            return True

    def release(self, org_id: uuid.UUID) -> None:
        with self._changed:
            self._running[org_id] -= 1
            if not self._running[org_id]:
                del self._running[org_id]
            self._changed.notify_all()


def _as_it_is(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


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
