"""Queries of death over real segments: each is stopped by a limit that it names, other orgs are answered meanwhile, and
its threads are free again."""

from __future__ import annotations

import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from lakerunner.runtime import http_body
from lakerunner.serve.auth import Authenticator
from lakerunner.serve.caller import Caller
from tests.query.lake_of_logs import HOURS, write_logs
from tests.query.worker_lake import WorkerLake
from tests.serve.served import AuthOf, Served, serving
from tests.serve.wide_lake import START_MS, Wide, write_wide

pytestmark = pytest.mark.slow
WIDE = Wide(series=8_000, names=4, points=30)
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
    "a chain": ("query", {"query": "+".join(["wide_0"] * 1_000), **NOW}, "api."),
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
    "50,000 additions": ("query", {"query": "1" + "+1" * 50_000}, "10,000 parts"),
    "an or of thousands": ("query", {"query": "small" + " or small" * 20_000, **NOW}, "10,000 parts"),
    "joining thousands": (
        "query",
        {"query": 'label_join(small,"x","y"' + ',"pod"' * 20_000 + ")", **NOW},
        "10,000 parts",
    ),
    "many large patterns": (
        "query",
        {"query": '{zone="z0",' + ",".join(f'pod!~"(é|[^{n}]){{900}}"' for n in range(9_000)) + "}", **NOW},
        "500,000 instructions",
    ),
    "a pattern of pages": ("query", {"query": '{pod=~"' + "(\\\\pL|[^x]){900}" * 50 + '"}', **NOW}, "2,097,152 bytes"),
    "pages to replace": (
        "query",
        {"query": 'label_replace(small,"x","$1","pod","' + "(\\\\pL|[^x]){900}" * 50 + '")', **NOW},
        "invalid regular expression",
    ),
    "many steps": ("query_range", {"query": "small", "start": 0, "end": END_S, "step": 0.001}, "api.max_steps"),
}


#: These may be answered, refused or stopped. They are asked several times at once by two orgs.
GROUPS = "(.*)" * 2_000 + "x"
EXPLODING = "|".join(f".*{letter}[a-z0-9-]{{900}}{letter}" for letter in "abcdefghijklmnopqrst")
NESTED = "((((((pod-.*)+)+)+)+)+)+x"
CROWDING: dict[str, tuple[str, dict[str, Any]]] = {
    "2,000 groups of names": ("query", {"query": f'{{__name__=~"{GROUPS}"}}', **NOW}),
    "2,000 groups of pods": ("query", {"query": f'{{pod=~"{GROUPS}"}}', **NOW}),
    "2,000 groups, negated": ("query_range", {"query": f'sum({{pod!~"{GROUPS}",zone="z1"}})', **ALL}),
    "2,000 groups to replace": ("query", {"query": f'label_replace(wide_0,"x","$1","pod","{GROUPS}")', **NOW}),
    "2,000 groups to show": (
        "query",
        {"query": f'label_replace(wide_0,"x","$1$2000","pod","{"(.*)" * 2_000}")', **NOW},
    ),
    "exploding states": ("query", {"query": f'{{pod=~"{EXPLODING}"}}', **NOW}),
    "exploding states to replace": ("query", {"query": f'label_replace(wide_0,"x","$0","pod","{EXPLODING}")', **NOW}),
    "many patterns": (
        "query",
        {"query": "{" + ",".join(f'pod!~".*{n}[0-9-]{{40}}x"' for n in range(900)) + ',zone="z1"}', **NOW},
    ),
    "many matchers": ("query", {"query": "{" + ",".join(f'pod!="{n}"' for n in range(3_000)) + ',zone="z1"}', **NOW}),
    "a long list": ("query", {"query": '{pod=~"' + "|".join(f"pod-{n}" for n in range(20_000)) + '"}', **NOW}),
    "values by pattern": ("label/pod/values", {"match[]": f'{{pod=~"{GROUPS}"}}', "start": START_S, "end": END_S}),
    "names by pattern": ("labels", {"match[]": f'{{__name__=~"{EXPLODING}"}}', "start": START_S, "end": END_S}),
    "series by pattern": ("series", {"match[]": f'{{pod=~"{EXPLODING}"}}', "start": START_S, "end": END_S}),
    "series of many selectors": (
        "series",
        {"match[]": [f'{{pod=~".*{n}x"}}' for n in range(2_000)], "start": START_S, "end": END_S},
    ),
    "exemplars by pattern": ("query_exemplars", {"query": f'{{pod=~"{GROUPS}"}}', "start": START_S, "end": END_S}),
    "counted values": ("query_range", {"query": 'count_values("v", wide_0 * 1.1)', **ALL}),
    "a chain of or": ("query", {"query": "wide_0" + " or wide_1" * 1_000, **NOW}),
    "a chain of additions": ("query_range", {"query": "wide_0" + " + wide_0" * 1_000, **ALL}),
    "4,000 additions": ("query", {"query": "1" + "+1" * 4_000}),
    "nested calls": ("query_range", {"query": "abs(" * 95 + "wide_0" + ")" * 95, **ALL}),
    "all of topk": ("query_range", {"query": "topk(1e9, wide_0) or bottomk(1e9, wide_1)", **ALL}),
    "a fine subquery of few": ("query", {"query": "sum_over_time((small * 1)[3000s:1ms])", **NOW}),
    "nested subqueries of few": ("query", {"query": "max_over_time(max_over_time(small[20m:1s])[20m:1s])", **NOW}),
    "joined by joined": ("query", {"query": "label_join(" * 60 + "wide_0" + ',"x","-","x","pod")' * 60, **NOW}),
    "sorted by labels": ("query", {"query": 'sort_by_label(wide_0 or wide_1, "zone", "pod")', **NOW}),
    "rows by groups": ("rows/logs", {"where": f'message =~ "{GROUPS}"'}),
    "rows by states": ("rows/logs", {"where": f'message search "{EXPLODING}"'}),
    "rows by a long list": ("rows/logs", {"where": f"message in ({','.join(map(str, range(5_000)))})"}),
    "rows by many conditions": (
        "rows/logs",
        {"where": " or ".join(f'message search "{n}.*{n}.*x"' for n in range(1_500))},
    ),
}
NAMES = ("one", "other", "neighbour")


