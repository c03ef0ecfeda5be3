"""An alert fires after its time, is sent once to each receiver, and is resolved; one that fails is tried again."""

from __future__ import annotations

import http.server
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from lakerunner.model.errors import BadInput
from lakerunner.ops.monitor.alerts import Alerts, State
from lakerunner.ops.monitor.receivers import Receiver, receivers_of
from lakerunner.runtime.settings import MonitorSettings
from lakerunner.serve.admin.conditions import Problem
from tests.components.peers import peer

START = datetime(2026, 11, 17, tzinfo=UTC)
STUCK = Problem("LakerunnerStageStuck", "page", "one", {"stage": "ingest"}, for_s=30)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def states(current: list[Any]) -> list[State]:
    return [each.state for each in current]


def test_a_problem_fires_only_when_it_holds_long_enough() -> None:
    alerts = Alerts()
    assert alerts.update([STUCK], at(0)) == []
    assert alerts.update([], at(10)) == []
    assert alerts.update([STUCK], at(20)) == []
    assert alerts.update([STUCK], at(49)) == []
    (fired,) = alerts.update([STUCK], at(50))
    assert fired.state is State.FIRING and fired.started_at == at(20)


def test_flapping_is_one_alert_and_a_real_end_is_told_once() -> None:
    alerts = Alerts()
    alerts.update([STUCK], at(0))
    assert states(alerts.update([STUCK], at(30))) == [State.FIRING]
    assert states(alerts.update([], at(40))) == [State.FIRING]
    assert states(alerts.update([STUCK], at(50))) == [State.FIRING]
    (ended,) = alerts.update([], at(110))
    assert (ended.state, ended.ended_at) == (State.RESOLVED, at(110))
    assert alerts.update([], at(120)) == []


def test_labels_tell_alerts_apart() -> None:
    other = Problem("LakerunnerStageStuck", "page", "two", {"stage": "compact"})
    current = Alerts().update([other, Problem("LakerunnerStageStuck", "page", "three", {"stage": "rollup"})], at(0))
    assert {each.problem.labels["stage"] for each in current} == {"compact", "rollup"}


class Endpoint:
    """A real HTTP server that keeps what it is sent, and fails when told to."""

    def __init__(self) -> None:
        self.received: list[tuple[str, Any]] = []
        self.status = 200
        endpoint = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = orjson.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if endpoint.status == 200:
                    endpoint.received.append((self.path, body))
                self.send_response(endpoint.status)
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.server.shutdown()
    made.server.server_close()


def fired() -> Any:
    return Alerts().update([Problem("LakerunnerDeadLetters", "ticket", "3 messages are dead letters.")], at(0))


def ended() -> Any:
    alerts = Alerts()
    alerts.update([Problem("LakerunnerDeadLetters", "ticket", "3 messages are dead letters.")], at(0))
    return alerts.update([], at(200))


def test_a_webhook_is_told_once_then_again_after_a_while_then_of_the_end(endpoint: Endpoint) -> None:
    settings = MonitorSettings(webhooks=f"{endpoint.url}/hook?token=x", repeat_s=100)
    (receiver,) = receivers_of(settings)
    receiver.send(fired(), at(0))
    receiver.send(fired(), at(50))
    assert len(endpoint.received) == 1
    path, body = endpoint.received[0]
    assert path == "/hook?token=x" and body["deployment"] == "lakerunner"
    (alert,) = body["alerts"]
    assert alert["status"] == "firing" and alert["labels"]["alertname"] == "LakerunnerDeadLetters"
    assert alert["annotations"]["runbook"].endswith("#lakerunnerdeadletters") and alert["endsAt"] is None
    receiver.send(fired(), at(101))
    receiver.send(ended(), at(200))
    receiver.send([], at(300))
    assert [body["alerts"][0]["status"] for _, body in endpoint.received] == ["firing", "firing", "resolved"]


