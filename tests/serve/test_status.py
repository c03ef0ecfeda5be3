"""The status API: for holders of an admin key, in every way a key may be sent."""

import base64
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from lakerunner.bus.open import open_bus
from lakerunner.index import api_keys, orgs
from lakerunner.index.api_keys import Scope
from lakerunner.index.database import Database
from lakerunner.runtime.http import HttpServer
from lakerunner.runtime.settings import AuthSettings, DataSettings, Settings
from lakerunner.serve.admin.status import status_routes
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store


@pytest.fixture(params=[True, False], ids=["guarded", "open"])
def guarded(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def client(database: Database, guarded: bool, tmp_path: Path) -> Iterator[httpx.Client]:
    settings = Settings(auth=AuthSettings(required=guarded), data=DataSettings(dir=tmp_path))
    bus = open_bus(settings, database)
    # As the monitor serves them: nothing else may be needed to render an error.
    server = HttpServer("127.0.0.1", 0, status_routes(settings, database, bus, open_store(StoreConfig.of(settings))))
    server.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}") as client:
        yield client
    server.close()
    bus.close()


@pytest.fixture
def secrets(database: Database) -> dict[str, str]:
    with database.transaction() as tx:
        org = orgs.create_org(tx, "acme")
        admin = api_keys.create_key(tx, "root", [Scope.ADMIN], [])
        query = api_keys.create_key(tx, "grafana", [Scope.QUERY], [org.org_id])
        gone = api_keys.create_key(tx, "old", [Scope.ADMIN], [])
        api_keys.revoke_key(tx, gone.key.key_id)
        ours = api_keys.create_key(tx, "our root", [Scope.ADMIN], [org.org_id])
    return {
        "of one org": ours.secret,
        "admin": admin.secret,
        "query": query.secret,
        "revoked": gone.secret,
        "unknown": "lrk_x",
    }


def test_every_way_to_send_a_key(client: httpx.Client, secrets: dict[str, str]) -> None:
    secret = secrets["admin"]
    basic = base64.b64encode(f"anybody:{secret}".encode()).decode()
    for headers in (
        {"Authorization": f"Bearer {secret}"},
        {"Authorization": f"Basic {basic}"},
        {"X-Api-Key": secret},
        {"x-cardinalhq-api-key": secret},
    ):
        answer = client.get("/api/v1/status", headers=headers)
        assert answer.status_code == 200
        assert answer.json()["index"]["outbox"] == {"count": 0, "oldest_s": 0.0}


@pytest.mark.parametrize("guarded", [True], indirect=True)
@pytest.mark.parametrize("who", ["query", "of one org", "revoked", "unknown"])
def test_others_are_denied(client: httpx.Client, secrets: dict[str, str], who: str) -> None:
    answer = client.get("/api/v1/status", headers={"Authorization": f"Bearer {secrets[who]}"})
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "denied"
    assert secrets[who] not in answer.text


@pytest.mark.parametrize("guarded", [True], indirect=True)
@pytest.mark.parametrize("header", ["", "Bearer", "Basic !!", "Basic Og==", "Digest x"])
def test_without_a_key_it_says_how_to_send_one(client: httpx.Client, header: str) -> None:
    answer = client.get("/api/v1/status", headers={"Authorization": header} if header else {})
    assert answer.status_code == 401
    assert "Bearer KEY" in answer.json()["error"]["hint"]
    assert "www-authenticate" in answer.headers


@pytest.mark.parametrize("guarded", [False], indirect=True)
def test_a_machine_of_ones_own_needs_no_key(client: httpx.Client) -> None:
    assert client.get("/api/v1/status").status_code == 200
