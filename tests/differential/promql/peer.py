"""A Prometheus of our own: started on a free loopback port with a data folder of its own, loaded, asked, stopped."""

from __future__ import annotations

import http.client
import json
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlencode

from lakerunner.query.series.batch import STALE_BITS
from lakerunner.query.series.histograms.histogram import Histogram
from tests.differential.promql.otlp import otlp_request
from tests.differential.promql.remote_write import HEADERS, snappy_block, write_request
from tests.differential.promql.samples import Sample, Series

#: Everything that our engine has always on.
_FEATURES = (
    "promql-experimental-functions",
    "promql-delayed-name-removal",
    "promql-extended-range-selectors",
    "promql-binop-fill-modifiers",
    "st-storage",
    "use-start-timestamps",
)
_START_S = 30.0


class Peer:
    """The HTTP side of a running Prometheus."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ready(self) -> bool:
        try:
            return self._send("GET", "/-/ready")[0] == 200
        except OSError:
            self._connection.close()
            return False

    def load(self, series: Series) -> None:
        """Series with start timestamps over OTLP, all others over remote write."""
        started = {labels: samples for labels, samples in series.items() if samples[0].start_ms}
        self._push("/api/v1/otlp/v1/metrics", otlp_request(started.items()), {"Content-Type": "application/json"})
        # Run by run of one kind: the floats of a request are stored before its histograms, whatever their times.
        runs = {
            labels: [list(run) for _, run in groupby(samples, key=_kind)]
            for labels, samples in series.items()
            if labels not in started
        }
        for turn in range(max(map(len, runs.values()))):
            batch = [(labels, parts[turn]) for labels, parts in runs.items() if turn < len(parts)]
            self._push("/api/v1/write", snappy_block(write_request(batch)), HEADERS)

    def _push(self, path: str, body: bytes, headers: dict[str, str]) -> None:
        status, answer = self._send("POST", path, body, headers)
        if status // 100 != 2:
            raise RuntimeError(f"cannot load samples into Prometheus: {status} {answer.decode()}")

    def instant(self, expr: str, time_ms: int) -> dict[str, Any]:
        return self._query("query", query=expr, time=f"{time_ms / 1000:.3f}")

    def range(self, expr: str, start_ms: int, end_ms: int, step_ms: int) -> dict[str, Any]:
        times = {"start": start_ms, "end": end_ms, "step": step_ms}
        return self._query("query_range", query=expr, **{key: f"{ms / 1000:.3f}" for key, ms in times.items()})

    def _query(self, path: str, **fields: str) -> dict[str, Any]:
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        _, body = self._send("POST", f"/api/v1/{path}", urlencode(fields).encode(), form)
        answer: dict[str, Any] = json.loads(body.decode(errors="surrogateescape"))
        return answer

    def _send(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        self._connection.request(method, path, body, headers or {})
        response = self._connection.getresponse()
        return response.status, response.read()

    def close(self) -> None:
        self._connection.close()


def _kind(sample: Sample) -> str:
    """A stale marker is sent as a float, but stored as what the series was before."""
    if isinstance(sample.value, Histogram):
        return "histogram"
    return "stale" if struct.pack("<d", sample.value) == struct.pack("<Q", STALE_BITS) else "float"


@contextmanager
def running_prometheus(binary: Path) -> Iterator[Peer]:
    with TemporaryDirectory(prefix="differential-") as folder:
        config = Path(folder, "prometheus.yml")
        config.write_text("otlp: {translation_strategy: NoTranslation}\n")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [
            str(binary),
            f"--config.file={config}",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{port}",
            "--web.enable-remote-write-receiver",
            "--web.enable-otlp-receiver",
            f"--enable-feature={','.join(_FEATURES)}",
            "--log.level=warn",
        ]
        with Path(folder, "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        peer = Peer(port)
        try:
            _await(process, peer, Path(folder, "log"))
            yield peer
        finally:
            peer.close()
            process.terminate()
            process.wait(30)


def _await(process: subprocess.Popen[bytes], peer: Peer, log: Path) -> None:
    deadline_s = time.monotonic() + _START_S
    while not peer.ready():
        if process.poll() is not None or time.monotonic() > deadline_s:
            raise RuntimeError(f"cannot start Prometheus: {log.read_text()}")
        time.sleep(0.05)
