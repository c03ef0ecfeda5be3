"""Requests to a bucket are counted for the org that they are made for, as a provider bills them."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from lakerunner.model.errors import Unavailable
from lakerunner.store.config import StoreConfig
from lakerunner.store.object_store import ObjectStore
from lakerunner.store.open import open_store
from lakerunner.store.requests import NOBODY, add_requests, charged_to, take_requests
from tests.store.test_object_store import ScriptedBucket

A, B = uuid.UUID(int=1), uuid.UUID(int=2)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    take_requests()
    return open_store(StoreConfig(f"file://{tmp_path}"))


def counted() -> dict[tuple[uuid.UUID, str], tuple[int, int]]:
    return {(uuid.UUID(each.org_id), each.operation): (each.requests, each.bytes) for each in take_requests()}


def test_requests_are_counted_by_org_and_kind(store: ObjectStore, tmp_path: Path) -> None:
    store.put(f"db/{A}/x", b"12345")
    file = tmp_path / "file"
    file.write_bytes(b"123")
    store.put_file(f"otel-raw/{B}/y", file)
    store.get(f"db/{A}/x")
    store.get_range(f"db/{A}/x", 1, 2)
    store.head(f"otel-raw/{B}/y")
    assert len(list(store.list(f"db/{A}"))) == 1 and not list(store.list("db/nothing"))
    store.delete([f"db/{A}/x", f"otel-raw/{B}/y"])
    assert counted() == {
        (A, "put"): (1, 5), (B, "put"): (1, 3), (A, "get"): (2, 7), (B, "head"): (1, 0), (A, "list"): (1, 0),
        (NOBODY, "list"): (1, 0), (A, "delete"): (1, 0), (B, "delete"): (1, 0),
    }  # fmt: skip
    assert counted() == {}, "they are counted once"


def test_a_reader_of_another_layout_says_for_whom(store: ObjectStore) -> None:
    with charged_to(A):
        store.put("bucket/of/others", b"1")
    store.get("bucket/of/others")
    assert counted() == {(A, "put"): (1, 1), (NOBODY, "get"): (1, 1)}


def test_every_attempt_counts_unless_it_was_not_sent() -> None:
    take_requests()
    bucket = ScriptedBucket()
    bucket.errors = [Unavailable("busy"), None]
    store = ObjectStore(bucket, StoreConfig("file:///nowhere", circuit_failures=2, circuit_pause_s=60))
    store.get(f"db/{A}/x")
    assert counted() == {(A, "get"): (2, len(f"db/{A}/x"))}
    bucket.errors = [Unavailable("down")] * 9
    for _ in range(3):
        with pytest.raises(Unavailable):
            store.get(f"db/{A}/x")
    assert counted() == {(A, "get"): (2, 0)}, "the circuit is open, and nothing was sent"
    assert bucket.requests == 4


def test_a_listing_counts_its_pages() -> None:
    take_requests()
    bucket = ScriptedBucket()
    assert len(list(ObjectStore(bucket, StoreConfig("file:///nowhere")).list())) == 30
    assert counted() == {(NOBODY, "list"): (bucket.requests, 0)}


def test_more_orgs_than_are_told_apart_are_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    take_requests()
    monkeypatch.setattr("lakerunner.store.requests._MOST_ORGS", 2)
    add_requests([(str(uuid.UUID(int=number)), "get", 1, 10) for number in (1, 2, 3, 4)])
    assert counted() == {(A, "get"): (1, 10), (B, "get"): (1, 10), (NOBODY, "get"): (2, 20)}
