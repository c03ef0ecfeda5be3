"""The query worker as a role: an Arrow Flight server, and a socket beside it, over a local cache of segments."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Mapping, Sequence

import pyarrow as pa

from lakerunner.model.errors import BadInput
from lakerunner.query.fanout.addresses import forget_address, note_address
from lakerunner.query.fanout.errors import Draining
from lakerunner.query.fanout.local_workers import LocalWorkers
from lakerunner.query.fanout.open import local_workers
from lakerunner.query.fanout.socket_calls import is_loopback
from lakerunner.query.fanout.tls import scheme_of, server_tls
from lakerunner.query.fanout.token import worker_token
from lakerunner.query.metrics import QUERY_METRICS
from lakerunner.query.warm import query_kernels
from lakerunner.query.worker.memory_watch import MemoryWatch
from lakerunner.query.worker.server import WorkerServer
from lakerunner.runtime.kernels import Share, load_kernels
from lakerunner.runtime.memory import limit_malloc_arenas
from lakerunner.runtime.role import Probe, Recycle, Role
from lakerunner.runtime.settings import Settings
from lakerunner.runtime.stop import Stop
from lakerunner.runtime.telemetry import log
from lakerunner.runtime.thread_switch import switch_threads_often
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store

_POLL_S = 0.5
_DRAIN_POLL_S = 0.05


class QueryWorker(Role):
    name = "query-worker"
    sentence = "Read segments for queries and evaluate over them: fetch, cache, scan, answer."
    registries = (QUERY_METRICS,)

    @classmethod
    def kernels(cls) -> Sequence[Share]:
        return query_kernels()

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        limit_malloc_arenas()
        self._store = open_store(StoreConfig.of(settings))
        self._workers: LocalWorkers | None = None
        self._service: WorkerServer | None = None
        self._draining = False
        self.address = ""

    def start(self) -> None:
        query = self.settings.query
        if not query.worker_token and not is_loopback(query.worker_host):
            raise BadInput(
                f"cannot listen on {query.worker_host} without a secret",
                hint="set query.worker_token, here and for the API",
                where="query.worker_token",
            )
        switch_threads_often()
        load_kernels(query_kernels())
        # What is here stays: the collector need not look at it again and again.
        gc.freeze()
        self._workers = self._workers or local_workers(self.settings, self.name)
        self._service = self._service or self._listening(self._workers)
        self.address = f"{query.worker_host}:{self._service.port}"
        note_address(self.settings.data.dir, self.address)
        log().info("scanning for queries", address=self.address)

    def _listening(self, workers: LocalWorkers) -> WorkerServer:
        query = self.settings.query
        tls = server_tls(query)
        location = f"{scheme_of(tls)}://{query.worker_host}:{query.worker_port}"
        try:
            server = WorkerServer(
                location, workers, worker_token(self.settings), query.worker_scans, query.max_scan_bytes, tls
            )
            # With TLS, whoever asks must show a certificate, and a socket has none.
            if tls is None:
                server.listen_in(self.settings.data.dir)
            return server
        except (OSError, pa.ArrowException) as reason:
            raise BadInput(
                f"cannot listen on {query.worker_host}:{query.worker_port}: {reason}", where="query.worker_port"
            ) from None

    def run(self, stop: Stop) -> None:
        assert self._workers is not None
        watch = MemoryWatch(self.settings.query, self._workers)
        too_large = ""
        while not too_large and not stop.wait(_POLL_S):
            too_large = watch.look()
        self._drain(watch)
        if too_large and not stop:
            raise Recycle(too_large)

    def _drain(self, watch: MemoryWatch) -> None:
        """Finish requests under way and refuse new ones. Requests that do not end in time are stopped."""
        assert self._workers is not None and self._service is not None
        self._draining = True
        forget_address(self.settings.data.dir, self.address)
        self._service.drain()
        log().info("draining", requests=self._service.under_way)
        end = time.monotonic() + self.settings.query.worker_drain_s
        while self._service.under_way and time.monotonic() < end:
            watch.look()
            time.sleep(_DRAIN_POLL_S)
        self._workers.budgets.stop_all(Draining("cannot continue the scan: the worker is shutting down"))

    def probes(self) -> Mapping[str, Probe]:
        return {"store": self._store.ping, "room": self._require_accepting}

    def patience_s(self) -> Mapping[str, float]:
        """Without the bucket, it serves segments that it has cached, and says which it lacks."""
        return {"store": math.inf}

    def _require_accepting(self) -> None:
        if self._draining:
            raise Draining("cannot take new work: the worker is ending what it has")

    def close(self) -> None:
        if self.address:
            forget_address(self.settings.data.dir, self.address)
        if self._workers is not None:
            self._workers.close()
        if self._service is not None:
            # Waits for requests under way. They end at their next check, since their workers are closed.
            self._service.shutdown()
