"""A store on each backend. The servers are started once per session."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lakerunner.store.config import StoreConfig
from lakerunner.store.object_store import ObjectStore
from lakerunner.store.open import open_store
from tests.components.azurite import ACCOUNT, KEY, Azurite
from tests.components.moto import CREDENTIALS, REGION, Moto

_S3_CREDENTIALS = (("access_key_id", "AWS_ACCESS_KEY_ID"), ("secret_access_key", "AWS_SECRET_ACCESS_KEY"))
_AZURE_CREDENTIALS = (("account_name", "LAKERUNNER_TEST_ACCOUNT"), ("account_key", "LAKERUNNER_TEST_KEY"))
_FAST = StoreConfig(url="", allow_http=True, timeout_s=10.0, circuit_pause_s=0.3)


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**CREDENTIALS, "LAKERUNNER_TEST_ACCOUNT": ACCOUNT, "LAKERUNNER_TEST_KEY": KEY}.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def s3_config() -> Callable[[str], StoreConfig]:
    """Return the config of a bucket at this endpoint."""

    def config(endpoint: str, bucket: str = "lake") -> StoreConfig:
        url = f"s3://{bucket}"
        return replace(_FAST, url=url, endpoint=endpoint, region=REGION, credentials=_S3_CREDENTIALS)

    return config


def _s3(request: pytest.FixtureRequest, tmp_path: Path) -> StoreConfig:
    server: Moto = request.getfixturevalue("moto")
    config: StoreConfig = request.getfixturevalue("s3_config")(server.endpoint, f"lake-{uuid.uuid4().hex[:8]}")
    server.create_bucket(config.url.removeprefix("s3://"))
    return config


def _az(request: pytest.FixtureRequest, tmp_path: Path) -> StoreConfig:
    server: Azurite = request.getfixturevalue("azurite")
    name = f"lake-{uuid.uuid4().hex[:8]}"
    server.create_container(name)
    return replace(_FAST, url=f"az://{name}", endpoint=server.endpoint, credentials=_AZURE_CREDENTIALS)


def _folder(request: pytest.FixtureRequest, tmp_path: Path) -> StoreConfig:
    return replace(_FAST, url=(tmp_path / "the bucket").as_uri())


_BACKENDS = {"folder": _folder, "s3": _s3, "azure": _az}


@pytest.fixture(params=list(_BACKENDS))
def config(request: pytest.FixtureRequest, tmp_path: Path) -> StoreConfig:
    """A new empty bucket, on each backend in turn."""
    return _BACKENDS[request.param](request, tmp_path)


@pytest.fixture
def store(config: StoreConfig) -> ObjectStore:
    return open_store(config)
