"""The behaviour of a store, which is the same on a folder, S3 and Azure."""

from __future__ import annotations

import io
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lakerunner.model.errors import BadInput, Conflict, Missing, Unavailable
from lakerunner.store.config import StoreConfig
from lakerunner.store.object_store import ObjectStore
from lakerunner.store.open import open_store

ODD_KEYS = [
    "a b/c d",
    "sp /x ",
    "ünï/日本/𝄞",
    "100%/x%20y",
    "%2F/%2e%2e",
    "p+q/r+s",
    "h#1",
    "h#x/y",
    "q?x=1&y=2",
    "a..b/..c/d..",
    ".hidden/.x",
    "star*[x]{y}",
    "quo\"te'`^",
    "til~de|pipe<x>",
    "semi;colon:",
    "at@equals=,$!()",
    "db/CamelCase/camelcase",
]


def _keys(store: ObjectStore, prefix: str = "", **options: object) -> list[str]:
    return [meta.key for meta in store.list(prefix, **options)]  # type: ignore[arg-type]


def test_what_was_put_is_got(store: ObjectStore) -> None:
    body = bytes(range(256)) * 10
    made = store.put("a/b", body)
    assert (made.key, made.size_bytes) == ("a/b", len(body))
    assert store.get("a/b") == body
    found = store.head("a/b")
    assert (found.key, found.size_bytes, found.etag) == ("a/b", len(body), made.etag)
    assert found.etag
    assert abs(found.modified_ns - time.time_ns()) < 60e9


def test_bytes_may_come_in_many_forms(store: ObjectStore) -> None:
    forms = [bytearray(b"abc"), memoryview(b"xabcx")[1:4], [b"a", b"bc"], iter([b"ab", b"c"]), io.BytesIO(b"abc"),
             memoryview(pa.py_buffer(b"abc"))]  # fmt: skip
    for number, body in enumerate(forms):
        store.put(f"form {number}", body)
        assert store.get(f"form {number}") == b"abc"


def test_an_empty_object_is_an_object(store: ObjectStore, tmp_path: Path) -> None:
    store.put("empty", b"")
    (tmp_path / "nothing").touch()
    store.put_file("empty-file", tmp_path / "nothing")
    for key in ("empty", "empty-file"):
        assert store.get(key) == b""
        assert list(store.stream(key)) == []
        assert store.head(key).size_bytes == 0
        with pytest.raises(BadInput):
            store.get_range(key, 0, 1)


def test_create_only_refuses_to_replace(store: ObjectStore, tmp_path: Path) -> None:
    store.put("once", b"first")
    with pytest.raises(Conflict, match="exists already"):
        store.put("once", b"second")
    (tmp_path / "file").write_bytes(b"third")
    with pytest.raises(Conflict):
        store.put_file("once", tmp_path / "file")
    assert store.get("once") == b"first"
    store.put("once", b"fourth", create_only=False)
    assert store.get("once") == b"fourth"
    store.put_file("once", tmp_path / "file", create_only=False)
    assert store.get("once") == b"third"


def test_of_many_creators_one_wins(store: ObjectStore) -> None:
    barrier = threading.Barrier(8)

    def create(number: int) -> bool:
        barrier.wait()
        try:
            store.put("race", str(number).encode())
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(create, range(8)))
    assert won.count(True) == 1
    assert store.get("race") == str(won.index(True)).encode()


def test_a_large_file_goes_up_and_comes_down_whole(store: ObjectStore, tmp_path: Path) -> None:
    # Above the size at which a single request would be given more time, and a chunk of a stream.
    body = b"".join(number.to_bytes(8, "big") for number in range(2_250_000))
    (tmp_path / "large").write_bytes(body)
    store.put_file("large", tmp_path / "large")
    assert store.head("large").size_bytes == len(body)
    assert store.get("large") == body
    chunks = list(store.stream("large", 5_000_000))
    assert [len(chunk) for chunk in chunks] == [5_000_000, 5_000_000, 5_000_000, 3_000_000]
    assert b"".join(chunks) == body


