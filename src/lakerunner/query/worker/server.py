"""A worker's Arrow Flight service: a ticket is a question, the stream its answer, segment by segment."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import orjson
import pyarrow as pa
import pyarrow.flight as flight

from lakerunner.model.errors import BadInput, LakeError, LimitHit, Unavailable
from lakerunner.query.fanout.answer import Check, SegmentAnswer
from lakerunner.query.fanout.errors import Draining, to_flight
from lakerunner.query.fanout.local_workers import LocalWorkers
from lakerunner.query.fanout.request import Kind, ScanRequest, read_request
from lakerunner.query.fanout.tls import Tls
from lakerunner.query.fanout.token import check_token
from lakerunner.query.metrics import WORKER_REQUESTS
from lakerunner.query.pushdown import errand
from lakerunner.query.pushdown.errand_source import ErrandSource
from lakerunner.query.scan.samples import arrow as wire
from lakerunner.query.scan.samples import exemplars, label_rows, series_rows
from lakerunner.query.series import block_arrow as block_wire

Asked = TypeVar("Asked", ScanRequest, errand.Errand)

CANCEL = "cancel"
PING = "ping"
SCHEMAS = {
    Kind.SAMPLES: wire.SCHEMA,
    Kind.SERIES: series_rows.SCHEMA,
    Kind.EXEMPLARS: exemplars.SCHEMA,
    Kind.LABELS: label_rows.SCHEMA,
}
#: Cancelled queries remembered, for requests that arrive after their cancel.
_MAX_CANCELLED = 1_024
#: How long a request waits for others to end before it is refused.
_PATIENCE_S = 10.0
_LOOK_S = 0.1
#: How often a worker that evaluates says that it still does.
_WORD_S = 0.5


class WorkerService(flight.FlightServerBase):  # type: ignore[misc]
    """Answers until it is shut down. Each request has its own thread, made by gRPC."""

    def __init__(
        self, location: str, workers: LocalWorkers, token: str, at_once: int, max_bytes: int, tls: Tls | None = None
    ) -> None:
        super().__init__(location, **({} if tls is None else tls.of_server()))
        self._workers = workers
        self._token = token
        self._max_bytes = max_bytes
        self._turns = Turns(at_once)
        self._evaluations = ThreadPoolExecutor(at_once, thread_name_prefix="evaluate")
        self._cancelled: dict[uuid.UUID, None] = {}
        self._lock = threading.Lock()
        self._under_way = 0
        self._draining = False

    def drain(self) -> None:
        """Take no new work from now on. What is under way goes on."""
        with self._lock:
            self._draining = True

    @property
    def under_way(self) -> int:
        return self._under_way

    def do_get(self, context: Any, ticket: Any) -> Any:
        try:
            document = _document(ticket.ticket)
            check_token(str(document.get("token")), self._token)
            if document.get("kind") == errand.KIND:
                asked = errand.read_errand(document)
                return flight.GeneratorStream(block_wire.SCHEMA, self._stream(context, asked, self._evaluation))
            request = read_request(document)
            return flight.GeneratorStream(SCHEMAS[request.kind], self._stream(context, request, self._scan))
        except LakeError as error:
            raise to_flight(error) from None

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        try:
            document = _document(action.body.to_pybytes())
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
            raise Draining("cannot take new work: the worker is ending what it has", hint="ask another, or again later")

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

    def _stream(self, context: Any, request: Asked, messages: Callable[[Asked, Check], Iterator[Any]]) -> Iterator[Any]:
        def check() -> None:
            if context.is_cancelled() or request.query_id in self._cancelled:
                raise LimitHit("cannot go on with the scan: it was cancelled")

        try:
            with self._counted(), self._turn(request.org_id, check):
                yield from messages(self._bounded(request), check)
        except LakeError as error:
            raise to_flight(error) from None

    @contextmanager
    def _turn(self, org_id: uuid.UUID, check: Check) -> Iterator[None]:
        end_s = time.monotonic() + _PATIENCE_S
        while not self._turns.acquire(org_id, _LOOK_S):
            check()
            if time.monotonic() > end_s:
                raise Unavailable("cannot scan now: the worker is busy with other requests")
        try:
            yield
        finally:
            self._turns.release(org_id)

    def _bounded(self, request: Asked) -> Asked:
        """Never more than this worker allows, whatever the asker would."""
        return replace(request, max_bytes=min(request.max_bytes, self._max_bytes))

    def _scan(self, request: ScanRequest, check: Check) -> Iterator[Any]:
        for answer in self._workers.scan(request, check):
            yield from self._messages(request.kind, answer, check)

    def _evaluation(self, asked: errand.Errand, check: Check) -> Iterator[Any]:
        """The block's batches, then one without rows that tells the rest.

        Before them, an empty word now and then: an evaluation may be long, and who waits must know a worker that is
        busy from one that hangs.
        """
        nothing = pa.RecordBatch.from_pylist([], schema=block_wire.SCHEMA)
        source = ErrandSource(asked, self._workers, check)
        done = self._evaluations.submit(source.evaluated)
        try:
            while not wait([done], timeout=_WORD_S).done:
                check()
                yield nothing, b"{}"
            found = done.result()
        finally:
            source.stop()
        for batch in block_wire.to_batches(found.block):
            check()
            yield batch
        note = {
            "samples": found.samples,
            "cpu_s": source.cpu_s,
            "notes": found.notes.to_json(),
            "costs": source.costs(),
        }
        yield nothing, orjson.dumps(note)

    def _messages(self, kind: Kind, answer: SegmentAnswer, check: Check) -> Iterator[Any]:
        """The segment's batches, then one without rows that says how it went: without it, the segment is not done."""
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


class Turns:
    """So many requests at once, and of one org half of them at most: another always finds a place soon."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._share = max(1, at_once // 2)
        self._held: Counter[uuid.UUID] = Counter()
        self._changed = threading.Condition()

    def acquire(self, org_id: uuid.UUID, timeout_s: float) -> bool:
        def free() -> bool:
            return self._held[org_id] < self._share and self._held.total() < self._at_once

        with self._changed:
            if not self._changed.wait_for(free, timeout_s):
                return False
            self._held[org_id] += 1
            return True

    def release(self, org_id: uuid.UUID) -> None:
        with self._changed:
            self._held[org_id] -= 1
            if not self._held[org_id]:
                del self._held[org_id]
            self._changed.notify_all()


def _document(body: bytes) -> Mapping[str, Any]:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as reason:
        raise BadInput(f"cannot read a request: {reason}") from None
    if not isinstance(document, dict):
        raise BadInput("cannot read a request: it is no JSON object")
    return document
