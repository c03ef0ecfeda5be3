"""A query API over a lake in memory, with two orgs, served over real HTTP."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import pytest

from lakerunner.index import api_keys, orgs
from lakerunner.index.api_keys import Scope
from lakerunner.index.database import Database
from lakerunner.index.orgs import DEFAULT_ORG_ID
from lakerunner.model.labels import LabelSet
from lakerunner.query.lake_port import Exemplar, MetricMeta
from lakerunner.query.series.histograms.histogram import Histogram
from lakerunner.query.series.memory_source import MemorySource
from lakerunner.runtime.http import HttpServer
from lakerunner.runtime.settings import ApiSettings
from lakerunner.serve.app import api_routes
from lakerunner.serve.auth import Authenticator
from lakerunner.serve.service import QueryService
from tests.components.postgres import PostgresServer
from tests.serve.memory_lake import MemoryLake

#: Times of the data: a sample every 15 s for an hour.
START_S = 1_700_000_000
STEPS = 240
STEP_S = 15
END_S = START_S + (STEPS - 1) * STEP_S


@dataclass(frozen=True, repr=False)
class House:
    """What a test may touch. Without a repr: pytest would print a whole lake."""

    service: QueryService
    lake: Any
    url: str
    client: httpx.Client


def fill(source: MemorySource, prefix: str, jobs: int = 3) -> None:
    times = (START_S + STEP_S * np.arange(STEPS)) * 1000
    for job in range(jobs):
        labels = {"__name__": f"{prefix}requests_total", "job": f"{prefix}job{job}", "code": "200"}
        source.add(LabelSet.of(labels), times, np.arange(STEPS) * (job + 1.0))
        source.add(LabelSet.of({**labels, "__name__": f"{prefix}up"}), times, np.ones(STEPS))
    histogram = Histogram(schema=0, count=3.0, sum=4.5, pos_index=np.array([0, 2]), pos_count=np.array([1.0, 2.0]))
    source.add(
        LabelSet.of({"__name__": f"{prefix}latency", "job": f"{prefix}job0"}),
        times,
        np.zeros(STEPS),
        histograms=[histogram] * STEPS,
    )


@pytest.fixture(scope="session")
def open_auth(postgres_server: PostgresServer) -> Iterator[Authenticator]:
    database = Database(postgres_server.new_database(), connect_timeout_s=2.0)
    yield Authenticator(database, required=False)
    database.close()


MakeHouse = Callable[..., House]


@contextmanager
def houses(open_auth: Authenticator) -> Iterator[MakeHouse]:
    """Serve lakes; everything is closed after."""
    opened: list[tuple[HttpServer, httpx.Client, QueryService]] = []

    def make(lake: Any = None, auth: Authenticator | None = None, **limits: float) -> House:
        lake = lake or default_lake()
        service = QueryService(ApiSettings(**limits), lake, auth or open_auth)  # type: ignore[arg-type]
        server = HttpServer("127.0.0.1", 0, api_routes(service))
        server.start()
        client = httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=30)
        opened.append((server, client, service))
        return House(service, lake, f"http://127.0.0.1:{server.port}", client)

    try:
        yield make
    finally:
        for server, client, service in opened:
            client.close()
            service.close()
            server.close()


@pytest.fixture
def make_house(open_auth: Authenticator) -> Iterator[MakeHouse]:
    with houses(open_auth) as make:
        yield make


@pytest.fixture(scope="session")
def house(open_auth: Authenticator) -> Iterator[House]:
    """One for all tests that change nothing."""
    with houses(open_auth) as make:
        yield make()


def default_lake() -> MemoryLake:
    lake = MemoryLake()
    fill(lake.of(DEFAULT_ORG_ID), "")
    lake.org(DEFAULT_ORG_ID).meta = {"requests_total": [MetricMeta("counter", "Requests.", "")]}
    lake.org(DEFAULT_ORG_ID).exemplars = [
        Exemplar(
            LabelSet.of({"__name__": "requests_total", "job": "job0"}),
            LabelSet.of({"trace_id": "abc"}),
            6.0,
            START_S * 1000 + 479,
        )
    ]
    return lake


@dataclass(frozen=True, repr=False)
class TwoOrgs:
    auth: Authenticator
    lake: Any
    ours: uuid.UUID
    theirs: uuid.UUID
    #: Secrets by what their key may do.
    secrets: dict[str, str]


@pytest.fixture(scope="session")
def two_orgs(postgres_server: PostgresServer) -> Iterator[TwoOrgs]:
    database = Database(postgres_server.new_database(), connect_timeout_s=2.0)
    with database.transaction() as tx:
        ours = orgs.create_org(tx, "ours").org_id
        theirs = orgs.create_org(tx, "theirs").org_id
        keys = {
            "ours": api_keys.create_key(tx, "grafana", [Scope.QUERY], [ours]),
            "theirs": api_keys.create_key(tx, "victim", [Scope.QUERY], [theirs]),
            "both": api_keys.create_key(tx, "both", [Scope.QUERY], [ours, theirs]),
            "ingest": api_keys.create_key(tx, "collector", [Scope.INGEST], [ours]),
            "admin": api_keys.create_key(tx, "root", [Scope.ADMIN], []),
            "revoked": api_keys.create_key(tx, "old", [Scope.QUERY], [ours]),
        }
        api_keys.revoke_key(tx, keys["revoked"].key.key_id)
    lake = MemoryLake()
    fill(lake.of(ours), "our_")
    fill(lake.of(theirs), "secret_")
    lake.org(theirs).meta = {"secret_requests_total": [MetricMeta("counter", "secret_help", "")]}
    secrets = {name: made.secret for name, made in keys.items()}
    yield TwoOrgs(Authenticator(database, required=True), lake, ours, theirs, secrets)
    database.close()
