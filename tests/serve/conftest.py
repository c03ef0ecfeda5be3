"""One lake with a worker for all tests of the API, with two orgs and the org of a machine without keys."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakerunner.index import api_keys, orgs
from lakerunner.index.api_keys import Scope
from lakerunner.index.orgs import DEFAULT_ORG_ID
from lakerunner.query.warm import warm
from lakerunner.serve.auth import Authenticator
from tests.components.postgres import PostgresServer
from tests.query.ingesting import ingest
from tests.query.worker_lake import WorkerLake, worker_lake
from tests.serve.log_requests import log_request
from tests.serve.served import START_S, Serve, Served, TwoOrgs, serving, write_filled


@pytest.fixture(scope="session")
def lake(postgres_server: PostgresServer) -> Iterator[WorkerLake]:
    """Tests that change it write to an org of their own."""
    with (
        tempfile.TemporaryDirectory(prefix="lakerunner-test-lake-", ignore_cleanup_errors=True) as folder,
        worker_lake(Path(folder), postgres_server.new_database()) as lake,
    ):
        # As the API does when it starts: compiling kernels would take longer than a client waits.
        warm()
        write_filled(lake, DEFAULT_ORG_ID)
        yield lake


@pytest.fixture(scope="session")
def open_auth(lake: WorkerLake) -> Authenticator:
    return Authenticator(lake.database, required=False)


@pytest.fixture
def serve(lake: WorkerLake, open_auth: Authenticator) -> Iterator[Serve]:
    with serving(lake, open_auth) as serve:
        yield serve


@pytest.fixture(scope="session")
def served(lake: WorkerLake, open_auth: Authenticator) -> Iterator[Served]:
    """One API for all tests that change nothing."""
    with serving(lake, open_auth) as serve:
        yield serve()


@pytest.fixture(scope="session")
def two_orgs(lake: WorkerLake) -> TwoOrgs:
    with lake.database.transaction() as tx:
        ours = orgs.create_org(tx, "ours").org_id
        theirs = orgs.create_org(tx, "theirs").org_id
        keys = {
            "ours": api_keys.create_key(tx, "grafana", [Scope.QUERY], [ours]),
            "theirs": api_keys.create_key(tx, "victim", [Scope.QUERY], [theirs]),
            "both": api_keys.create_key(tx, "both", [Scope.QUERY], [ours, theirs]),
            "ingest": api_keys.create_key(tx, "collector", [Scope.INGEST], [ours]),
            "admin": api_keys.create_key(tx, "root", [Scope.ADMIN], []),
            "our_admin": api_keys.create_key(tx, "our root", [Scope.ADMIN], [ours]),
            "both_admin": api_keys.create_key(tx, "both roots", [Scope.ADMIN], [ours, theirs]),
            "revoked": api_keys.create_key(tx, "old", [Scope.QUERY], [ours]),
        }
        api_keys.revoke_key(tx, keys["revoked"].key.key_id)
    write_filled(lake, ours, "our_", "our_help")
    write_filled(lake, theirs, "secret_", "secret_help")
    for org_id, prefix in ((ours, "our_"), (theirs, "secret_")):
        lines = [((START_S + number) * 1_000_000_000, f"{prefix}line {number}") for number in range(20)]
        ingest(lake, org_id, [log_request(f"{prefix}service", lines, {f"{prefix}field": f"{prefix}value"})])
    secrets = {name: made.secret for name, made in keys.items()}
    return TwoOrgs(Authenticator(lake.database, required=True), lake, ours, theirs, secrets)
