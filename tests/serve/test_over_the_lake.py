"""The whole way of a query: HTTP, plan, Flight, a worker and real segments give what memory gives."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson
import pytest

from lakerunner.query.series.memory_source import MemorySource
from lakerunner.query.series.results import QueryResult
from lakerunner.serve.rendering.values import data_json
from tests.query.engine import Engine
from tests.query.worker_lake import WorkerLake
from tests.serve.served import END_S, START_S, AuthOf, Served, filled, serving

MINUTE_MS = 60_000
START_MS, END_MS = START_S * 1000, END_S * 1000


@dataclass(repr=False)
class Both:
    """The same series twice: as segments behind the API, and in memory."""

    served: Served
    memory: MemorySource
    lake: WorkerLake
    org_id: uuid.UUID

    @property
    def engine(self) -> Engine:
        return Engine(self.memory)

    def ask(self, path: str, **params: Any) -> Any:
        answer = self.served.client.get(f"/api/v1/{path}", params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture(scope="module")
def both(lake: WorkerLake) -> Iterator[Both]:
    memory = filled()
    org_id = lake.write(memory)
    with serving(lake) as serve:
        yield Both(serve(AuthOf(org_id)), memory, lake, org_id)


def rendered(result: QueryResult) -> Any:
    return orjson.loads(data_json(result.value))


@pytest.mark.parametrize("text", ["requests_total", "latency", "sum by (job) (up)", 'up{job="job1"}[2m]'])
def test_the_same_value_at_a_time(both: Both, text: str) -> None:
    data = both.ask("query", query=text, time=END_S)["data"]
    assert data == rendered(both.engine.instant(text, END_MS))
    assert data["result"]


@pytest.mark.parametrize(
    ("text", "step_s"),
    [("sum by (job) (rate(requests_total[5m]))", 60), ("histogram_count(latency)", 600), ("latency", 15)],
)
def test_the_same_values_over_time(both: Both, text: str, step_s: int) -> None:
    answer = both.ask("query_range", query=text, start=START_S, end=END_S, step=step_s, explain=1)
    assert answer["data"] == rendered(both.engine.range(text, START_MS, END_MS, step_s * 1000))
    assert answer["data"]["result"]
    steps = (END_S - START_S) // step_s + 1
    pushed: dict[str, int] = answer["explain"]["pushDown"]["stepsByWorker"]
    assert sum(pushed.values()) == steps, "all steps are evaluated by the worker"


def test_the_same_series_and_labels(both: Both) -> None:
    times = {"start": START_S, "end": END_S}
    every = both.memory.select([], START_MS, END_MS).labels
    some = [dict(labels) for labels in every if labels.get("__name__") in ("up", "latency")]
    assert both.ask("series", **times, **{"match[]": ["up", "latency"]})["data"] == sorted(
        some, key=lambda labels: sorted(labels.items())
    )
    assert both.ask("labels", **times)["data"] == sorted({name for labels in every for name, _ in labels})
    jobs = {labels.get("job") for labels in every if labels.get("__name__") == "latency"}
    assert both.ask("label/job/values", **times, **{"match[]": "latency"})["data"] == sorted(jobs)


def test_a_stream_with_its_account(both: Both) -> None:
    body = {"q": "sum(up)", "s": START_MS, "e": END_MS, "step": "15s", "explain": True, "nocache": True}
    text = both.served.client.post("/api/v1/metrics/query", json=body).text
    told = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    results = [frame["data"] for frame in told if frame["type"] == "result"]
    points = [(one["timestamp"], float(one["value"])) for one in results]
    (expected,) = rendered(both.engine.range("sum(up)", START_MS, END_MS, 15_000))["result"]
    assert points == [(time_s * 1000, float(value)) for time_s, value in expected["values"]]
    summary = told[-2]["data"]
    assert summary["segmentsRead"] == summary["segmentsPlanned"] > 0
    assert (summary["segmentsFailed"], summary["tiersSeconds"]) == (0, [0])
    assert summary["watermarkMs"] is None, "these segments were not made of raw objects"
    assert summary["selectors"][0]["rules"]
    assert sum(summary["pushDown"]["stepsByWorker"].values()) == len(points)


def test_kept_until_a_segment_comes(both: Both) -> None:
    params = {"query": "count(up)", "start": START_S, "end": END_S, "step": 300}

    def ask() -> tuple[str, str]:
        answer = both.served.client.get("/api/v1/query_range", params=params)
        return answer.headers["x-lakerunner-cache"], answer.json()["data"]["result"][0]["values"][0][1]

    assert ask() == ("miss", "3")
    assert ask() == ("hit", "3")
    late = [one for one in filled(jobs=4)._series.values() if one.labels.get("job") == "job3"]
    both.lake.commit(both.org_id, [both.lake.put(both.org_id, late)])
    assert ask() == ("miss", "4")
    assert ask() == ("hit", "4")


def test_bytes_are_limited(both: Both) -> None:
    with serving(both.lake) as serve:
        served = serve(AuthOf(both.org_id), max_bytes=10)
        answer = served.client.get("/api/v1/query", params={"query": "up", "time": START_S + 60})
        assert answer.status_code == 422
        assert "bytes" in answer.json()["error"]


def test_without_a_time_the_last_day_is_meant(both: Both) -> None:
    """The data is years old: requests that name no time find nothing of it."""
    with serving(both.lake) as serve:
        served = serve(AuthOf(both.org_id), metadata_range_s=86_400.0)
        assert served.client.get("/ready").status_code == 200
        assert served.client.get("/api/v1/status/tsdb").json()["data"]["headStats"]["numSeries"] == 0
        assert served.client.get("/api/v1/metadata").json()["data"] == {}
