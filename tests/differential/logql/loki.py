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

from tests.components.loki import loki_config
from tests.components.process import RunningProcess, free_port

_START_S = 60.0


@contextmanager
def running_loki(binary: Path, requests: Sequence[bytes], records: int, end_ns: int) -> Iterator[str]:
    """A Loki that has the requests, as so many records in the two hours before `end_ns`; yields its address."""
    with TemporaryDirectory(prefix="differential-", ignore_cleanup_errors=True) as folder:
        config, port = Path(folder, "loki.yaml"), free_port()
        config.write_text(loki_config(Path(folder), port, free_port(), whole_queries=True))
        argv = [binary, f"-config.file={config}"]
        with RunningProcess.start(argv, log_path=Path(folder, "log"), cwd=Path(folder)) as process:
            process.wait_for_port("127.0.0.1", port, _START_S)
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            _await_ready(connection)
            for request in requests:
                status, answer = _send(connection, "POST", "/otlp/v1/logs", request)
                if status // 100 != 2:
                    raise RuntimeError(f"cannot load records into Loki: {status} {answer.decode(errors='replace')}")
            _flush(connection, records, end_ns)
            connection.close()
            yield f"http://127.0.0.1:{port}"


def _flush(connection: http.client.HTTPConnection, records: int, end_ns: int) -> None:
    """Write the chunks out: as long as they are in memory, old records are not found. Waits until all are."""
    _send(connection, "POST", "/flush", b"{}")
    query = 'sum(count_over_time({service_name=~".+"}[2h]))'
    path = f"/loki/api/v1/query?{urlencode({'query': query, 'time': end_ns})}"
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
