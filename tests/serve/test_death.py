"""Queries of death over real segments: each is stopped by a limit that it names, and its thread is free again."""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from lakerunner.serve import params
from tests.query.worker_lake import WorkerLake
from tests.serve.served import AuthOf, Served, serving
from tests.serve.wide_lake import START_MS, Wide, write_wide

pytestmark = pytest.mark.slow
WIDE = Wide(series=20_000, names=4, points=60)
START_S, END_S = START_MS / 1000, WIDE.end_ms / 1000
FINE = {"start": START_S, "end": END_S, "step": (END_S - START_S) / 10_900}
ALL = {"start": START_S, "end": END_S, "step": 60}
NOW = {"time": END_S}
LONG = "$1" * 20_000

#: Path, parameters, and the limit that must be named.
DEATH: dict[str, tuple[str, dict[str, Any], str]] = {
    "everything": ("query_range", {"query": '{__name__=~".+"}', **ALL}, "api.max_s"),
    "everything, finely": ("query_range", {"query": 'sum({zone=~".*",pod!=""})', **FINE}, "api.max_s"),
    "one metric, finely": ("query_range", {"query": "sum(wide_0)", **FINE}, "api.max_samples"),
    "one time, finely": ("query_range", {"query": "wide_0 @ end()", **FINE}, "api.max_samples"),
    "a large answer": ("query_range", {"query": "wide_0", **ALL}, "api.max_points"),
    "all series": ("query", {"query": '{pod=~".+"}', **NOW}, "api.max_series"),
    "all series by name": ("series", {"match[]": '{pod=~".+"}', "start": START_S, "end": END_S}, "api.max_series"),
    "many to many": ("query", {"query": "wide_0 + on () group_left wide_1", **NOW}, "many-to-many"),
    "count_values": ("query_range", {"query": 'count_values("v", wide_0)', **ALL}, "api.max_s"),
    "long labels": ("query", {"query": f'label_replace(wide_0,"x","{LONG}","pod","(.*)")', **NOW}, "max_label_bytes"),
    "joined labels": ("query", {"query": f'label_join(wide_0,"x","{LONG}","pod","pod")', **NOW}, "max_label_bytes"),
    "a fine subquery": ("query", {"query": "max_over_time(wide_0[30d:1s])", **NOW}, "api.max_samples"),
    "nested subqueries": (
        "query",
        {"query": "sum_over_time(sum_over_time(sum_over_time(wide_0[1d:1s])[1d:1s])[30d:1s])", **NOW},
        "api.max_samples",
    ),
    "quantiles": ("query_range", {"query": "quantile_over_time(0.5, wide_0[1h])", **FINE}, "api.max_samples"),
    "a chain": ("query", {"query": "+".join(["wide_0"] * 3_000), **NOW}, "api."),
    "10,000 parentheses": ("query", {"query": "(" * 10_000 + "1" + ")" * 10_000}, "100 levels"),
    "a megabyte": ("query", {"query": "small + " * 125_000 + "1"}, "1,048,576 bytes"),
    "a large alternation": (
        "query",
        {"query": '{pod=~"' + "|".join(f"pod-{n}x" for n in range(40_000)) + '"}', **NOW},
        "262,144",
    ),
    "counted repetitions": ("query", {"query": '{pod=~"((a{1,99}){1,99}){1,99}"}', **NOW}, "regular expression"),
    "100,000 years": ("query", {"query": "rate(small[100000y])"}, "out of range"),
    "ten years": ("query", {"query": "rate(small[10y])"}, "api.max_range_s"),
    "many steps": ("query_range", {"query": "small", "start": 0, "end": END_S, "step": 0.001}, "api.max_steps"),
}


@pytest.fixture(scope="module")
def served(lake: WorkerLake) -> Iterator[Served]:
    auth = AuthOf(uuid.uuid4())
    write_wide(lake, auth.org_id, WIDE)
    limits = {"max_samples": 1_000_000, "max_series": 15_000, "max_points": 200_000, "timeout_s": 8.0}
    with serving(lake) as serve:
        yield serve(auth, **limits)


def free(served: Served) -> bool:
    return not served.api.admission.running._queries and not served.api.admission._turns._running


@pytest.mark.parametrize("name", DEATH)
def test_it_is_refused_or_stopped(served: Served, name: str) -> None:
    path, asked, named = DEATH[name]
    began = time.monotonic()
    answer = served.client.post(f"/api/v1/{path}", data={"nocache": 1, **asked})
    took_s = time.monotonic() - began
    assert answer.status_code in (400, 422, 503), answer.text[:300]
    assert named in answer.json()["error"], answer.text[:600]
    assert took_s < 10.0
    until = time.monotonic() + 2.0
    while not free(served):
        assert time.monotonic() < until, "its thread goes on"
        time.sleep(0.02)


@pytest.mark.parametrize(
    "pattern", ["((((((pod-.*)+)+)+)+)+)+x", "(p|o|d|-|[0-9]){1,900}x", ".*" * 400 + "x", "(a*)*(b*)*(c*)*c"]
)
def test_no_regular_expression_takes_long(served: Served, pattern: str) -> None:
    began = time.monotonic()
    answer = served.client.post("/api/v1/query", data={"query": f'{{pod=~"{pattern}"}}', **NOW})
    assert answer.status_code in (200, 400), answer.text
    assert time.monotonic() - began < 8.0


def test_bytes_are_refused_before_they_are_read(served: Served, lake: WorkerLake) -> None:
    with serving(lake) as serve:
        small = serve(served.api.auth, max_bytes=10_000)
        answer = small.client.get("/api/v1/query", params={"query": "small", **NOW, "explain": 1})
        assert answer.status_code == 422
        assert "api.max_bytes" in answer.json()["error"]
        assert small.workers.requests == 0, "a worker was asked to read"


def test_a_body_that_never_ends(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(params, "MAX_BODY_S", 0.5)
    host, port = served.url.removeprefix("http://").split(":")
    head = b"POST /api/v1/query HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    with socket.create_connection((host, int(port))) as connection:
        connection.settimeout(5)
        connection.sendall(head + b"Content-Length: 1000\r\n\r\nquery=")
        over = threading.Event()

        def drip() -> None:
            while not over.wait(0.05):
                try:
                    connection.sendall(b"1")
                except OSError:
                    return

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            answer = connection.recv(10_000)
        finally:
            over.set()
            thread.join()
    assert answer.startswith(b"HTTP/1.1 400")
