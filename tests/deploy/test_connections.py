"""The arrows are those of the roles: each role is made, and the clients that it opens are compared with its arrows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakerunner.bus.kafka import KafkaBus
from lakerunner.index.database import Database
from lakerunner.intake import role as intake_role
from lakerunner.intake.mapping import KeyMap
from lakerunner.intake.sqs import SqsSource
from lakerunner.ops.canary.look import QueryClient
from lakerunner.ops.canary.role import Canary
from lakerunner.ops.monitor import receivers
from lakerunner.ops.roles import CANARY_ROLES, ROLES, ROLES_BY_SIGNAL
from lakerunner.pipeline.spark.job import SparkJobs
from lakerunner.query.fanout.flight_workers import FlightWorkers
from lakerunner.ruler import notify
from lakerunner.runtime.settings import Settings
from lakerunner.runtime.settings.load import load_settings
from lakerunner.runtime.settings.table import TABLE
from lakerunner.store.object_store import ObjectStore
from tests.deploy.connections import CONNECTIONS, callers_of, peers_of

#: Class of a client -> what it connects to.
CLIENTS: dict[type, str] = {
    Database: "index",
    KafkaBus: "bus",
    ObjectStore: "bucket",
    FlightWorkers: "query-worker",
    SqsSource: "queue",
    receivers.Receiver: "receivers",
    notify.Receiver: "receivers",
    SparkJobs: "spark",
    QueryClient: "query-api",
}


def everything_elsewhere(folder: Path) -> Settings:
    """Settings under which every peer is a server of its own. Nothing listens there."""
    values = {
        "data.dir": str(folder),
        "index.url": "postgresql://127.0.0.1:1/lrdb",
        "bus.kind": "kafka",
        "bus.brokers": "127.0.0.1:1",
        "store.url": "s3://bucket",
        "store.endpoint": "https://127.0.0.1:1",
        "intake.sqs_url": "https://127.0.0.1:1/queue",
        "query.workers": "127.0.0.1:1",
        "query.worker_token": "hush",
        "monitor.alertmanagers": "http://127.0.0.1:1",
        "ruler.alertmanagers": "http://127.0.0.1:1",
        "api.slow_lane": False,
        "api.url": "http://127.0.0.1:1",
    }
    return load_settings(overrides=values)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """What was connected to, as clients are made."""
    found: set[str] = set()

    def watch(client: type, peer: str) -> None:
        make = client.__init__  # type: ignore[misc]

        def made(self: object, *args: Any, **options: Any) -> None:
            found.add(peer)
            make(self, *args, **options)

        monkeypatch.setattr(client, "__init__", made)

    for client, peer in CLIENTS.items():
        watch(client, peer)
    return found


@pytest.mark.parametrize("entry", [*ROLES, *CANARY_ROLES, *ROLES_BY_SIGNAL], ids=lambda entry: entry.name)
def test_a_role_opens_the_clients_of_its_arrows(
    entry: Any, tmp_path: Path, opened: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    settings = everything_elsewhere(tmp_path)
    role = entry.load()(settings)
    try:
        # Opened when the role starts, or when it leads.
        if isinstance(role, intake_role.Pubsub):
            intake_role._sources(settings, role._recorder)
            role._recorder.store(KeyMap([], [], "s3://bucket", "always"), "s3://bucket")
        if isinstance(role, Canary):
            QueryClient(role._api_url(), "key")
        assert opened == peers_of(entry.name) - _read_by_others(entry.name)
    finally:
        role.close()


def _read_by_others(role: str) -> set[str]:
    """The API and the ruler read the bucket themselves only where there are no workers."""
    return {"bucket"} if role == "query-api" else set()


def test_every_role_has_arrows_and_every_arrow_an_end() -> None:
    roles = {entry.name for entry in (*ROLES, *CANARY_ROLES)}
    calls = CONNECTIONS["calls"]
    assert set(calls) == roles | {"spark-executor", "migrate"}
    assert {peer for peers in calls.values() for peer in peers} == {*CONNECTIONS["peers"], "query-worker", "query-api"}
    assert callers_of("query-worker") == {"query-api", "ruler"}
    assert set(CONNECTIONS["services"]) <= roles


def test_secrets_are_settings_that_are_secret() -> None:
    named = {
        setting
        for about in (*CONNECTIONS["peers"].values(), *CONNECTIONS["services"].values())
        for setting in about.get("secrets", ())
    }
    # The key of the command line belongs to people, not to roles.
    assert named == {name for name, setting in TABLE.items() if setting.secret} - {"api.key"}
