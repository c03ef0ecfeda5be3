"""The peers of PromQL: Prometheus and VictoriaMetrics."""

from __future__ import annotations

import time
from pathlib import Path

from bench.promql.remote_write import HEADERS
from bench.served.server import Refused, Server

from tests.components.process import free_port

MAX_SAMPLES = 400_000_000


class Prometheus(Server):
    """Prometheus with default settings, except for limits that would refuse the larger cases."""

    name = "prometheus"

    def __init__(self, folder: Path, binary: Path) -> None:
        super().__init__(folder)
        self._binary = binary

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "prometheus.yml"
        config.write_text("global: {}\n")
        self.port = free_port()
        argv: list[str | Path] = [
            self._binary,
            f"--config.file={config}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            "--storage.tsdb.retention.time=100y",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--web.enable-remote-write-receiver",
            f"--query.max-samples={MAX_SAMPLES}",
            # Avoids a slow replay of the log at a restart, which only cold runs need.
            "--enable-feature=memory-snapshot-on-shutdown",
            "--log.level=warn",
        ]
        self.run(argv, "log", "/-/ready", self.port, {})

    def settle(self) -> None:
        """Wait until compaction into blocks is finished; the newest hours stay in the head."""
        end, quiet_since, seen = time.monotonic() + 300, time.monotonic(), -1.0
        while time.monotonic() < end:
            now = self._gauge("prometheus_tsdb_compactions_total")
            if now != seen:
                quiet_since, seen = time.monotonic(), now
            head_ms = self._gauge("prometheus_tsdb_head_max_time") - self._gauge("prometheus_tsdb_head_min_time")
            if head_ms <= 3 * 3_600_000 and time.monotonic() - quiet_since > 5:
                return
            time.sleep(1)
        raise Refused("prometheus did not finish its blocks")

    def _gauge(self, name: str) -> float:
        text = self.send("GET", "/metrics").read().decode()
        return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(name + " "))


class VictoriaMetrics(Server):
    """VictoriaMetrics, only for its times: its `rate` differs by design, and it has no native histograms."""

    name = "victoria-metrics"
    uncached = (("nocache", "1"),)

    def __init__(self, folder: Path, binary: Path) -> None:
        super().__init__(folder)
        self._binary = binary

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        argv: list[str | Path] = [
            self._binary,
            f"-storageDataPath={self.folder / 'data'}",
            "-retentionPeriod=100y",
            f"-httpListenAddr=127.0.0.1:{self.port}",
            "-search.latencyOffset=0s",
            "-search.maxUniqueTimeseries=1000000",
            "-search.maxSeries=1000000",
            "-search.maxMemoryPerQuery=0",
            "-loggerLevel=WARN",
        ]
        self.run(argv, "log", "/health", self.port, {})

    def settle(self) -> None:
        for path in ("/internal/force_flush", "/internal/force_merge"):
            self.send("GET", path).read()
        time.sleep(5)


Peer = Prometheus | VictoriaMetrics


def write(peer: Peer, body: bytes) -> None:
    """Send one remote write request."""
    response = peer.send("POST", "/api/v1/write", body, HEADERS)
    answer = response.read()
    if response.status // 100 != 2:
        raise Refused(f"{peer.name} does not take samples: {response.status} {answer[:500].decode()}")
