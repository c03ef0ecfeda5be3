"""What a query may cost: limits are named when they stop one, and the worst queries do not stop the small ones."""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from lakerunner.query.language import Check
from lakerunner.query.promql.language import PromQl
from lakerunner.serve.admission.turns import TooMany, Turns
from tests.query.worker_lake import WorkerLake
from tests.serve.served import END_S, START_S, AuthOf, Serve, Served, serving
from tests.serve.wide_lake import Wide, write_wide


def query(served: Served, text: str, **params: Any) -> httpx.Response:
    return served.client.post("/api/v1/query", data={"query": text, "time": START_S + 600, **params})


def query_range(served: Served, text: str, step: float = 15) -> httpx.Response:
    params = {"query": text, "start": START_S, "end": END_S, "step": step}
    return served.client.post("/api/v1/query_range", data=params)


@pytest.mark.parametrize(
    ("limits", "text", "named"),
    [
        ({"max_samples": 100}, "up", "samples"),
        ({"max_series": 2}, "up", "series"),
        ({"max_bytes": 100}, "up", "api.max_bytes"),
        ({"max_steps": 10}, "up", "api.max_steps"),
        ({"max_range_s": 600}, "up", "api.max_range_s"),
        ({"max_range_s": 4_000}, "up offset 3h + up", "api.max_range_s"),
        ({"max_range_s": 4_000}, "rate(up[1d])", "api.max_range_s"),
        ({"timeout_s": 0.000_001}, "up", "api.timeout_s"),
    ],
)
def test_limits_are_named(serve: Serve, limits: dict[str, float], text: str, named: str) -> None:
    served = serve(**limits)
    answer = query_range(served, text)
    assert answer.status_code == {"api.max_steps": 400, "api.timeout_s": 503}.get(named, 422)
    assert named in answer.json()["error"]
    assert ";" in answer.json()["error"], "a hint follows"


def test_a_timeout_given_by_the_client(serve: Serve) -> None:
    served = serve()
    served.workers.delay_s = 5.0
    began = time.monotonic()
    answer = query(served, "up", timeout="300ms")
    assert time.monotonic() - began < 2
    assert (answer.status_code, answer.json()["errorType"]) == (503, "timeout")


def test_a_worker_that_takes_too_long_is_a_timeout_as_well(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()

    def endless(self: PromQl, payload: bytes, source: Any, check: Check) -> None:
        try:
            while True:
                check()
                time.sleep(0.01)
        finally:
            ended.set()

    monkeypatch.setattr(PromQl, "evaluate", endless)
    answer = query(serve(), "up", timeout="500ms")
    assert (answer.status_code, answer.json()["errorType"]) == (503, "timeout")
    assert "api.timeout_s" in answer.json()["error"]
    assert ended.wait(5), "the worker goes on"


def test_a_client_that_goes_is_noticed_within_a_second(serve: Serve) -> None:
    served = serve()
    served.workers.delay_s = 30.0
    host, port = served.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)))
    connection.sendall(b"GET /api/v1/query?query=up&time=%d HTTP/1.1\r\nHost: x\r\n\r\n" % END_S)
    _until(lambda: len(served.api.admission.running._queries) == 1)
    connection.close()
    gone_at = time.monotonic()
    _until(lambda: not served.api.admission.running._queries)
    assert time.monotonic() - gone_at < 1.0
    # And the thread that worked for it works for others again.
    served.workers.delay_s = 0.0
    with ThreadPoolExecutor(8) as pool:
        assert all(answer.status_code == 200 for answer in pool.map(lambda _: query(served, "up"), range(8)))


def _until(condition: Any) -> None:
    end = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


# -- queries of death ------------------------------------------------------------------------------------------


DEATH: dict[str, tuple[str, dict[str, Any]]] = {
    "everything": ("query_range", {"query": '{__name__=~".+"}', "start": START_S, "end": END_S, "step": 0.4}),
    "many steps, many series": (
        "query_range",
        {"query": 'sum({pod=~".+"})', "start": START_S, "end": END_S, "step": 0.4},
    ),
    "cross product": ("query", {"query": '{pod=~".+"} + on (x) group_left {pod=~".+"}', "time": START_S + 60}),
    "a regex bomb": ("query", {"query": '{__name__=~"(((((((((w+)+)+)+)+)+)+)+)+)+$"}', "time": START_S + 60}),
    "a regex that counts": ("query", {"query": '{__name__=~"(((w{1,99}){1,99}){1,99}){1,99}"}', "time": START_S}),
    "parentheses": ("query", {"query": "(" * 10_000 + "1" + ")" * 10_000}),
    "signs": ("query", {"query": "-" * 100_000 + "1"}),
    "calls": ("query", {"query": "abs(" * 10_000 + "small" + ")" * 10_000}),
    "a chain": ("query", {"query": "+".join(["small"] * 20_000), "time": START_S + 60}),
    "a megabyte": ("query", {"query": "small + " * 131_072 + "1"}),
    "many digits": ("query", {"query": "1" * 200_000}),
    "a huge range": ("query", {"query": "rate(small[100000y])"}),
    "fine subquery": ("query", {"query": "max_over_time(small[30d:1ms])", "time": START_S}),
    "nested subqueries": (
        "query",
        {"query": "max_over_time(max_over_time(max_over_time(small[1h:1s])[1h:1s])[1h:1s])"},
    ),
    "scalars in subqueries": ("query", {"query": "max_over_time(scalar(" * 30 + "small" + ")[1m:])" * 30}),
    "count_values": ("query_range", {"query": 'count_values("v", rand)', "start": 0, "end": 1e15, "step": 1e-3}),
    "far times": ("query_range", {"query": "small", "start": -1e18, "end": 1e18, "step": 1e12}),
    "a long tree": ("parse_query", {"query": "+".join(["small"] * 5_000)}),
    "many matchers": ("query", {"query": "{" + ",".join(f'a{n}=~".*x{n}"' for n in range(5_000)) + ',pod="pod-0"}'}),
    "null bytes": ("query", {"query": 'small{a="\x00"}', "time": START_S}),
}


