"""The disk cache: bounded, shared, surviving, and never believed blindly."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lakerunner.model.errors import LakeError, Missing, Unavailable
from lakerunner.query.scan.object_cache import ObjectCache
from lakerunner.store.config import StoreConfig
from lakerunner.store.object_store import ObjectStore
from lakerunner.store.open import open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ObjectStore]:
    store = open_store(StoreConfig((tmp_path / "bucket").as_uri()))
    for number in range(8):
        store.put(f"k{number}", bytes([number]) * 100)
    yield store


def _counting(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    fetched: list[str] = []
    get = store.get

    def noting(key: str) -> bytes:
        fetched.append(key)
        return get(key)

    monkeypatch.setattr(store, "get", noting)
    return fetched


def test_an_object_is_fetched_once(store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = _counting(store, monkeypatch)
    cache = ObjectCache(store, tmp_path / "cache", 1_000)
    first, second = cache.get("k1"), cache.get("k1")
    assert (first.hit, second.hit) == (False, True)
    assert second.content.read_bytes() == b"\1" * 100
    assert fetched == ["k1"]


def test_the_least_recently_used_goes_first(store: ObjectStore, tmp_path: Path) -> None:
    cache = ObjectCache(store, tmp_path / "cache", 300)
    for key in ("k0", "k1", "k2", "k0", "k3"):
        cache.get(key)
    assert cache.size_bytes == 300
    assert [cache.get(key).hit for key in ("k0", "k2", "k3")] == [True, True, True]
    assert not cache.get("k1").hit
    assert sum(path.stat().st_size for path in (tmp_path / "cache").iterdir()) == 300


def test_it_survives_a_restart_in_order_of_use(store: ObjectStore, tmp_path: Path) -> None:
    cache = ObjectCache(store, tmp_path / "cache", 300)
    for key in ("k0", "k1", "k2", "k0"):
        cache.get(key)
    (tmp_path / "cache" / "0123.part").write_bytes(b"half a fetch")
    again = ObjectCache(store, tmp_path / "cache", 200)
    assert again.size_bytes == 200
    assert [again.get(key).hit for key in ("k0", "k2")] == [True, True]
    assert not (tmp_path / "cache" / "0123.part").exists()


def test_a_file_of_the_wrong_size_is_fetched_again(store: ObjectStore, tmp_path: Path) -> None:
    cache = ObjectCache(store, tmp_path / "cache", 1_000)
    cache.get("k1").content.write_bytes(b"short")
    found = cache.get("k1")
    assert found.content.read_bytes() == b"\1" * 100
    assert not found.hit
    found.content.write_bytes(b"short")
    assert ObjectCache(store, tmp_path / "cache", 1_000).get("k1").content.read_bytes() == b"\1" * 100


def test_a_file_that_vanished_is_fetched_again(store: ObjectStore, tmp_path: Path) -> None:
    cache = ObjectCache(store, tmp_path / "cache", 1_000)
    cache.get("k1").content.unlink()
    assert cache.get("k1").content.read_bytes() == b"\1" * 100
    assert cache.size_bytes == 100


def test_an_open_file_outlives_its_eviction(store: ObjectStore, tmp_path: Path) -> None:
    cache = ObjectCache(store, tmp_path / "cache", 100)
    with cache.get("k1").content.open("rb") as file:
        cache.get("k2")
        assert file.read() == b"\1" * 100


def test_those_who_ask_at_once_share_one_fetch(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []
    go_on = threading.Event()
    get = store.get

    def slow(key: str) -> bytes:
        fetched.append(key)
        go_on.wait(5)
        return get(key)

    monkeypatch.setattr(store, "get", slow)
    cache = ObjectCache(store, tmp_path / "cache", 1_000)
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(cache.get, "k1") for _ in range(8)]
        while not fetched:
            pass
        go_on.set()
        assert {one.result(5).content.read_bytes() for one in asked} == {b"\1" * 100}
    assert fetched == ["k1"]


def test_a_failed_fetch_fails_all_who_wait_and_nobody_after(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = ObjectCache(store, tmp_path / "cache", 1_000)
    with pytest.raises(Missing):
        cache.get("nothing")
    store.put("nothing", b"something")
    assert cache.get("nothing").content.read_bytes() == b"something"

    def short(key: str) -> bytes:
        return b"x"

    monkeypatch.setattr(store, "get", short)
    with pytest.raises(Unavailable, match="of its 100 bytes"):
        cache.get("k3")
    assert cache.size_bytes == len(b"something")


def test_the_limit_holds_while_many_fetch(store: ObjectStore, tmp_path: Path) -> None:
    """Never more than the limit by more than one object, whatever runs at once."""
    cache = ObjectCache(store, tmp_path / "cache", 250)
    most = 0
    done = threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.is_set():
            most = max(most, cache.size_bytes)

    watcher = threading.Thread(target=watch)
    watcher.start()

    def ask(number: int) -> None:
        for nth in range(20):
            try:
                cache.get(f"k{(number + nth) % 8}")
            except LakeError as error:  # pragma: no cover - told below
                raise AssertionError from error

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(ask, range(4)))
    done.set()
    watcher.join()
    assert 0 < most <= 250


def test_an_object_above_the_limit_is_let_in_alone(store: ObjectStore, tmp_path: Path) -> None:
    cache = ObjectCache(store, tmp_path / "cache", 250)
    store.put("large", b"x" * 900)
    cache.get("k1")
    assert cache.get("large").size_bytes == 900
    assert cache.size_bytes == 900
    cache.get("k1")
    assert cache.size_bytes == 100
