"""The retry policy of a store: which failures are retried, counted, and open the circuit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from lakerunner.model.errors import BadInput, LakeError, Missing, Unavailable
from lakerunner.store import object_store
from lakerunner.store.bucket import Buffer, ObjectMeta
from lakerunner.store.config import StoreConfig
from lakerunner.store.errors import DiskFull
from lakerunner.store.object_store import ObjectStore


class ScriptedBucket:
    """Holds keys 0000 to 0029 in pages of ten; each request first raises the next planned error, if any."""

    def __init__(self) -> None:
        self.errors: list[BaseException | None] = []
        self.requests = 0
        self.keys = [f"{number:04d}" for number in range(30)]

    def _request(self) -> None:
        self.requests += 1
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error

    def put(self, key: str, body: Buffer, *, create_only: bool) -> ObjectMeta:
        self._request()
        return ObjectMeta(key, len(body), None, None, 0)

    def put_file(self, key: str, path: Path, *, create_only: bool) -> ObjectMeta:
        return self.put(key, path.read_bytes(), create_only=create_only)

    def get(self, key: str, *, etag: str | None = None) -> bytes:
        self._request()
        return key.encode()

    def get_range(self, key: str, start: int, length: int, *, etag: str | None = None) -> bytes:
        return self.get(key)[start : start + length]

    def head(self, key: str) -> ObjectMeta:
        self._request()
        return ObjectMeta(key, len(key), None, None, 0)

    def content_version(self, key: str, etag: str | None) -> str | None:
        return None

    def pages(self, prefix: str, start_after: str) -> Iterator[Sequence[ObjectMeta]]:
        keys = [key for key in self.keys if key >= start_after]  # one too many, as some services give
        for first in range(0, len(keys), 10):
            self._request()
            yield [ObjectMeta(key, 0, None, None, 0) for key in keys[first : first + 10]]

    def order(self, key: str) -> str:
        return key

    def delete(self, keys: Sequence[str]) -> None:
        self._request()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> ScriptedBucket:
    monkeypatch.setattr(object_store, "_BACKOFF", object_store.Backoff(base_s=0.0))
    return ScriptedBucket()


@pytest.fixture
def store(bucket: ScriptedBucket) -> ObjectStore:
    return ObjectStore(bucket, StoreConfig(url="s3://scripted", max_attempts=4, circuit_failures=6))


def _down() -> Unavailable:
    return Unavailable("cannot ask: down")


def test_a_listing_that_breaks_goes_on_without_doubling_or_losing(store: ObjectStore, bucket: ScriptedBucket) -> None:
    bucket.errors = [None, _down(), None, _down(), _down()]
    assert [meta.key for meta in store.list()] == bucket.keys


def test_a_listing_asks_for_no_page_that_is_not_needed(store: ObjectStore, bucket: ScriptedBucket) -> None:
    assert len(list(store.list(limit=10))) == 10
    assert bucket.requests == 1
    listing = store.list()
    next(listing)
    assert bucket.requests == 2


def test_errors_that_cannot_help_are_not_retried(store: ObjectStore, bucket: ScriptedBucket) -> None:
    for error in (Missing("cannot get x: gone"), BadInput("cannot get x: bad")):
        bucket.errors, bucket.requests = [error], 0
        with pytest.raises(type(error)):
            store.get("x")
        assert bucket.requests == 1


def test_failures_in_a_row_pause_the_store_across_calls(store: ObjectStore, bucket: ScriptedBucket) -> None:
    bucket.errors = [_down() for _ in range(20)]
    with pytest.raises(Unavailable, match="down"):
        store.get("x")
    assert (bucket.requests, store.is_paused) == (4, False)
    with pytest.raises(Unavailable, match="down"):
        store.get("x")
    assert (bucket.requests, store.is_paused) == (6, True)
    with pytest.raises(Unavailable, match="paused"):
        store.get("x")
    with pytest.raises(Unavailable, match="paused"):
        store.ping()
    assert bucket.requests == 6


def test_a_full_disk_is_retried_but_does_not_pause_reading(store: ObjectStore, bucket: ScriptedBucket) -> None:
    bucket.errors = [DiskFull("cannot put x: the disk is full") for _ in range(8)]
    for _ in range(2):
        with pytest.raises(DiskFull):
            store.put("x", b"")
    assert bucket.requests == 8
    assert store.get("x") == b"x"


def test_an_error_that_is_no_answer_leaves_the_circuit_usable(bucket: ScriptedBucket) -> None:
    store = ObjectStore(bucket, StoreConfig(url="s3://x", max_attempts=1, circuit_failures=1, circuit_pause_s=1e-9))
    bucket.errors = [_down(), KeyboardInterrupt()]
    with pytest.raises(Unavailable):
        store.get("x")
    with pytest.raises(KeyboardInterrupt):
        store.get("x")
    assert store.get("x") == b"x"
    assert not store.is_paused


def _value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


@pytest.mark.parametrize(("error", "code"), [(_down(), "unavailable"), (Missing("cannot get x: gone"), "missing")])
def test_each_request_is_measured(store: ObjectStore, bucket: ScriptedBucket, error: LakeError, code: str) -> None:
    errors = _value("lakerunner_store_errors_total", operation="get", code=code)
    requests = _value("lakerunner_store_operation_seconds_count", operation="get")
    bucket.errors = [error] * 4
    with pytest.raises(type(error)):
        store.get("x")
    assert _value("lakerunner_store_errors_total", operation="get", code=code) == errors + bucket.requests
    assert _value("lakerunner_store_operation_seconds_count", operation="get") == requests + bucket.requests


def test_many_deletions_go_out_in_batches(store: ObjectStore, bucket: ScriptedBucket) -> None:
    store.delete(str(number) for number in range(2_500))
    assert bucket.requests == 3
