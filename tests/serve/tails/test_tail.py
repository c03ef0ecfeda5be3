"""Live tails over WebSocket and events: every entry once, bounded, and closed with their client."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from socket import SHUT_RDWR
from typing import Any
from unittest.mock import Mock

import orjson
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from lakerunner.serve.loki import tail as loki_tail
from lakerunner.serve.tails import pending, tails
from tests.pipeline.delete import deleting
from tests.query.ingesting import ingest
from tests.query.worker_lake import WorkerLake
from tests.serve.log_requests import S, log_request, org_with_logs
from tests.serve.served import AuthOf, Served, serving

QUERY = "?query=%7Bservice_name%3D%22cart%22%7D%20%7C%3D%20%22wanted%22"
TIMEOUT_S = 20.0


def lines(first: int, count: int, word: str = "wanted") -> list[tuple[int, str]]:
    now_ns = time.time_ns()
    return [(now_ns + number, f"{word} {number}") for number in range(first, first + count)]


def opened(served: Served, path: str = f"/loki/api/v1/tail{QUERY}", **options: Any) -> ClientConnection:
    return connect(served.url.replace("http", "ws") + path, max_size=None, **options)


def messages_of(socket: ClientConnection, enough: Callable[[list[Any]], bool]) -> list[Any]:
    found: list[Any] = []
    until_s = time.monotonic() + TIMEOUT_S
    while not enough(found) and time.monotonic() < until_s:
        try:
            found.append(orjson.loads(socket.recv(timeout=0.5)))
        except TimeoutError:
            continue
    return found


def entries_in(messages: list[Any]) -> list[str]:
    return [value[1] for message in messages for stream in message["streams"] for value in stream["values"]]


def wait_for(condition: Callable[[], bool]) -> None:
    until_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.05)


def tails_of(served: Served, org_id: uuid.UUID) -> int:
    return served.api.tails._running[org_id]


def test_entries_come_once_as_segments_come(lake: WorkerLake) -> None:
    org_id = org_with_logs(lake, [log_request("cart", [*lines(0, 3), *lines(90, 2, "other")])])
    with serving(lake, AuthOf(org_id)) as serve:
        served = serve()
        with opened(served) as socket:
            assert sorted(entries_in(messages_of(socket, lambda found: len(entries_in(found)) >= 3))) == [
                f"wanted {number}" for number in range(3)
            ]
            for first in (3, 6):
                ingest(lake, org_id, [log_request("cart", lines(first, 3)), log_request("shop", lines(50, 5))])
                found = messages_of(socket, lambda found: len(entries_in(found)) >= 3)
                assert entries_in(found) == [f"wanted {number}" for number in range(first, first + 3)]
            # Deleting rows writes segments again, without them. Their other rows are no news.
            now_ns = time.time_ns()
            deleting.request(
                lake.database, org_id, "logs", '{service_name="cart"} |= "wanted 4"', now_ns - 600 * S, now_ns + 600 * S
            )
            deleting.work_off(lake.settings, lake.database)
            with pytest.raises(TimeoutError):
                socket.recv(timeout=1.5)
            assert tails_of(served, org_id) == 1
        wait_for(lambda: tails_of(served, org_id) == 0)


def test_a_burst_reaches_a_reader_that_keeps_up(lake: WorkerLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending.Pending, "__init__", _small(pending.Pending.__init__))
    org_id = org_with_logs(lake, [log_request("cart", lines(0, 120))])
    with serving(lake, AuthOf(org_id)) as serve, opened(serve(), f"/loki/api/v1/tail{QUERY}&limit=200") as socket:
        ingest(lake, org_id, [log_request("cart", lines(120, 400))])
        found = messages_of(socket, lambda found: len(entries_in(found)) >= 520)
        assert sorted(entries_in(found)) == sorted(f"wanted {number}" for number in range(520))
        assert not any("dropped_entries" in each for each in found)


def test_a_slow_reader_is_told_what_it_missed(lake: WorkerLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending.Pending, "__init__", _small(pending.Pending.__init__))
    monkeypatch.setattr(tails, "_PATIENCE_S", 0.2)
    monkeypatch.setattr(tails, "_MAX_FOUND", 300)
    dropping = threading.Event()
    monkeypatch.setattr(pending.Pending, "drop", _noticed(pending.Pending.drop, dropping))
    org_id = org_with_logs(lake, [log_request("cart", lines(0, 1))])
    with serving(lake, AuthOf(org_id)) as serve:
        served = serve()
        with opened_by_a_slow_client(served) as socket:
            ingest(lake, org_id, long_lines(400))
            wait_for(dropping.is_set)
            found = messages_of(socket, lambda found: any("dropped_entries" in each for each in found))
            dropped = [entry for each in found for entry in each.get("dropped_entries", ())]
            assert dropped and all(entry["labels"]["service_name"] == "cart" for entry in dropped)
            # 100 of them are beyond what is kept of one look.
            left_out = sum(each.get("dropped_entries_total", 0) for each in found)
            assert left_out > 100 and len(entries_in(found)) + left_out == 401
            # It goes on.
            ingest(lake, org_id, [log_request("cart", [(time.time_ns(), "wanted last")])])
            assert "wanted last" in entries_in(messages_of(socket, lambda found: "wanted last" in entries_in(found)))


def test_a_segment_that_is_replaced_before_it_is_read(lake: WorkerLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows go on in a segment that has nothing new."""
    monkeypatch.setattr(pending.Pending, "__init__", _small(pending.Pending.__init__))
    monkeypatch.setattr(tails, "_PATIENCE_S", TIMEOUT_S)
    org_id = org_with_logs(lake, [log_request("cart", lines(0, 1))])
    with serving(lake, AuthOf(org_id)) as serve:
        served = serve()
        looks = Mock(wraps=served.lake.segments)
        monkeypatch.setattr(served.lake, "segments", looks)
        with opened_by_a_slow_client(served) as socket:
            ingest(lake, org_id, long_lines(200))
            wait_for_looks(looks)
            ingest(lake, org_id, [log_request("cart", lines(500, 1)), log_request("shop", lines(0, 1))])
            wait_for_looks(looks)
            now_ns = time.time_ns()
            deleting.request(lake.database, org_id, "logs", '{service_name="shop"}', now_ns - 600 * S, now_ns + 600 * S)
            deleting.work_off(lake.settings, lake.database)
            found = messages_of(socket, lambda found: "wanted 500" in entries_in(found))
            assert len(entries_in(found)) == 202 and not any("dropped_entries" in each for each in found)