@pytest.fixture(scope="module")
def deadly(lake: WorkerLake) -> Iterator[Served]:
    auth = AuthOf(uuid.uuid4())
    write_wide(lake, auth.org_id, Wide(series=4_000, names=50, points=240, step_ms=15_000))
    with serving(lake) as serve:
        yield serve(auth, max_samples=5_000_000, timeout_s=4.0)


@pytest.mark.parametrize("name", DEATH)
def test_queries_of_death_end_soon_and_leave_others_alive(deadly: Served, name: str) -> None:
    path, params = DEATH[name]
    small_s: list[float] = []
    over = threading.Event()

    def small() -> None:
        with httpx.Client(base_url=deadly.url, timeout=30) as client:
            while not over.is_set() or not small_s:
                began = time.monotonic()
                answer = client.get(
                    "/api/v1/query", params={"query": "count(small)", "time": START_S + 60, "nocache": 1}
                )
                small_s.append(time.monotonic() - began)
                assert answer.json()["data"]["result"][0]["value"][1] == "1"
                over.wait(0.02)

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(small)
        began = time.monotonic()
        try:
            answer = deadly.client.post(f"/api/v1/{path}", data=params)
        finally:
            over.set()
        took_s = time.monotonic() - began
        other.result()
    assert took_s < 6.0
    assert answer.status_code in (200, 400, 422, 503), answer.text[:300]
    assert answer.json()["status"] == ("success" if answer.status_code == 200 else "error")
    assert len(answer.text) < 1_000 or answer.status_code == 200
    assert max(small_s) < 3.0, f"a small query waited {max(small_s):.1f} s"


def test_an_address_too_long_for_a_query_is_no_crash(served: Served) -> None:
    answer = served.client.get("/api/v1/query?query=" + quote("up + " * 3_000 + "1"))
    assert answer.status_code in (200, 400, 414, 431)


# -- taking turns ----------------------------------------------------------------------------------------------


def test_orgs_take_turns() -> None:
    turns = Turns(threads=1, per_org=1, waiting_per_org=100)
    greedy, modest = uuid.uuid4(), uuid.uuid4()
    order: list[str] = []
    gate = threading.Event()
    first = turns.submit(greedy, gate.wait)
    calls = [turns.submit(greedy, lambda: order.append("greedy")) for _ in range(20)]
    calls += [turns.submit(modest, lambda: order.append("modest")) for _ in range(3)]
    gate.set()
    for call in [first, *calls]:
        call.result(5)
    turns.close()
    places = [place for place, who in enumerate(order) if who == "modest"]
    assert places in ([0, 2, 4], [1, 3, 5])


def test_an_org_has_a_share_and_a_queue() -> None:
    turns = Turns(threads=4, per_org=2, waiting_per_org=3)
    greedy, modest = uuid.uuid4(), uuid.uuid4()
    gate = threading.Event()
    running = [turns.submit(greedy, gate.wait) for _ in range(2)]
    _until(lambda: all(call.running() for call in running))
    waiting = [turns.submit(greedy, gate.wait) for _ in range(3)]
    with pytest.raises(TooMany, match="org_waiting"):
        turns.submit(greedy, gate.wait)
    assert turns.submit(modest, lambda: 7).result(5) == 7
    assert not any(call.running() for call in waiting)
    # What is cancelled while it waits makes room.
    assert waiting[0].cancel()
    last = turns.submit(greedy, lambda: 8)
    gate.set()
    assert last.result(5) == 8
    turns.close()


def test_too_many_is_told_with_a_time_to_come_back(serve: Serve) -> None:
    served = serve(threads=1, org_queries=1, org_waiting=1)
    served.workers.delay_s = 0.5
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda n: query(served, f"up + {n}"), range(6)))
    refused = [answer for answer in answers if answer.status_code == 429]
    assert 1 <= len(refused) <= 5
    assert all("retry-after" in answer.headers for answer in refused)
    assert {answer.status_code for answer in answers} == {200, 429}


def test_an_error_in_a_call_reaches_whoever_waits() -> None:
    turns = Turns(threads=1, per_org=1, waiting_per_org=1)
    with pytest.raises(ZeroDivisionError):
        turns.submit(uuid.uuid4(), lambda: 1 // 0).result(5)
    assert turns.submit(uuid.uuid4(), lambda: 1).result(5) == 1
    turns.close()
