"""What somebody who waits sees: the first entry of a stream, and how soon a cancelled query has ended everywhere."""

from __future__ import annotations

import http.client
import json
import statistics
import threading
import time
from collections.abc import Iterator
from functools import partial
from urllib.parse import urlencode

from bench.logql.records import RANGE_S, START_NS
from bench.served.report import Figure
from bench.served.server import Lake

from lakerunner.model.time import NS_PER_MS, NS_PER_S

_figure = partial(Figure, "logql")
_ALL = '{service_namespace="shop"}'
_LOKI_RANGE = {"start": START_NS, "end": START_NS + RANGE_S * NS_PER_S, "nocache": 1}
#: A metric query of seconds: no line has a text that decides the pattern, and all are parsed.
_LONG = f'sum by (user_id) (count_over_time({_ALL} !~ "[a-z]+[0-9]+[a-z]+.*[0-9]+zz$" | json | drop __error__ [10m]))'
_BEGUN_S, _QUIET_S, _WITHIN_S = 0.4, 0.25, 20.0
#: Whatever else the processes do takes less than this share of a core.
_IDLE_SHARE = 0.2


def interactive_figures(own: Lake, rounds: int) -> Iterator[Figure]:
    """The first entry of a stream, of 1,000 entries and of all, beside the first 1,000; then cancelling."""
    for limit, named in ((1_000, "of 1,000"), (0, "of all")):
        first, many = zip(*(_streamed(own, limit, 1_000) for _ in range(rounds)), strict=True)
        yield _figure(f"first streamed entry {named}, wall", _ms(first), "ms", "1,000 entries", _ms(many))
    answered, ended = zip(*(_cancelled(own) for _ in range(rounds)), strict=True)
    yield _figure("client of a cancelled query is told, wall", _ms(answered), "ms")
    yield _figure("processes are idle after a cancelled query, wall", _ms(ended), "ms", most=1_000)


def _ms(seconds: tuple[float, ...]) -> float:
    return statistics.median(seconds) * 1e3


def _streamed(own: Lake, limit: int, count: int) -> tuple[float, float]:
    """Seconds until the first entry and until so many have come. The stream is left then."""
    connection = http.client.HTTPConnection("127.0.0.1", own.port, timeout=60)
    start_ms, end_ms = START_NS // NS_PER_MS, START_NS // NS_PER_MS + RANGE_S * 1_000
    body = json.dumps({"q": _ALL, "s": str(start_ms), "e": str(end_ms), "limit": limit})
    began = time.perf_counter()
    connection.request("POST", "/api/v1/logs/query", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise RuntimeError(f"cannot stream: {response.status} {response.read()[:300].decode()}")
    seen, first_s = 0, 0.0
    for line in response:
        if line.startswith(b'data: {"type":"result"'):
            seen += 1
            if seen == 1:
                first_s = time.perf_counter() - began
            if seen == count:
                break
    all_s = time.perf_counter() - began
    connection.close()
    return first_s, all_s


def _cancelled(own: Lake) -> tuple[float, float]:
    """Seconds from the request to cancel a query until its client is told, and until all processes are idle."""
    told: list[float] = []

    def ask() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", own.port, timeout=120)
        form = urlencode({"query": _LONG, "step": 10, **_LOKI_RANGE})
        connection.request("GET", f"/loki/api/v1/query_range?{form}")
        response = connection.getresponse()
        told.append(time.perf_counter())
        if b"cancel" not in response.read():
            told.clear()
        connection.close()

    client = threading.Thread(target=ask)
    client.start()
    time.sleep(_BEGUN_S)
    listed = json.loads(own.send("GET", "/api/v1/queries").read())["queries"]
    if not listed:
        raise RuntimeError("the query ended before it was cancelled")
    began = time.perf_counter()
    own.send("DELETE", f"/api/v1/queries/{listed[0]['id']}").read()
    ended = _idle_since(own)
    client.join()
    if not told:
        raise RuntimeError("the query ended before it was cancelled")
    return told[0] - began, max(0.0, ended - began)


def _idle_since(own: Lake) -> float:
    """When the processes last took time for something."""
    end = time.perf_counter() + _WITHIN_S
    busy_at, before_s = time.perf_counter(), own.cpu_s()
    while time.perf_counter() < end:
        time.sleep(0.05)
        now_s = own.cpu_s()
        if now_s - before_s > _IDLE_SHARE * 0.05:
            busy_at = time.perf_counter()
        elif time.perf_counter() - busy_at > _QUIET_S:
            return busy_at
        before_s = now_s
    raise RuntimeError("the processes are busy long after the query was cancelled")
