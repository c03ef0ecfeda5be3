"""A search as server-sent events: when its first trace comes, and how long a worker goes on after its reader left."""

from __future__ import annotations

import http.client
import json
import time
from functools import partial

from bench.served.report import Figure, Report
from bench.served.server import Lake
from bench.traces.spans import SEGMENT_NS, START_NS

_figure = partial(Figure, "traces")
#: Every trace matches, and each must be assembled: as slow as a search gets.
_SLOW = '{ } >> { name != "operation 1" } | count() > 2'
_IDLE_SHARE, _LOOK_S = 0.2, 0.05


def measure_stream(own: Lake, report: Report, segments: int) -> None:
    for attempt in ("first", "again"):
        first_s, last_s, starts = _read(own, segments, 100_000)
        assert starts == sorted(starts, reverse=True), "traces are not in order"
        report.tell(
            _figure(f"stream of {len(starts):,} traces, first trace, {attempt}", first_s * 1e3, "ms",
                    "its last trace", last_s * 1e3)
        )  # fmt: skip
    report.tell(_figure("stream, CPU goes on after its reader left", _cancelled(own, segments) * 1e3, "ms"))


def _request(own: Lake, segments: int, limit: int) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    minutes = max(1, segments // 2)
    start_ms = START_NS // 1_000_000
    asked = {"q": _SLOW, "s": start_ms, "e": start_ms + minutes * SEGMENT_NS // 1_000_000, "limit": limit}
    connection = http.client.HTTPConnection("127.0.0.1", own.port, timeout=300)
    connection.request("POST", "/api/v1/spans/query", json.dumps(asked), {"Content-Type": "application/json"})
    return connection, connection.getresponse()


def _read(own: Lake, segments: int, limit: int) -> tuple[float, float, list[int]]:
    began, first_s, starts = time.perf_counter(), 0.0, []
    connection, response = _request(own, segments, limit)
    if response.status != 200:
        raise SystemExit(f"stream: {response.status} {response.read()[:500]!r}")
    for line in response:
        if line.startswith(b"data:") and b"startTimeUnixNano" in line:
            first_s = first_s or time.perf_counter() - began
            frame = json.loads(line[5:])
            starts.append(int(frame.get("startTimeUnixNano") or frame["data"]["startTimeUnixNano"]))
    connection.close()
    return first_s, time.perf_counter() - began, starts


def _cancelled(own: Lake, segments: int) -> float:
    """Leave in the middle, and wait until the servers do nothing any more."""
    connection, response = _request(own, segments, 262_144)
    response.read1(100)
    time.sleep(0.3)
    assert response.fp is not None
    connection.close()
    response.close()
    began = time.perf_counter()
    while True:
        before, at = own.cpu_s(), time.perf_counter()
        time.sleep(_LOOK_S)
        if own.cpu_s() - before < _IDLE_SHARE * (time.perf_counter() - at):
            return at - began