def test_a_large_overwrite_goes_up_in_parts(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakerunner.store.remote._MULTIPART_BYTES", 1 << 20)
    body = bytes(6 << 20)
    (tmp_path / "large").write_bytes(body)
    store.put("parts", b"old")
    store.put_file("parts", tmp_path / "large", create_only=False)
    assert store.get("parts") == body


def test_a_range_is_those_bytes(store: ObjectStore) -> None:
    store.put("range", b"0123456789")
    assert store.get_range("range", 2, 3) == b"234"
    assert store.get_range("range", 0, 10) == b"0123456789"
    assert store.get_range("range", 8, 100) == b"89"
    for start, length in [(10, 1), (11, 5), (-1, 2), (0, 0), (3, -1)]:
        with pytest.raises(BadInput):
            store.get_range("range", start, length)


def test_a_get_may_be_of_one_version(store: ObjectStore) -> None:
    first = store.put("k", b"first")
    assert store.get("k", etag=store.head("k").etag) == b"first"
    store.put("k", b"second", create_only=False)
    with pytest.raises(Conflict, match="changed meanwhile"):
        store.get("k", etag=first.etag)
    [listed] = store.list()
    assert store.get("k", etag=listed.etag) == b"second"


def test_a_stream_is_of_one_version(store: ObjectStore) -> None:
    store.put("changing", b"a" * 100)
    chunks = store.stream("changing", 60)
    assert next(chunks) == b"a" * 60
    store.put("changing", b"b" * 101, create_only=False)
    with pytest.raises(Conflict, match="changed"):
        next(chunks)


def test_what_is_missing_is_said_to_be(store: ObjectStore) -> None:
    store.put("x/y", b"1")
    for key in ("nope", "x", "x/y/z", "x/nope"):
        for ask in (store.get, store.head, lambda key: store.get_range(key, 0, 1), lambda key: next(store.stream(key))):
            with pytest.raises(Missing, match="no such object") as raised:
                ask(key)
            assert "\n" not in str(raised.value)


@pytest.mark.parametrize("key", ODD_KEYS)
def test_odd_keys_come_back_as_they_were(store: ObjectStore, key: str) -> None:
    store.put(key, key.encode())
    assert store.get(key) == key.encode()
    assert store.head(key).key == key
    assert _keys(store) == [key]
    with pytest.raises(Conflict):
        store.put(key, b"other")
    store.delete([key])
    assert _keys(store) == []


@pytest.mark.parametrize(
    "key", ["", "/a", "a/", "a//b", "..", "a/../b", "a/./b", "a\x00b", "a\nb", "é" * 513, "\ud800"]
)
def test_keys_that_are_not_portable_are_refused(store: ObjectStore, key: str) -> None:
    for ask in (store.get, store.head, lambda key: store.put(key, b""), lambda key: store.delete([key])):
        with pytest.raises(BadInput, match="cannot use the key"):
            ask(key)


def test_the_order_of_a_listing_is_that_of_bytes(store: ObjectStore) -> None:
    keys = ["a", "a.b", "a/b", "a/b.c", "a/b-c/d", "a0", "B", "ä", "a b", "𝄞", "\uffee", "z/1", "z/10", "z/2"]
    if store.config.url.startswith("file:"):
        keys.remove("a")  # a folder cannot hold an object and a folder of one name
    for key in keys:
        store.put(key, b"")
    encoding = "utf-16-be" if store.config.url.startswith("az:") else "utf-8"
    ordered = sorted(keys, key=lambda key: key.encode(encoding))
    assert _keys(store) == ordered
    for number, key in enumerate(ordered):
        assert _keys(store, start_after=key) == ordered[number + 1 :]


def test_a_listing_goes_on_where_it_ended(store: ObjectStore) -> None:
    keys = sorted(f"p/{number % 7}/{number:03d}" for number in range(60))
    for key in [*keys, "p0/x", "o/x"]:
        store.put(key, b"1")
    assert _keys(store, "p/") == _keys(store, "p") == keys
    assert _keys(store, "p/3/") == [key for key in keys if key.startswith("p/3/")]
    assert _keys(store, "p/", limit=5) == keys[:5]
    assert _keys(store, "p/", limit=0) == []
    seen: list[str] = []
    while page := _keys(store, "p/", start_after=seen[-1] if seen else "", limit=11):
        seen += page
    assert seen == keys
    assert _keys(store, "p/", start_after="p/3/999")[0].startswith("p/4/")
    assert _keys(store, "nothing/here/") == []


def test_a_listing_of_more_than_a_page_is_whole(store: ObjectStore) -> None:
    keys = [f"many/{number:05d}" for number in range(1_050)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: store.put(key, b""), keys))
    assert _keys(store, "many/") == keys
    assert _keys(store, "many/", start_after=keys[1_020]) == keys[1_021:]
    store.delete(iter(keys))
    assert _keys(store, "many/") == []


def test_deleting_what_is_missing_is_fine(store: ObjectStore) -> None:
    for key in ("a", "b", "c"):
        store.put(key, b"")
    store.delete(["nope", "a", "nope/too", "c", "a"])
    assert _keys(store) == ["b"]
    store.delete([])
    store.delete(["b"])
    store.delete(["b"])
    assert _keys(store) == []


def test_a_store_travels_as_its_config(store: ObjectStore) -> None:
    store.put("travel", b"1")
    other = pickle.loads(pickle.dumps(store))
    assert other is not store
    assert other.get("travel") == b"1"
    assert pickle.loads(pickle.dumps(store.config)) == store.config


def test_a_ping_answers(store: ObjectStore) -> None:
    store.ping()
    store.put("x", b"")
    store.ping()


@pytest.mark.parametrize("config", ["s3", "azure"], indirect=True)
def test_a_bucket_that_is_not_there_is_told_and_not_taken_for_a_missing_object(config: StoreConfig) -> None:
    store = open_store(replace(config, url=config.url + "-not-there", max_attempts=1))
    for ask in (
        store.ping,
        lambda: store.get("x"),
        lambda: store.head("x"),
        lambda: store.put("x", b""),
    ):
        with pytest.raises(Unavailable, match="the bucket does not exist; create the bucket"):
            ask()


def test_a_prefix_in_the_address_is_not_part_of_keys(config: StoreConfig) -> None:
    below = open_store(replace(config, url=config.url + "/some/where"))
    below.put("a/b", b"1")
    assert _keys(below) == ["a/b"]
    assert _keys(open_store(config)) == ["some/where/a/b"]