def opened_by_a_slow_client(served: Served) -> ClientConnection:
    """A message of long lines fills what the connection holds until the client reads."""
    return opened(served, max_queue=1, compression=None, ping_interval=None)


def long_lines(count: int) -> list[bytes]:
    return [log_request("cart", lines(first, 20, "wanted " + "x" * 100_000)) for first in range(0, count, 20)]


def wait_for_looks(looks: Mock) -> None:
    """Wait until a tail has looked for segments, and looked again."""
    made = looks.call_count
    wait_for(lambda: looks.call_count >= made + 2)


def _small(init: Callable[..., None]) -> Callable[..., None]:
    def made(self: Any) -> None:
        init(self, max_entries=10)

    return made


def _noticed(drop: Callable[..., None], noticed: threading.Event) -> Callable[..., None]:
    def dropped(self: Any, first: Any, entries: int) -> None:
        drop(self, first, entries)
        noticed.set()

    return dropped


def test_a_tail_that_fails_ends_with_an_error(lake: WorkerLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loki_tail, "_LOOK_S", 0.2)
    org_id = org_with_logs(lake, [log_request("cart", lines(0, 1))])
    with serving(lake, AuthOf(org_id)) as serve:
        served = serve()
        with opened(served) as socket:
            assert messages_of(socket, bool)
            monkeypatch.setattr(served.lake, "segments", Mock(side_effect=KeyError("no such thing")))
            with pytest.raises(ConnectionClosed) as closed:
                socket.recv(timeout=TIMEOUT_S)
            assert closed.value.rcvd is not None and "the tail failed" in closed.value.rcvd.reason
        wait_for(lambda: tails_of(served, org_id) == 0)


