"""Opening a store from its address and settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lakerunner.model.errors import BadInput
from lakerunner.runtime.settings.load import load_settings
from lakerunner.store.config import StoreConfig
from lakerunner.store.errors import StoreUnavailable
from lakerunner.store.open import open_store


@pytest.mark.parametrize(
    "url", ["", "lake", "ftp://lake", "s3://", "s3:lake", "file://host/lake", "file:lake", "http://lake"]
)
def test_addresses_that_are_none_are_told(url: str) -> None:
    with pytest.raises(BadInput, match=r"cannot open .*; write file:///folder"):
        open_store(StoreConfig(url=url))


def test_an_address_with_odd_characters_is_that_folder(tmp_path: Path) -> None:
    folder = tmp_path / "a b#c?d%20é"
    open_store(StoreConfig(url=folder.as_uri())).put("x", b"1")
    assert (folder / "x").read_bytes() == b"1"


def test_an_endpoint_without_tls_needs_a_yes() -> None:
    config = StoreConfig(url="s3://lake", endpoint="http://127.0.0.1:1")
    with pytest.raises(BadInput, match="allow_http"):
        open_store(config)
    open_store(replace(config, allow_http=True))


def test_a_credential_that_is_not_set_is_named() -> None:
    config = StoreConfig(url="s3://lake", credentials=(("access_key_id", "LAKERUNNER_TEST_NOT_SET"),))
    with pytest.raises(StoreUnavailable, match="LAKERUNNER_TEST_NOT_SET is not set"):
        open_store(config)


def test_an_option_that_is_none_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKERUNNER_TEST_X", "x")
    with pytest.raises(BadInput, match="cannot open s3://lake"):
        open_store(StoreConfig(url="s3://lake", credentials=(("no_such_option", "LAKERUNNER_TEST_X"),)))


def test_gcs_opens_without_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKERUNNER_TEST_TOKEN", "t")
    store = open_store(StoreConfig(url="gs://lake/below", credentials=(("bearer_token", "LAKERUNNER_TEST_TOKEN"),)))
    assert not store.is_paused


def test_settings_become_a_config(tmp_path: Path) -> None:
    overrides = {"store.url": "s3://lake", "store.region": "eu-1", "store.timeout_s": 3, "store.circuit_pause_s": 7}
    config = StoreConfig.of(load_settings(overrides=overrides))
    assert (config.url, config.region, config.timeout_s, config.circuit_pause_s) == ("s3://lake", "eu-1", 3.0, 7.0)
    embedded = StoreConfig.of(load_settings(overrides={"data.dir": str(tmp_path)}))
    assert embedded.url == (tmp_path / "bucket").as_uri()
