"""LogQL as a stream: entries as events or Arrow, values as events, each resumable on its snapshot."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import orjson
import pyarrow as pa
import pytest

from lakerunner.serve.lake.arrow_stream import ARROW, CURSOR, SUMMARY
from tests.query.ingesting import ingest
from tests.query.worker_lake import WorkerLake
from tests.serve.log_requests import S, log_request, org_with_logs
from tests.serve.served import AuthOf, serving

NOW_S = int(time.time()) - 600
#: Several entries of one instant, so that a place within it matters.
LINES = [(NOW_S * S + number // 4 * S, f"line {number}") for number in range(200)]
BODY = {"q": '{service_name="cart"}', "s": (NOW_S - 60) * 1000, "e": (NOW_S + 120) * 1000}


@pytest.fixture(scope="module")
def org_id(lake: WorkerLake) -> uuid.UUID:
    return org_with_logs(lake, [log_request("cart", LINES)])


@pytest.fixture(scope="module")
def client(lake: WorkerLake, org_id: uuid.UUID) -> Iterator[httpx.Client]:
    with serving(lake, AuthOf(org_id)) as serve:
        yield serve().client


def frames(client: httpx.Client, body: dict[str, Any], last_id: str = "") -> list[tuple[str, str, Any]]:
    headers = {"Last-Event-ID": last_id} if last_id else {}
    answer = client.post("/api/v1/logs/query", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    found = []
    for block in answer.text.strip().split("\n\n"):
        event_id, _, data = block.rpartition("data: ")
        document = orjson.loads(data)
        found.append((document["type"], event_id.removeprefix("id: ").strip(), document["data"]))
    return found


def results(found: list[tuple[str, str, Any]]) -> list[tuple[str, str]]:
    return [(event_id, data["message"]) for kind, event_id, data in found if kind == "result"]


def test_entries_are_events(client: httpx.Client) -> None:
    found = frames(client, {**BODY, "limit": 5})
    first = next(data for kind, _, data in found if kind == "result")
    assert first["timestamp"] == LINES[-1][0] // 1_000_000 and first["timestampNs"] == str(LINES[-1][0])
    assert first["tags"]["service_name"] == "cart"
    assert len(results(found)) == 5 and found[-1][0] == "done" and found[-1][2] == {"status": "ok"}
    summary = next(data for kind, _, data in found if kind == "summary")
    assert summary["results"] == 5 and summary["truncated"]
    chosen = frames(client, {**BODY, "limit": 1, "fields": ["number"]})[0][2]["tags"]
    assert list(chosen) == ["number"]


def test_explain_shows_what_the_scan_was_asked_for(client: httpx.Client) -> None:
    body = {**BODY, "q": '{service_name="cart"} |= "line 19"', "limit": 5, "explain": True}
    summary = next(data for kind, _, data in frames(client, body) if kind == "summary")
    scan = summary["rowScan"]
    assert "pruned_by_needles" in scan and "line 19" in str(scan["predicates"]) and "cart" in str(scan["predicates"])


@pytest.mark.parametrize("reverse", [True, False])
@pytest.mark.parametrize("limit", [0, 150])
def test_a_stream_is_resumed_anywhere(client: httpx.Client, reverse: bool, limit: int) -> None:
    body = {**BODY, "reverse": reverse, "limit": limit}
    whole = results(frames(client, body))
    assert len(whole) == (limit or len(LINES)) and len(set(whole)) == len(whole)
    assert len({event_id for event_id, _ in whole}) == len(whole)
    for place in (0, 1, 2, 3, 77, len(whole) - 2, len(whole) - 1):
        assert results(frames(client, body, whole[place][0])) == whole[place + 1 :], place


def test_a_resumed_stream_reads_its_snapshot(lake: WorkerLake) -> None:
    org_id = org_with_logs(lake, [log_request("cart", LINES[:8])])
    with serving(lake, AuthOf(org_id)) as serve:
        client = serve().client
        whole = results(frames(client, BODY))
        ingest(lake, org_id, [log_request("cart", [(time_ns, "later") for time_ns, _ in LINES[:8]])])
        assert results(frames(client, BODY, whole[2][0])) == whole[3:]
        assert len(results(frames(client, BODY))) == 16


@pytest.mark.parametrize("last_id", ["x", "log_1_2_none_3_1_1", "log_0_9_none_3_1_1", "1_2_3_none_4_5"])
def test_a_bad_position_is_refused(client: httpx.Client, last_id: str) -> None:
    answer = client.post("/api/v1/logs/query", json=BODY, headers={"Last-Event-ID": last_id})
    refused = answer.status_code == 400 or '"type":"error"' in answer.text
    assert refused


def test_entries_are_arrow_if_that_is_accepted(client: httpx.Client) -> None:
    whole, cursors, summary = arrow(client, BODY)
    assert len(whole) == len(LINES) and summary["results"] == len(LINES)
    rest, _, _ = arrow(client, BODY, cursors[0])
    assert rest == whole[len(whole) - len(rest) :]


def arrow(client: httpx.Client, body: dict[str, Any], last_id: str = "") -> tuple[list[str], list[str], Any]:
    headers = {"Accept": ARROW, **({"Last-Event-ID": last_id} if last_id else {})}
    answer = client.post("/api/v1/logs/query", json=body, headers=headers)
    assert answer.headers["content-type"] == ARROW
    lines, cursors, summary = [], [], None
    with pa.ipc.open_stream(answer.content) as reader:
        while True:
            try:
                batch, metadata = reader.read_next_batch_with_custom_metadata()
            except StopIteration:
                return lines, cursors, summary
            lines += batch.column("line").to_pylist() if batch.num_columns else []
            if metadata is not None and CURSOR in metadata.keys():  # noqa: SIM118  (metadata is no dict)
                cursors.append(metadata[CURSOR].decode())
            if metadata is not None and SUMMARY in metadata.keys():  # noqa: SIM118
                summary = orjson.loads(metadata[SUMMARY])


def test_values_are_events_too(client: httpx.Client) -> None:
    body = {**BODY, "q": 'sum(count_over_time({service_name="cart"}[5m]))', "step": "60s"}
    for headers in ({}, {"Accept": ARROW}):
        answer = client.post("/api/v1/logs/query", json=body, headers=headers)
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert '"value":200' in answer.text
    # A limit is about entries.
    points = frames(client, {**body, "step": "1s", "limit": 5})
    assert sum(kind == "result" for kind, _, _ in points) > 100


@pytest.mark.parametrize(
    "body", [{}, {"q": "{"}, {**BODY, "limit": -1}, {**BODY, "x": 1}, {**BODY, "s": BODY["e"] + 1}]
)
def test_bad_requests_are_refused(client: httpx.Client, body: dict[str, Any]) -> None:
    answer = client.post("/api/v1/logs/query", json=body)
    assert answer.status_code == 400 and answer.json()["error"]["message"]
