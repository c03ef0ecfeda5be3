"""The owner of an object: by profile, default layout or default org; and objects that are never read."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.index.orgs import DEFAULT_ORG_ID
from lakerunner.index.profiles import StorageProfile
from lakerunner.intake.mapping import DefaultOrg, KeyMap, NotAnInput, ObjectOwner, Unmapped, Unusable

A, B = uuid.UUID(int=1), uuid.UUID(int=2)
BUCKET, FOLDER = "s3://lake", "file:///lake"
OTEL = "otel-raw/year=2026/month=11/day=15/hour=21/minute=32/"


def profile(prefix: str, org: uuid.UUID = A, bucket: str = BUCKET, signal: str | None = None) -> StorageProfile:
    return StorageProfile(uuid.uuid4(), org, f"c-{org.int}", bucket, prefix, signal)


def key_map(*profiles: StorageProfile, own: str = BUCKET, default_org: DefaultOrg = "folder") -> KeyMap:
    return KeyMap(profiles, {A, B}, own, default_org)


@pytest.mark.parametrize("signal", ["logs", "metrics", "traces"])
def test_the_collectors_layout_needs_one_profile_only(signal: str) -> None:
    rules = key_map(profile("otel-raw/"))
    assert rules.owner_of(BUCKET, f"{OTEL}{signal}_313124979.binpb.gz") == ObjectOwner(A, "c-1", signal)


def test_the_longest_prefix_wins() -> None:
    rules = key_map(profile("otel-raw/"), profile("otel-raw/team-b/", B))
    assert rules.owner_of(BUCKET, "otel-raw/team-a/logs_1.json") == ObjectOwner(A, "c-1", "logs")
    assert rules.owner_of(BUCKET, "otel-raw/team-b/logs_1.json") == ObjectOwner(B, "c-2", "logs")


def test_a_profile_may_set_the_signal() -> None:
    rules = key_map(profile("app/", signal="traces"))
    assert rules.owner_of(BUCKET, "app/logs_1.json") == ObjectOwner(A, "c-1", "traces")


@pytest.mark.parametrize(
    ("key", "signal"),
    [
        ("otel-raw/x/logs/1.json", "logs"),
        ("otel-raw/x/METRICS-1.json", "metrics"),
        ("otel-raw/metrics/logs_1.json", "metrics"),
        ("logs-raw/2026/x.json.gz", "logs"),
        ("metrics-raw/x", "metrics"),
        ("traces-raw/x", "traces"),
    ],
)
def test_the_default_org_of_a_folder_takes_the_raw_prefixes(key: str, signal: str) -> None:
    assert key_map(own=FOLDER).owner_of(FOLDER, key) == ObjectOwner(DEFAULT_ORG_ID, "default", signal)
    assert isinstance(key_map(own=FOLDER, default_org="never").owner_of(FOLDER, key), Unmapped)
    assert isinstance(key_map().owner_of(BUCKET, key), Unmapped)
    assert key_map(default_org="always").owner_of(BUCKET, key) == ObjectOwner(DEFAULT_ORG_ID, "default", signal)


def test_the_default_layout_names_org_and_collector() -> None:
    assert key_map().owner_of(BUCKET, f"otel-raw/{B}/eu-1/2026/logs_1.binpb") == ObjectOwner(B, "eu-1", "logs")


def test_an_unknown_org_is_not_given_to_the_default_org() -> None:
    stranger = uuid.UUID(int=3)
    mapped = key_map(own=FOLDER).owner_of(FOLDER, f"otel-raw/{stranger}/eu-1/logs_1.binpb")
    assert mapped == Unmapped(f"there is no org {stranger}")


def test_a_profile_claims_more_than_the_layout_says() -> None:
    rules = key_map(profile("otel-raw/"))
    assert rules.owner_of(BUCKET, f"otel-raw/{B}/eu-1/logs_1.binpb") == ObjectOwner(A, "c-1", "logs")


@pytest.mark.parametrize("key", ["otel-raw/x/1.json", "otel-raw/blogs/1.json", "elsewhere/logs_1.json", "otel-raw"])
def test_what_nobody_claims_is_unmapped(key: str) -> None:
    assert isinstance(key_map(own=FOLDER).owner_of(FOLDER, key), Unmapped)


def test_a_claimed_key_without_a_signal_is_unmapped() -> None:
    assert isinstance(key_map(profile("app/")).owner_of(BUCKET, "app/1.json"), Unmapped)


@pytest.mark.parametrize("key", ["a//b", "a/../logs", "/logs", "a\x01logs"])
def test_a_key_that_stores_cannot_read_is_unusable(key: str) -> None:
    assert isinstance(key_map(profile("")).owner_of(BUCKET, key), Unusable)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_nothing_under_db_is_ever_an_input(rest: str) -> None:
    rules = key_map(profile("", signal="logs"), profile("", bucket=FOLDER, signal="logs"), default_org="always")
    assert rules.owner_of(BUCKET, "db/" + rest) == NotAnInput()
    assert rules.owner_of(FOLDER, "db/" + rest) == NotAnInput()


def test_markers_and_unfinished_files_are_no_inputs() -> None:
    rules = key_map(own=FOLDER)
    for key in ("otel-raw/", "otel-raw/.logs_1.json.swp", "otel-raw/logs_1.json.tmp"):
        assert rules.owner_of(FOLDER, key) == NotAnInput()
    # In a bucket an upload is whole or not there, and its name is its name.
    assert key_map(default_org="always").owner_of(BUCKET, "otel-raw/logs_1.json.tmp") != NotAnInput()


def test_what_is_listed_covers_every_profile_once() -> None:
    rules = key_map(profile("otel-raw/a/"), profile("app/"), profile("x/", bucket="s3://other"))
    assert rules.buckets == {BUCKET, "s3://other"}
    assert rules.prefixes(BUCKET) == ["app/", "logs-raw/", "metrics-raw/", "otel-raw/", "traces-raw/"]
    assert rules.prefixes("s3://other") == ["x/"]
    assert key_map(profile("")).prefixes(BUCKET) == [""]
