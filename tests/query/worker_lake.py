"""A real lake with a real worker: segments in a folder, an index in PostgreSQL, and a Flight server in this process."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakerunner.query.fanout.answer import Check, EvaluateAnswer, SegmentAnswer, Workers
from lakerunner.query.fanout.flight_workers import FlightWorkers
from lakerunner.query.fanout.open import local_workers
from lakerunner.query.fanout.protocol import EvaluateRequest, ScanRequest, SegmentObjects
from lakerunner.query.lake import Lake
from lakerunner.query.plan.catalog import Catalog
from lakerunner.query.worker.server import WorkerServer
from tests.query.lake_of_series import LakeOfSeries

_TOKEN = "a shared secret"
_LOOK_S = 0.02


class TicketRecorder(WorkerServer):
    """A worker that keeps the tickets it gets."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.tickets: list[bytes] = []

    def do_get(self, context: Any, ticket: Any) -> Any:
        self.tickets.append(ticket.ticket)
        return super().do_get(context, ticket)


class PacedWorkers:
    """Workers that a test can slow down, and that count what they are asked. Closing them leaves the others open."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        #: How long each request waits before it reaches a worker.
        self.delay_s = 0.0
        self.requests = 0

    @property
    def count(self) -> int:
        return self._workers.count

    def scan(self, request: ScanRequest, check: Check) -> Iterator[SegmentAnswer]:
        self._wait(check)
        yield from self._workers.scan(request, check)

    def evaluate(self, request: EvaluateRequest, check: Check) -> EvaluateAnswer | None:
        self._wait(check)
        return self._workers.evaluate(request, check)

    def shares(self, org_id: uuid.UUID, segments: Sequence[SegmentObjects]) -> list[list[SegmentObjects]]:
        return self._workers.shares(org_id, segments)

    def places(self, org_id: uuid.UUID, parts: Sequence[Sequence[SegmentObjects]]) -> list[str | None]:
        return self._workers.places(org_id, parts)

    def stream(self, request: EvaluateRequest, check: Check) -> Iterator[pa.RecordBatch | EvaluateAnswer]:
        self._wait(check)
        yield from self._workers.stream(request, check)

    def filters(self, org_id: uuid.UUID, segments: Sequence[SegmentObjects]) -> Iterator[tuple[uuid.UUID, bytes]]:
        return self._workers.filters(org_id, segments)

    def close(self) -> None:
        pass

    def _wait(self, check: Check) -> None:
        self.requests += 1
        until_s = time.monotonic() + self.delay_s
        while time.monotonic() < until_s:
            time.sleep(_LOOK_S)
            check()


class WorkerLake(LakeOfSeries):
    """A lake whose every read crosses Flight: there is no last resort in the caller's process."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder, url)
        self._scans = local_workers(self.settings, "worker")
        self.worker = TicketRecorder("grpc://127.0.0.1:0", self._scans, _TOKEN, 8, 1 << 30)
        self.flight = FlightWorkers(lambda: [f"127.0.0.1:{self.worker.port}"], _TOKEN)

    def opened(self) -> tuple[Lake, PacedWorkers]:
        """The lake as one more API sees it, with a memory of its own and the worker that all share."""
        workers = PacedWorkers(self.flight)
        return Lake(self.database, Catalog(self.database), workers), workers

    def close(self) -> None:
        self.flight.close()
        self.worker.shutdown()
        self._scans.close()
        super().close()


@contextmanager
def worker_lake(folder: Path, url: str) -> Iterator[WorkerLake]:
    lake = WorkerLake(folder, url)
    try:
        yield lake
    finally:
        lake.close()