class ByHeader(Authenticator):
    """Lets everybody in, for the org that a header names."""

    def __init__(self) -> None:
        self.orgs = {name: uuid.uuid4() for name in NAMES}

    async def caller(self, request: Request) -> Caller:
        return Caller(self.orgs[request.headers.get("x-org", NAMES[0])], "test")


@pytest.fixture(scope="module")
def served(lake: WorkerLake) -> Iterator[Served]:
    auth = ByHeader()
    for org_id in auth.orgs.values():
        write_wide(lake, org_id, WIDE)
        write_logs(lake, org_id)
    limits = {"max_samples": 400_000, "max_series": 6_000, "max_points": 40_000, "timeout_s": 8.0}
    with serving(lake) as serve:
        yield serve(auth, **limits, threads=4, org_queries=2)


def busy() -> list[str]:
    """The threads of this process, API and worker, that still work for a query."""
    parts = tuple(f"/lakerunner/query/{part}/" for part in ("scan", "series", "vectors", "promql", "rows", "plan"))
    found = []
    for thread, frame in sys._current_frames().items():
        while thread != threading.get_ident() and frame is not None:
            if any(part in frame.f_code.co_filename for part in parts):
                found.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
                break
            frame = frame.f_back
    return found


def wait_until_free(served: Served) -> None:
    until = time.monotonic() + 5.0
    admission = served.api.admission
    while admission.running._queries or admission._turns._running or busy():
        assert time.monotonic() < until, f"its threads go on: {busy()}"
        time.sleep(0.01)


@pytest.mark.parametrize("name", DEATH)
def test_it_is_refused_or_stopped(served: Served, name: str) -> None:
    path, asked, named = DEATH[name]
    began = time.monotonic()
    answer = served.client.post(f"/api/v1/{path}", data={"nocache": 1, **asked})
    took_s = time.monotonic() - began
    assert answer.status_code in (400, 422, 503), answer.text[:300]
    assert named in answer.json()["error"], answer.text[:600]
    assert took_s < 10.0
    wait_until_free(served)


def ask(served: Served, org: str, path: str, asked: dict[str, Any]) -> httpx.Response:
    headers = {"x-org": org}
    if path.startswith("rows/"):
        asked = {"s": 0, "e": HOURS * 3_600_000, "timeout": "1s", **asked}
        return served.client.post(f"/api/v1/{path}", json=asked, headers=headers)
    if path.startswith("label/"):
        return served.client.get(f"/api/v1/{path}", params=asked, headers=headers)
    return served.client.post(f"/api/v1/{path}", data={"nocache": 1, "timeout": "1s", **asked}, headers=headers)


@pytest.mark.parametrize("name", CROWDING)
def test_a_neighbour_is_answered_meanwhile(served: Served, name: str) -> None:
    path, asked = CROWDING[name]
    with ThreadPoolExecutor(4) as pool:
        crowd = [pool.submit(ask, served, org, path, asked) for org in NAMES[:2] for _ in range(2)]
        answer = ask(served, NAMES[2], "query", {"query": "small", "timeout": "20s", **NOW})
        assert answer.status_code == 200, answer.text
        assert len(answer.json()["data"]["result"]) == 1
        for each in crowd:
            assert each.result().status_code in (200, 400, 422, 503), each.result().text[:300]
    wait_until_free(served)


@pytest.mark.parametrize("pattern", [NESTED, "(p|o|d|-|[0-9]){1,900}x", ".*" * 400 + "x", "(a*)*(b*)*(c*)*c"])
def test_no_regular_expression_takes_long(served: Served, pattern: str) -> None:
    began = time.monotonic()
    answer = served.client.post("/api/v1/query", data={"query": f'{{pod=~"{pattern}"}}', **NOW})
    assert answer.status_code in (200, 400), answer.text
    assert time.monotonic() - began < 8.0


def test_bytes_are_refused_before_they_are_read(served: Served, lake: WorkerLake) -> None:
    with serving(lake) as serve:
        small = serve(AuthOf(served.api.auth.orgs[NAMES[0]]), max_bytes=10_000)  # type: ignore[attr-defined]
        answer = small.client.get("/api/v1/query", params={"query": "small", **NOW, "explain": 1})
        assert answer.status_code == 422
        assert "api.max_bytes" in answer.json()["error"]
        assert small.workers.requests == 0, "a worker was asked to read"


def test_a_body_that_never_ends(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_body, "MAX_BODY_S", 0.5)
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
