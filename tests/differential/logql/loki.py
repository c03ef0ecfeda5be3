"""A Loki of our own: started on free loopback ports with a data folder of its own, loaded, asked, stopped."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlencode

from tests.components.process import RunningProcess, free_port
from tests.differential.logql.records import END_NS, SECONDS

#: Without splitting, sharding and caching, which change answers.
_CONFIG = """
auth_enabled: false
analytics: {{reporting_enabled: false}}
server:
  http_listen_address: 127.0.0.1
  http_listen_port: {port}
  grpc_listen_address: 127.0.0.1
  grpc_listen_port: {grpc_port}
  log_level: error
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
  reject_old_samples: false
  split_queries_by_interval: 0
  max_query_series: 100000
  max_query_length: 0
  discover_service_name: [service_name]
querier: {{query_ingesters_within: 0}}
query_range: {{cache_results: false, parallelise_shardable_queries: false, align_queries_with_step: false}}
"""
_START_S = 60.0


@contextmanager
def running_loki(binary: Path, requests: Sequence[bytes]) -> Iterator[str]:
    """A Loki that has the records; yields its address."""
    with TemporaryDirectory(prefix="differential-", ignore_cleanup_errors=True) as folder:
        config, port = Path(folder, "loki.yaml"), free_port()
        config.write_text(_CONFIG.format(port=port, grpc_port=free_port(), folder=folder))
        argv = [binary, f"-config.file={config}"]
        with RunningProcess.start(argv, log_path=Path(folder, "log"), cwd=Path(folder)) as process:
            process.wait_for_port("127.0.0.1", port, _START_S)
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            _await_ready(connection)
            for request in requests:
                status, answer = _send(connection, "POST", "/otlp/v1/logs", request)
                if status // 100 != 2:
                    raise RuntimeError(f"cannot load records into Loki: {status} {answer.decode(errors='replace')}")
            _flush(connection, len(requests))
            connection.close()
            yield f"http://127.0.0.1:{port}"


def _flush(connection: http.client.HTTPConnection, records: int) -> None:
    """Write the chunks out: as long as they are in memory, old records are not found. Waits until all are."""
    _send(connection, "POST", "/flush", b"{}")
    query = f'sum(count_over_time({{service_name=~".+"}}[{2 * SECONDS}s]))'
    path = f"/loki/api/v1/query?{urlencode({'query': query, 'time': END_NS})}"
    deadline_s = time.monotonic() + _START_S
    while True:
        result = json.loads(_send(connection, "GET", path)[1])["data"]["result"]
        if result and int(result[0]["value"][1]) == records:
            return
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"Loki has not all of {records} records after {_START_S:g} s: {result}")
        time.sleep(0.2)


def _await_ready(connection: http.client.HTTPConnection) -> None:
    deadline_s = time.monotonic() + _START_S
    while _send(connection, "GET", "/ready")[0] != 200:
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"Loki was not ready after {_START_S:g} s")
        time.sleep(0.2)


def _send(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None = None
) -> tuple[int, bytes]:
    connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
    response = connection.getresponse()
    return response.status, response.read()
