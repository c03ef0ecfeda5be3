"""The API over real segments: the same answers as over memory, told with what was read."""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from lakerunner.query.lake_door import LakeDoor
from lakerunner.query.series.memory_source import MemorySource
from lakerunner.serve.auth import Authenticator, Caller
from tests.components.postgres import PostgresServer
from tests.query.lake_of_series import LakeOfSeries, lake_of_series
from tests.serve.conftest import END_S, START_S, House, fill, houses
from tests.serve.memory_lake import MemoryLake


class AuthOf(Authenticator):
    """Lets everybody in, for one org."""

    def __init__(self, org_id: uuid.UUID) -> None:
        self._org_id = org_id

    async def caller(self, request: Request) -> Caller:
        return Caller(self._org_id, "test")


@dataclass(repr=False)
class Both:
    lake: House
    memory: House
    segments: LakeOfSeries
    org_id: uuid.UUID


@pytest.fixture(scope="module")
def both(postgres_server: PostgresServer) -> Iterator[Both]:
    source = MemorySource()
    fill(source, "")
    with tempfile.TemporaryDirectory() as folder, lake_of_series(Path(folder), postgres_server.new_database()) as lake:
        org_id = lake.write(source)
        memory = MemoryLake()
        memory.org(org_id).samples = source
        auth = AuthOf(org_id)
        with houses(auth) as make:
            real = make(LakeDoor(lake.lake, lake.database), auth)
            yield Both(real, make(memory, auth), lake, org_id)


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("query", {"query": "requests_total", "time": START_S + 600}),
        ("query", {"query": "latency", "time": START_S + 600}),
        ("query", {"query": 'up{job="job1"}[2m]', "time": END_S}),
        (
            "query_range",
            {"query": "sum by (job) (rate(requests_total[5m]))", "start": START_S, "end": END_S, "step": 60},
        ),
        ("query_range", {"query": "histogram_count(latency)", "start": START_S, "end": END_S, "step": 600}),
        ("series", {"match[]": ["up", "latency"], "start": START_S, "end": END_S}),
        ("labels", {"start": START_S, "end": END_S}),
        ("label/job/values", {"start": START_S, "end": END_S, "match[]": "latency"}),
    ],
)
def test_the_same_answers(both: Both, path: str, params: dict[str, Any]) -> None:
    answers = [house.client.get(f"/api/v1/{path}", params=params) for house in (both.lake, both.memory)]
    assert [answer.status_code for answer in answers] == [200, 200], answers[0].text
    assert answers[0].json()["data"] == answers[1].json()["data"]
    assert answers[0].json()["data"]


def test_a_stream_with_its_account(both: Both) -> None:
    body = {"q": "sum(up)", "s": START_S * 1000, "e": END_S * 1000, "step": "15s", "explain": True, "nocache": True}
    told = []
    for house in (both.lake, both.memory):
        text = house.client.post("/api/v1/metrics/query", json=body).text
        told.append([json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")])
    results = [[frame["data"] for frame in frames if frame["type"] == "result"] for frames in told]
    assert results[0] == results[1]
    summary = told[0][-2]["data"]
    assert summary["segmentsRead"] == summary["segmentsPlanned"] > 0
    assert (summary["segmentsFailed"], summary["tiersSeconds"]) == (0, [0])
    assert summary["watermarkMs"] >= END_S * 1000
    assert summary["selectors"][0]["rules"]


def test_kept_until_a_segment_comes(both: Both) -> None:
    params = {"query": "count(up)", "start": START_S, "end": END_S, "step": 300}

    def ask() -> tuple[str, str]:
        answer = both.lake.client.get("/api/v1/query_range", params=params)
        return answer.headers["x-lakerunner-cache"], answer.json()["data"]["result"][0]["values"][0][1]

    assert ask() == ("miss", "3")
    assert ask() == ("hit", "3")
    source = MemorySource()
    fill(source, "", jobs=4)
    late = [one for one in source._series.values() if one.labels.get("job") == "job3"]
    both.segments.commit(both.org_id, [both.segments.put(both.org_id, late)])
    assert ask() == ("miss", "4")
    assert ask() == ("hit", "4")


def test_bytes_are_limited(both: Both) -> None:
    auth = AuthOf(both.org_id)
    with houses(auth) as make:
        house = make(both.lake.lake, auth, max_bytes=10)
        answer = house.client.get("/api/v1/query", params={"query": "up", "time": START_S + 60})
        assert answer.status_code == 422
        assert "bytes" in answer.json()["error"]


def test_status_pages(both: Both) -> None:
    assert both.lake.client.get("/ready").status_code == 200
    assert both.lake.client.get("/api/v1/status/tsdb").json()["data"]["headStats"]["numSeries"] == 0
    assert both.lake.client.get("/api/v1/metadata").json()["data"] == {}
