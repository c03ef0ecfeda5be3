"""Finding the configured bucket of an event, and the config of a bucket."""

from __future__ import annotations

import uuid

import pytest

from lakerunner.index.profiles import StorageProfile
from lakerunner.intake.buckets import Buckets, config_of, own_bucket, resolve_address
from lakerunner.model.errors import Bug
from lakerunner.runtime.settings import Settings, StoreSettings

SETTINGS = Settings(store=StoreSettings(url="s3://own/", region="eu-west-1", endpoint="https://e", timeout_s=7))


def profile(bucket: str, prefix: str = "", **more: str) -> StorageProfile:
    return StorageProfile(uuid.uuid4(), uuid.uuid4(), "c", bucket, prefix, **more)


@pytest.mark.parametrize(
    ("buckets", "key", "expected"),
    [
        (["s3://a"], "x/y", ("s3://a", "x/y")),
        (["s3://a/x"], "x/y", ("s3://a/x", "y")),
        (["s3://a", "s3://a/x"], "x/y", ("s3://a/x", "y")),
        (["s3://a", "s3://a/x"], "xx/y", ("s3://a", "xx/y")),
        (["s3://a/x"], "x", None),
        (["s3://ab", "gs://a", "file:///a"], "x", None),
    ],
)
def test_an_event_means_the_nearest_configured_bucket(
    buckets: list[str], key: str, expected: tuple[str, str] | None
) -> None:
    assert resolve_address(buckets, "s3://a", key) == expected


def test_the_own_bucket_is_reached_by_the_settings() -> None:
    assert own_bucket(SETTINGS) == "s3://own"
    config = config_of(SETTINGS, "s3://own", [profile("s3://own", region="elsewhere", credentials_ref="X")])
    assert (config.region, config.endpoint, config.credentials) == ("eu-west-1", "https://e", ())


def test_another_bucket_is_reached_by_its_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    profiles = [profile("s3://b", "a/"), profile("s3://b", "b/", region="r", credentials_ref="ACME")]
    config = config_of(SETTINGS, "s3://b", profiles)
    assert (config.url, config.region, config.endpoint, config.timeout_s) == ("s3://b", "r", "", 7)
    keys = (("access_key_id", "ACME_ACCESS_KEY_ID"), ("secret_access_key", "ACME_SECRET_ACCESS_KEY"))
    assert config.credentials == keys
    monkeypatch.setenv("ACME_SESSION_TOKEN", "t")
    assert config_of(SETTINGS, "s3://b", profiles).credentials == (*keys, ("session_token", "ACME_SESSION_TOKEN"))
    azure = config_of(SETTINGS, "az://c", [profile("az://c", credentials_ref="Z")])
    assert azure.credentials == (("account_name", "Z_ACCOUNT_NAME"), ("account_key", "Z_ACCOUNT_KEY"))


def test_a_bucket_that_nobody_configured_is_never_opened() -> None:
    with pytest.raises(Bug):
        Buckets(SETTINGS).store("s3://b", [])


def test_a_store_is_opened_once_and_again_when_its_profile_changes() -> None:
    buckets = Buckets(SETTINGS)
    first = buckets.store("s3://b", [profile("s3://b", region="r")])
    assert buckets.store("s3://b", [profile("s3://b", region="r")]) is first
    assert buckets.store("s3://b", [profile("s3://b", region="s")]) is not first
