"""The query worker as a role: segments in its cache, Arrow Flight in front."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from lakerunner.model.errors import BadInput
from lakerunner.query.worker.addresses import forget_address, note_address
from lakerunner.query.worker.local import LocalWorkers
from lakerunner.query.worker.open import local_workers
from lakerunner.query.worker.service import WorkerService
from lakerunner.query.worker.token import worker_token
from lakerunner.runtime.role import Probe, Role
from lakerunner.runtime.settings import Settings
from lakerunner.runtime.stop import Stop
from lakerunner.runtime.telemetry import log
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store

_LOOK_S = 0.5


class QueryWorker(Role):
    name = "query-worker"
    sentence = "Read segments for queries: fetch, cache, scan, and stream the samples back."

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._store = open_store(StoreConfig.of(settings))
        self._workers: LocalWorkers | None = None
        self._service: WorkerService | None = None
        self.address = ""

    def start(self) -> None:
        query = self.settings.query
        if not query.worker_token and not _loopback(query.worker_host):
            raise BadInput(
                f"cannot listen on {query.worker_host} without a secret",
                hint="set query.worker_token, here and for the API",
                where="query.worker_token",
            )
        self._workers = self._workers or local_workers(self.settings, self.name)
        if self._service is None:
            try:
                self._service = WorkerService(
                    f"grpc://{query.worker_host}:{query.worker_port}",
                    self._workers,
                    worker_token(self.settings),
                    query.worker_scans,
                    query.max_scan_bytes,
                )
            except OSError as reason:
                raise BadInput(
                    f"cannot listen on {query.worker_host}:{query.worker_port}: {reason}", where="query.worker_port"
                ) from None
        self.address = f"{query.worker_host}:{self._service.port}"
        note_address(self.settings.data.dir, self.address)
        log().info("scanning for queries", address=self.address)

    def run(self, stop: Stop) -> None:
        while not stop.wait(_LOOK_S):
            pass

    def probes(self) -> Mapping[str, Probe]:
        return {"store": self._store.ping}

    def close(self) -> None:
        if self.address:
            forget_address(self.settings.data.dir, self.address)
        if self._workers is not None:
            self._workers.close()
        if self._service is not None:
            # Waits for requests under way; those end at the next look, since their workers are closed.
            self._service.shutdown()


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
