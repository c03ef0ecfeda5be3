"""Loki as a peer, with its defaults except for limits that would refuse the records or the larger answers."""

from __future__ import annotations

import time
from pathlib import Path

from bench.served.server import Refused, Server

from tests.components.process import free_port

_FLUSH_S, _SETTLE_S = 120.0, 5.0
_CONFIG = """
auth_enabled: false
analytics: {{reporting_enabled: false}}
server:
  http_listen_address: 127.0.0.1
  http_listen_port: {port}
  grpc_listen_address: 127.0.0.1
  grpc_listen_port: {grpc_port}
  grpc_server_max_recv_msg_size: 104857600
  grpc_server_max_send_msg_size: 104857600
  log_level: warn
common:
  instance_addr: 127.0.0.1
  path_prefix: {folder}
  replication_factor: 1
  ring: {{kvstore: {{store: inmemory}}}}
  storage: {{filesystem: {{chunks_directory: {folder}/chunks, rules_directory: {folder}/rules}}}}
schema_config:
  configs:
    - {{from: 2020-01-01, store: tsdb, object_store: filesystem, schema: v13, index: {{prefix: index_, period: 24h}}}}
limits_config:
  ingestion_rate_mb: 1000
  ingestion_burst_size_mb: 2000
  per_stream_rate_limit: 1GB
  per_stream_rate_limit_burst: 2GB
  reject_old_samples: false
  max_query_series: 1000000
  max_query_length: 0
# The records are older than the ingesters are usually asked for.
querier: {{query_ingesters_within: 0}}
query_range: {{cache_results: false}}
"""


class Loki(Server):
    name = "loki"

    def __init__(self, folder: Path, binary: Path) -> None:
        super().__init__(folder)
        self._binary = binary

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        config = self.folder / "loki.yaml"
        config.write_text(_CONFIG.format(port=self.port, grpc_port=free_port(), folder=self.folder))
        self.run([self._binary, f"-config.file={config}"], "log", "/ready", self.port, {})

    def write(self, body: bytes) -> None:
        """Send one export request."""
        response = self.send("POST", "/otlp/v1/logs", body, {"Content-Type": "application/x-protobuf"})
        answer = response.read()
        if response.status // 100 != 2:
            raise Refused(f"loki does not take the records: {response.status} {answer[:500].decode()}")

    def flush(self) -> None:
        """Write everything in memory to the store: a restart may lose what is not."""
        response = self.send("POST", "/flush")
        response.read()
        end = time.monotonic() + _FLUSH_S
        while self._gauge("loki_ingester_flush_queue_length") or time.monotonic() < end - _FLUSH_S + _SETTLE_S:
            if time.monotonic() > end:
                raise Refused("loki does not flush its records")
            time.sleep(0.5)

    def _gauge(self, name: str) -> float:
        text = self.send("GET", "/metrics").read().decode()
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))
