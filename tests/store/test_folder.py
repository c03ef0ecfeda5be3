"""A folder as a bucket: atomic, durable, and never outside its root."""

from __future__ import annotations

import errno
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from lakerunner.model.errors import BadInput, Conflict, Denied, Missing, Unavailable
from lakerunner.store.config import StoreConfig
from lakerunner.store.errors import DiskFull
from lakerunner.store.folder import STAGING, FolderBucket
from lakerunner.store.object_store import ObjectStore
from lakerunner.store.open import open_store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "bucket"


@pytest.fixture
def store(root: Path) -> ObjectStore:
    return open_store(StoreConfig(url=root.as_uri(), max_attempts=1))


def test_objects_are_private(store: ObjectStore, root: Path) -> None:
    store.put("some/folder/object", b"telemetry")
    assert [path.stat().st_mode & 0o077 for path in (root, root / STAGING, root / "some/folder/object")] == [0, 0, 0]


def _files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


@pytest.mark.parametrize("create_only", [True, False])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_put_that_fails_leaves_nothing(
    store: ObjectStore, root: Path, monkeypatch: pytest.MonkeyPatch, create_only: bool, number: int
) -> None:
    store.put("kept/old", b"old")

    def full(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", full)
    key = "new/one" if create_only else "kept/old"
    with pytest.raises(Unavailable) as raised:
        store.put(key, b"new" * 1_000, create_only=create_only)
    assert "\n" not in str(raised.value)
    assert isinstance(raised.value, DiskFull) == (number == errno.ENOSPC)
    assert _files(root) == ["kept/old"]
    assert store.get("kept/old") == b"old"


def test_an_object_is_seen_whole_or_not_at_all(store: ObjectStore, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    sync = os.fsync

    def look(descriptor: int) -> None:
        seen.append([meta.key for meta in store.list()])
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", look)
    store.put("a/b/c", b"1")
    # The file before it has its name; then each folder that got an entry.
    assert seen[0] == []
    assert len(seen) == 4
    assert seen[1:] == [["a/b/c"]] * 3


def test_links_do_not_lead_outside(store: ObjectStore, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("s")
    (root / "door").symlink_to(outside)
    (root / "window").symlink_to(outside / "secret")
    for key in ("door/secret", "window"):
        with pytest.raises(Missing, match="symbolic link"):
            store.get(key)
        with pytest.raises(Missing, match="symbolic link"):
            store.put(key, b"", create_only=False)
        store.delete([key])
    assert (outside / "secret").read_text() == "s"
    assert [meta.key for meta in store.list()] == []
    assert [meta.key for meta in store.list("door/")] == []


def test_the_staging_place_is_not_part_of_the_bucket(store: ObjectStore, root: Path) -> None:
    (root / STAGING / "left").write_bytes(b"half")
    assert [meta.key for meta in store.list()] == []
    for key in (STAGING, f"{STAGING}/left"):
        with pytest.raises(BadInput, match="reserved for files being written"):
            store.get(key)


def test_what_a_killed_process_left_is_removed_a_day_later(root: Path, store: ObjectStore) -> None:
    for name, age_s in (("old", 90_000), ("young", 60)):
        path = root / STAGING / name
        path.write_bytes(b"half")
        os.utime(path, (time.time() - age_s, time.time() - age_s))
    open_store(store.config)
    assert [path.name for path in (root / STAGING).iterdir()] == ["young"]


def test_a_file_whose_name_cannot_be_a_key_is_passed_over(store: ObjectStore, root: Path) -> None:
    store.put("good", b"")
    (root / "bad\nname").touch()
    Path(os.fsdecode(os.fsencode(root) + b"/\xff")).touch()
    assert [meta.key for meta in store.list()] == ["good"]


def test_an_object_and_a_folder_of_one_name_cannot_be(store: ObjectStore) -> None:
    store.put("a/b", b"1")
    with pytest.raises(Conflict):
        store.put("a", b"2")
    with pytest.raises(Conflict, match="both"):
        store.put("a", b"2", create_only=False)
    with pytest.raises(Conflict, match="both"):
        store.put("a/b/c", b"2")
    assert store.get("a/b") == b"1"


def test_a_part_that_is_too_long_is_told(store: ObjectStore) -> None:
    with pytest.raises(BadInput, match="255 bytes"):
        store.put("x" * 300, b"")


def test_a_root_that_vanished_is_not_made_anew(store: ObjectStore, root: Path) -> None:
    store.put("a", b"")
    root.rename(root.with_name("unmounted"))
    for ask in (lambda: store.put("b", b""), lambda: store.get("a"), store.ping, lambda: store.delete(["a"])):
        with pytest.raises(Unavailable, match="is gone"):
            ask()
    assert not root.exists()


def test_places_that_cannot_be_buckets_are_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    config = StoreConfig(url="")
    for place in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/lake")):
        with pytest.raises(BadInput, match="is not a folder"):
            open_store(replace(config, url=place.as_uri()))
    with pytest.raises(Denied, match="check owner and permissions"):
        open_store(replace(config, url="file:///sys/lake"))


def test_files_put_there_by_others_are_objects(store: ObjectStore, root: Path) -> None:
    (root / "otel-raw").mkdir()
    (root / "otel-raw" / "100% odd#1.json").write_bytes(b"{}")
    (meta,) = store.list("otel-raw/")
    assert store.get(meta.key) == b"{}"
    assert store.head(meta.key) == meta


def test_a_folder_opens_while_another_process_finishes_a_put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The staged file is renamed between the listing of the staging folder and the look at the file."""
    staging = tmp_path / STAGING
    staging.mkdir()
    monkeypatch.setattr(Path, "iterdir", lambda _: iter([staging / "renamed-meanwhile"]))
    FolderBucket(tmp_path).put("a/b", b"x", create_only=True)
