"""A worker's Arrow Flight server. A ticket is a request, and the stream is its answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.flight as flight

from lakerunner.model.errors import BadInput, LakeError
from lakerunner.query.fanout.answer import Check, SegmentAnswer
from lakerunner.query.fanout.errors import to_flight
from lakerunner.query.fanout.local_workers import LocalWorkers
from lakerunner.query.fanout.protocol import (
    CANCEL,
    FILTERS,
    PACKED_SCHEMA,
    PING,
    EvaluateRequest,
    Kind,
    ScanRequest,
    packed_batch,
)
from lakerunner.query.fanout.socket_frames import socket_path
from lakerunner.query.fanout.tls import Tls
from lakerunner.query.scan.samples import arrow as wire
from lakerunner.query.scan.samples import exemplars, label_rows, series_rows
from lakerunner.query.series import block_arrow
from lakerunner.query.worker.requests import Gone, Requests
from lakerunner.query.worker.socket_server import SocketServer
from lakerunner.runtime.telemetry import log
from lakerunner.store.requests import take_requests

SCHEMAS = {
    Kind.SAMPLES: wire.SCHEMA,
    Kind.SERIES: series_rows.SCHEMA,
    Kind.EXEMPLARS: exemplars.SCHEMA,
    Kind.LABELS: label_rows.SCHEMA,
}
_EMPTY_PACKED = pa.RecordBatch.from_pylist([], schema=PACKED_SCHEMA)
_EMPTY_BLOCK = pa.RecordBatch.from_pylist([], schema=block_arrow.SCHEMA)


class WorkerServer(flight.FlightServerBase):  # type: ignore[misc]
    """Serves requests until it is shut down. gRPC gives each request its own thread."""

    def __init__(
        self, location: str, workers: LocalWorkers, token: str, at_once: int, max_bytes: int, tls: Tls | None = None
    ) -> None:
        super().__init__(location, **({} if tls is None else tls.of_server()))
        self.requests = Requests(workers, token, at_once, max_bytes)
        self._socket: SocketServer | None = None

    def listen_in(self, data_dir: Path) -> None:
        """Serve evaluations to clients of this machine over a socket in the folder too, if one can be there."""
        path = socket_path(data_dir, self.port)
        if path is None:
            return
        try:
            data_dir.mkdir(parents=True, exist_ok=True)
            self._socket = SocketServer(path, self.requests)
        except OSError as reason:
            log().warning("cannot open a socket for clients of this machine; they use Flight", reason=str(reason))

    def shutdown(self) -> None:
        """Wait for requests under way, and stop."""
        if self._socket is not None:
            self._socket.close()
        super().shutdown()

    def drain(self) -> None:
        """Refuse new work from now on. Requests under way continue."""
        self.requests.drain()

    @property
    def under_way(self) -> int:
        return self.requests.under_way

    def do_get(self, context: Any, ticket: Any) -> Any:
        try:
            request = self.requests.request(ticket.ticket)
            if isinstance(request, EvaluateRequest):
                schema = PACKED_SCHEMA if request.fragment.rows else block_arrow.SCHEMA
                return flight.GeneratorStream(schema, self._evaluated(request, context.is_cancelled))
            return flight.GeneratorStream(SCHEMAS[request.kind], self._scanned(request, context.is_cancelled))
        except LakeError as error:
            raise to_flight(error) from None

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        try:
            document = self.requests.document(action.body.to_pybytes())
            if action.type == PING:
                self.requests.require_open()
            elif action.type == CANCEL:
                self.requests.cancel(document)
            elif action.type == FILTERS:
                return iter([flight.Result(packed) for packed in self.requests.filters(document)])
            else:
                raise BadInput(f"cannot do {action.type!r}: this worker knows {CANCEL!r}, {FILTERS!r} and {PING!r}")
        except LakeError as error:
            raise to_flight(error) from None
        return iter([flight.Result(b"{}")])

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        return [
            (CANCEL, "End all requests of a query."),
            (FILTERS, "Send the filters of segments."),
            (PING, "Say whether new work is taken."),
        ]

    def _scanned(self, request: ScanRequest, gone: Gone) -> Iterator[Any]:
        try:
            for answer, check in self.requests.scanned(request, gone):
                yield from _messages(request.kind, answer, check)
        except LakeError as error:
            raise to_flight(error) from None

    def _evaluated(self, request: EvaluateRequest, gone: Gone) -> Iterator[Any]:
        """The batches, then the note with an empty batch; a sign of life is an empty batch with an empty note."""
        rows = request.fragment.rows
        empty = _EMPTY_PACKED if rows else _EMPTY_BLOCK
        try:
            for part in self.requests.evaluated(request, gone):
                if part is None:
                    yield empty, b"{}"
                elif isinstance(part, bytes):
                    yield empty, part
                else:
                    yield packed_batch(part) if rows else part
        except LakeError as error:
            raise to_flight(error) from None


def _messages(kind: Kind, answer: SegmentAnswer, check: Check) -> Iterator[Any]:
    """Yield the segment's batches, then an empty one with the outcome, which marks the segment as done."""
    for part in answer.samples:
        for batch in wire.to_batches(part):
            check()
            yield batch
    if answer.table is not None:
        for batch in answer.table.to_batches():
            check()
            yield batch
    note = {
        "segment": str(answer.segment_id), "error": answer.error, "cost": answer.cost.to_json(),
        "requests": [list(each) for each in take_requests()],
    }  # fmt: skip
    empty = pa.RecordBatch.from_pylist([], schema=SCHEMAS[kind])
    yield empty, orjson.dumps(note)
