"""A worker's Arrow Flight service: a ticket is a question, the stream its answer, segment by segment."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.flight as flight

from lakerunner.model.errors import BadInput, Denied, LakeError, LimitHit, Unavailable
from lakerunner.query.scan import exemplars, label_rows, series_rows
from lakerunner.query.worker import wire
from lakerunner.query.worker.answer import Check, SegmentAnswer, Workers
from lakerunner.query.worker.request import Kind, ScanRequest, read_ticket
from lakerunner.query.worker.token import check_token

CANCEL = "cancel"
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


class WorkerService(flight.FlightServerBase):  # type: ignore[misc]
    """Answers until it is shut down. Each request has its own thread, made by gRPC."""

    def __init__(self, location: str, workers: Workers, token: str, at_once: int, max_bytes: int) -> None:
        super().__init__(location)
        self._workers = workers
        self._token = token
        self._max_bytes = max_bytes
        self._turns = Turns(at_once)
        self._cancelled: dict[uuid.UUID, None] = {}

    def do_get(self, context: Any, ticket: Any) -> Any:
        try:
            token, request = read_ticket(ticket.ticket)
            check_token(token, self._token)
        except LakeError as error:
            raise told(error) from None
        return flight.GeneratorStream(SCHEMAS[request.kind], self._stream(context, request))

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        if action.type != CANCEL:
            raise told(BadInput(f"cannot do {action.type!r}: this worker knows only {CANCEL!r}"))
        try:
            document = orjson.loads(action.body.to_pybytes())
            check_token(str(document["token"]), self._token)
            query_id = uuid.UUID(document["query"])
        except (ValueError, KeyError, TypeError) as reason:
            raise told(BadInput(f"cannot read what to cancel: {reason!r}")) from None
        except LakeError as error:
            raise told(error) from None
        self._cancelled[query_id] = None
        while len(self._cancelled) > _MAX_CANCELLED:
            self._cancelled.pop(next(iter(self._cancelled)), None)
        return iter([flight.Result(b"{}")])

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        return [(CANCEL, "End all requests of a query.")]

    def _stream(self, context: Any, request: ScanRequest) -> Iterator[Any]:
        def check() -> None:
            if context.is_cancelled() or request.query_id in self._cancelled:
                raise LimitHit("cannot go on with the scan: it was cancelled")

        try:
            self._await_turn(request.org_id, check)
        except LakeError as error:
            raise told(error) from None
        try:
            for answer in self._workers.scan(self._bounded(request), check):
                yield from self._messages(request.kind, answer, check)
        except LakeError as error:
            raise told(error) from None
        finally:
            self._turns.release(request.org_id)

    def _await_turn(self, org_id: uuid.UUID, check: Check) -> None:
        end_s = time.monotonic() + _PATIENCE_S
        while not self._turns.acquire(org_id, _LOOK_S):
            check()
            if time.monotonic() > end_s:
                raise Unavailable("cannot scan now: the worker is busy with other requests")

    def _bounded(self, request: ScanRequest) -> ScanRequest:
        """Never more than this worker allows, whatever the asker would."""
        return replace(request, max_bytes=min(request.max_bytes, self._max_bytes))

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


def told(error: LakeError) -> flight.FlightError:
    """The error as Flight carries it. Its code goes along, because Flight's own kinds also come from the transport."""
    kind = flight.FlightUnauthenticatedError if isinstance(error, Denied) else flight.FlightServerError
    return kind(str(error), error.code.encode())
