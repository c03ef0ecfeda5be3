"""What the switch between the lanes refuses has the shape of the dialect that was asked, streams included."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from lakerunner.index.orgs import DEFAULT_ORG_ID
from lakerunner.runtime.http import HttpServer
from lakerunner.runtime.settings import ApiSettings, Settings
from lakerunner.serve.api import Api
from lakerunner.serve.app import api_routes
from lakerunner.serve.auth import Authenticator
from lakerunner.serve.lanes.slow import SlowLane
from tests.query.worker_lake import WorkerLake
from tests.serve.served import END_S, START_S

STREAM = {"q": "sum(up)", "s": START_S * 1000, "e": END_S * 1000, "step": "15s"}
RANGE = {"query": "sum(up)", "start": START_S, "end": END_S, "step": 15}


@pytest.fixture
def busy(lake: WorkerLake, open_auth: Authenticator, free_port: int) -> Iterator[httpx.Client]:
    """An API whose caller has used up its share, with a slow lane that is gone but not yet missed."""
    opened, _ = lake.opened()
    api = Api.over(ApiSettings(org_queries=1, org_waiting=1), opened, open_auth)
    lane = SlowLane(Settings())
    # Nobody listens there: the lane's process has died, and its keeper has not seen that yet.
    lane._port = free_port
    api.admission.usage.asks(uuid.uuid4())
    api.admission.usage.spent(DEFAULT_ORG_ID, 1_000.0)
    server = HttpServer("127.0.0.1", 0, api_routes(api, lane))
    server.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=30) as client:
        yield client
    api.close()
    server.close()


def ask(client: httpx.Client, stream: bool) -> httpx.Response:
    if stream:
        return client.post("/api/v1/metrics/query", json=STREAM)
    return client.post("/api/v1/query_range", data=RANGE)


def assert_shape(document: dict[str, Any], stream: bool, code: str) -> None:
    """Our own error for a stream, Prometheus' for the rest."""
    if stream:
        assert set(document) == {"error"}
        assert set(document["error"]) == {"code", "message", "hint", "where"}
        assert document["error"]["code"] == code
    else:
        assert set(document) == {"status", "errorType", "error"}
        assert (document["status"], document["errorType"]) == ("error", "unavailable")


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "prometheus"])
def test_a_broken_slow_lane(busy: httpx.Client, stream: bool) -> None:
    answer = ask(busy, stream)
    assert answer.status_code == 503
    assert_shape(answer.json(), stream, "unavailable")


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "prometheus"])
def test_more_than_may_wait(busy: httpx.Client, stream: bool) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: ask(busy, stream), range(8)))
    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused
    for answer in refused:
        assert_shape(answer.json(), stream, "too_many")
        assert "retry-after" in answer.headers