def test_refusals(lake: WorkerLake) -> None:
    org_id = org_with_logs(lake, [log_request("cart", lines(0, 1))])
    with serving(lake, AuthOf(org_id)) as serve:
        served = serve(org_tails=1)
        for path in (
            "/loki/api/v1/tail?query=rate(%7Ba%3D%22b%22%7D%5B1m%5D)",
            "/loki/api/v1/tail?query=%7B",
            "/loki/api/v1/tail",
            f"/loki/api/v1/tail{QUERY}&delay_for=99",
            f"/loki/api/v1/tail{QUERY}&limit=0",
        ):
            with pytest.raises(InvalidStatus) as refused, opened(served, path):
                pass
            assert refused.value.response.status_code == 400
        metric = served.client.post("/api/v1/logs/tail", json={"q": 'rate({a="b"}[1m])'})
        assert metric.status_code == 400 and "cannot tail a metric query" in metric.text
        assert tails_of(served, org_id) == 0
        with opened(served), pytest.raises(InvalidStatus) as refused, opened(served):
            pass
        assert refused.value.response.status_code == 429
        wait_for(lambda: tails_of(served, org_id) == 0)
        with opened(served) as socket:
            assert messages_of(socket, bool)


def test_a_client_that_vanishes_ends_its_tail(lake: WorkerLake) -> None:
    org_id = org_with_logs(lake, [log_request("cart", lines(0, 1))])
    with serving(lake, AuthOf(org_id)) as serve:
        served = serve()
        with opened(served) as socket:
            wait_for(lambda: tails_of(served, org_id) == 1)
            socket.socket.shutdown(SHUT_RDWR)
            wait_for(lambda: tails_of(served, org_id) == 0)


def test_a_server_that_stops_closes_its_tails(lake: WorkerLake) -> None:
    org_id = org_with_logs(lake, [log_request("cart", lines(0, 1))])
    with ExitStack() as outer:
        with serving(lake, AuthOf(org_id)) as serve:
            socket = outer.enter_context(opened(serve()))
        with pytest.raises(ConnectionClosed):
            for _ in range(100):
                socket.recv(timeout=TIMEOUT_S)


def test_a_tail_as_events(lake: WorkerLake) -> None:
    org_id = org_with_logs(lake, [log_request("cart", lines(0, 2))])
    with serving(lake, AuthOf(org_id)) as serve:
        served = serve(heartbeat_s=0.5)
        body = {"q": '{service_name="cart"} |= "wanted"', "s": "now-1h"}
        found: list[str] = []
        with served.client.stream("POST", "/api/v1/logs/tail", json=body) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            added = False
            for line in answer.iter_lines():
                if not line.startswith("data: "):
                    continue
                document = orjson.loads(line[6:])
                if document["type"] == "result":
                    found.append(document["data"]["message"])
                if len(found) == 2 and not added:
                    added = True
                    ingest(lake, org_id, [log_request("cart", lines(2, 2))])
                if len(found) >= 4:
                    break
        assert found == [f"wanted {number}" for number in range(4)]
        wait_for(lambda: tails_of(served, org_id) == 0)


def test_times_of_the_backlog(lake: WorkerLake) -> None:
    old_ns = time.time_ns() - 1_800 * S
    org_id = org_with_logs(lake, [log_request("cart", [(old_ns, "wanted old"), *lines(0, 5)])])
    with serving(lake, AuthOf(org_id)) as serve:
        served = serve()
        with opened(served, f"/loki/api/v1/tail{QUERY}&start={old_ns + 1}&limit=2") as socket:
            found = messages_of(socket, lambda found: len(entries_in(found)) >= 2)
            assert entries_in(found) == ["wanted 3", "wanted 4"]
