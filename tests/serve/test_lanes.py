"""Two lanes: what is slow or asks too much gives way, is still answered, can be cancelled, and can be ended."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from lakerunner.serve.admission.usage import BURST_S, SHARE, Usage
from tests.components.postgres import PostgresServer
from tests.query.lake_of_series import lake_of_series
from tests.serve.roles import Keyed, Roles, keyed_org, running_roles
from tests.serve.wide_lake import START_MS, Wide, write_wide

pytestmark = pytest.mark.slow
WIDE = Wide(series=20_000, names=4, points=60, segments=1)
END_S = WIDE.end_ms / 1000
SLOW = {"query": "sum(quantile_over_time(0.5, wide_0[1h])) + sum(mad_over_time(wide_1[1h]))"}
RANGE = {"start": START_MS / 1000, "end": END_S, "step": (END_S - START_MS / 1000) / 300, "nocache": 1}


def test_an_org_is_busy_while_it_uses_more_than_its_share() -> None:
    now = [0.0]
    usage, greedy, modest = Usage(lambda: now[0]), uuid.uuid4(), uuid.uuid4()
    for _ in range(100):
        now[0] += 1
        usage.spent(greedy, 2 * SHARE)
        usage.spent(modest, SHARE / 2)
    assert usage.is_busy(greedy)
    assert not usage.is_busy(modest)
    now[0] += 10 * BURST_S + 1
    assert not usage.is_busy(greedy), "forgiven"


@dataclass(frozen=True)
class TwoLanes:
    roles: Roles
    loud: Keyed
    quiet: Keyed

    def lane(self) -> psutil.Process:
        return psutil.Process(self.roles.api.pid).children()[0]

    def metric(self, name: str) -> float:
        with self.roles.client() as client:
            lines = client.get("/metrics").text.splitlines()
        return next((float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name)), 0.0)


@pytest.fixture(scope="module")
def lanes(postgres_server: PostgresServer) -> Iterator[TwoLanes]:
    url = postgres_server.new_database()
    with tempfile.TemporaryDirectory(prefix="lanes-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with lake_of_series(folder, url) as lake:
            loud, quiet = keyed_org(lake.database, "loud"), keyed_org(lake.database, "quiet")
            write_wide(lake, loud.org_id, WIDE)
            write_wide(lake, quiet.org_id, Wide(series=20, names=4))
        with running_roles(folder, url) as roles:
            two = TwoLanes(roles, loud, quiet)
            until(lambda: b"slow lane is open" in roles.api.log_path.read_bytes())
            yield two


def until(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_an_org_that_is_alone_gives_way_to_nobody(lanes: TwoLanes) -> None:
    with lanes.roles.client(lanes.loud.secret) as client:
        assert client.post("/api/v1/query_range", data={**SLOW, **RANGE}).status_code == 200
        assert lanes.metric('lakerunner_api_lane_total{lane="slow"}') == 0


def test_a_slow_query_changes_lanes_and_is_answered(lanes: TwoLanes) -> None:
    with lanes.roles.client(lanes.quiet.secret) as client:
        assert client.get("/api/v1/query", params={"query": "1"}).status_code == 200
    with lanes.roles.client(lanes.loud.secret) as client:
        before = lanes.metric('lakerunner_api_lane_total{lane="slow"}')
        answer = client.post("/api/v1/query_range", data={**SLOW, **RANGE})
        assert answer.status_code == 200, answer.text
        assert len(answer.json()["data"]["result"][0]["values"]) > 290
        assert lanes.metric('lakerunner_api_lane_total{lane="slow"}') == before + 1
        # A large answer crosses whole.
        large = client.get("/api/v1/query_range", params={"query": "wide_2", **RANGE})
        assert sum(len(one["values"]) for one in large.json()["data"]["result"]) > 1_000_000


def test_streams_come_through_and_stop(lanes: TwoLanes) -> None:
    body = {"q": "sum(wide_0)", "s": START_MS, "e": WIDE.end_ms, "step": "15s", "nocache": True}
    with lanes.roles.client(lanes.quiet.secret) as client:
        text = client.post("/api/v1/metrics/query", json=body).text
        frames = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
        assert frames[-1] == {"type": "done", "data": {"status": "ok"}}
        assert sum(frame["type"] == "result" for frame in frames) > 200
        assert client.post("/api/v1/metrics/query", json={**body, "q": "sum("}).status_code == 400


def test_queries_of_the_slow_lane_are_listed_and_cancelled(lanes: TwoLanes) -> None:
    outcome: list[int] = []

    def ask() -> None:
        with lanes.roles.client(lanes.loud.secret) as client:
            text = " + ".join([SLOW["query"]] * 20)
            outcome.append(client.post("/api/v1/query_range", data={"query": text, **RANGE}).status_code)

    thread = threading.Thread(target=ask)
    thread.start()
    with lanes.roles.client(lanes.loud.secret) as client, lanes.roles.client(lanes.quiet.secret) as stranger:

        def running() -> list[dict[str, Any]]:
            queries: list[dict[str, Any]] = client.get("/api/v1/queries").json()["queries"]
            return [query for query in queries if query["elapsedSeconds"] > 0.6]

        until(running)
        query_id = running()[0]["id"]
        assert stranger.delete(f"/api/v1/queries/{query_id}").status_code == 404
        assert client.delete(f"/api/v1/queries/{query_id}").json()["state"] == "stopping"
    thread.join(10)
    assert outcome == [503]


def test_a_quiet_org_goes_on_while_a_loud_one_waits(lanes: TwoLanes) -> None:
    over = threading.Event()

    def attack() -> None:
        with lanes.roles.client(lanes.loud.secret, 120) as client:
            while not over.is_set():
                client.post("/api/v1/query_range", data={**SLOW, **RANGE, "timeout": "10s"})

    threads = [threading.Thread(target=attack) for _ in range(6)]
    for thread in threads:
        thread.start()
    try:
        time.sleep(3)
        took_s = []
        with lanes.roles.client(lanes.quiet.secret) as client:
            for _ in range(20):
                began = time.monotonic()
                answer = client.get("/api/v1/query", params={"query": "sum(wide_0)", "time": END_S, "nocache": 1})
                took_s.append(time.monotonic() - began)
                assert answer.status_code == 200
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert sorted(took_s)[len(took_s) // 2] < 1.0


def test_the_slow_lane_is_ended_and_comes_again(lanes: TwoLanes) -> None:
    pid = lanes.lane().pid
    assert lanes.lane().nice() > 0
    os.kill(pid, signal.SIGKILL)
    with lanes.roles.client(lanes.quiet.secret) as client:
        assert client.get("/api/v1/query", params={"query": "small", "time": END_S}).status_code == 200
    until(lambda: lanes.metric("lakerunner_api_lane_restarts_total") >= 1)
    until(lambda: any(child.pid != pid for child in psutil.Process(lanes.roles.api.pid).children()))