def test_alertmanager_is_told_as_its_api_wants_it(endpoint: Endpoint) -> None:
    (receiver,) = receivers_of(MonitorSettings(alertmanagers=endpoint.url + "/"))
    receiver.send(fired(), at(0))
    receiver.send(fired(), at(61))
    receiver.send(ended(), at(200))
    assert [path for path, _ in endpoint.received] == ["/api/v2/alerts"] * 3
    first, again, last = (body[0] for _, body in endpoint.received)
    assert first["labels"] == {"alertname": "LakerunnerDeadLetters", "severity": "ticket", "deployment": "lakerunner"}
    # It ends by itself when the monitor is gone, unless it is sent again.
    assert datetime.fromisoformat(first["endsAt"]) == at(240) and datetime.fromisoformat(again["endsAt"]) == at(301)
    assert datetime.fromisoformat(last["endsAt"]) == at(200)


def test_a_receiver_that_fails_is_tried_again_and_delays_no_other(endpoint: Endpoint) -> None:
    settings = MonitorSettings(webhooks=f"http://127.0.0.1:9/, {endpoint.url}")
    broken, well = receivers_of(settings)
    endpoint.status = 500
    well.send(fired(), at(0))
    endpoint.status = 200
    well.send(fired(), at(1))
    assert endpoint.received == []
    well.send(fired(), at(10))
    broken.send(fired(), at(10))
    assert len(endpoint.received) == 1
    # What ended while a receiver was away is sent when it is back; what it never heard of is not.
    endpoint.status = 500
    well.send(ended(), at(200))
    endpoint.status = 200
    well.send([], at(400))
    broken.send(ended(), at(400))
    assert [body["alerts"][0]["status"] for _, body in endpoint.received] == ["firing", "resolved"]
    assert not broken._endings


def test_a_wrong_address_is_refused_without_showing_it() -> None:
    with pytest.raises(BadInput, match=r"monitor\.webhooks") as refused:
        receivers_of(MonitorSettings(webhooks="ftp://secret"))
    assert "secret" not in str(refused.value)


def test_receivers_are_independent(endpoint: Endpoint) -> None:
    assert [
        each.kind for each in receivers_of(MonitorSettings(webhooks="http://a,http://b", alertmanagers="http://c"))
    ] == [
        "webhook",
        "webhook",
        "alertmanager",
    ]
    assert isinstance(receivers_of(MonitorSettings(webhooks=endpoint.url))[0], Receiver)


def test_a_real_alertmanager_shows_an_alert_and_its_end(tmp_path: Path) -> None:
    program = peer("alertmanager")
    config = tmp_path / "alertmanager.yml"
    config.write_text("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(
        [
            program, f"--config.file={config}", f"--storage.path={tmp_path}", f"--web.listen-address=127.0.0.1:{port}",
            "--cluster.listen-address=",
        ],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until(lambda: httpx.get(f"{url}/-/ready").status_code == 200)
        (receiver,) = receivers_of(MonitorSettings(alertmanagers=url))
        alerts, now = Alerts(), datetime.now(UTC)
        problem = Problem("LakerunnerDeadLetters", "ticket", "3 messages are dead letters.")
        receiver.send(alerts.update([problem], now), now)
        shown = f"{url}/api/v2/alerts"
        until(lambda: len(httpx.get(shown).json()) == 1)
        (found,) = httpx.get(shown).json()
        assert found["labels"] == {
            "alertname": "LakerunnerDeadLetters", "severity": "ticket", "deployment": "lakerunner"
        }  # fmt: skip
        assert found["annotations"]["summary"] == "3 messages are dead letters."
        assert found["status"]["state"] == "active"
        later = now + timedelta(seconds=120)
        receiver.send([replace(each, ended_at=datetime.now(UTC)) for each in alerts.update([], later)], later)
        until(lambda: httpx.get(shown).json() == [])
    finally:
        process.terminate()
        process.wait(10)


def until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 30
    while True:
        try:
            if condition():
                return
        except httpx.HTTPError:
            pass
        assert time.monotonic() < end_s
        time.sleep(0.05)
