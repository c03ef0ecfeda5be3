"""A watched folder reports complete files once, finds them again after a restart, and is cheap when idle."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakerunner.index.ledger import record_seen, set_stamps
from lakerunner.intake.buckets import config_of
from lakerunner.intake.folder import FolderSource, Watched, watched_folders
from lakerunner.intake.loop import SourceLoop
from lakerunner.intake.mapping import RAW_PREFIXES
from lakerunner.intake.record import Recorder
from lakerunner.intake.source import ReceivedEvent
from lakerunner.model.errors import Unavailable
from lakerunner.model.raw_object import RawObject
from lakerunner.runtime.settings import IntakeSettings
from lakerunner.runtime.stop import Stop
from lakerunner.store.bucket import version_of
from lakerunner.store.folder import FolderBucket
from tests.intake.conftest import ORG, Lake, write

BUCKET = "file:///lake"
MakeSource = Callable[..., FolderSource]


@pytest.fixture
def make_source(tmp_path: Path) -> MakeSource:
    def make(**settings: float) -> FolderSource:
        watched = [Watched(BUCKET, str(tmp_path), RAW_PREFIXES)]
        fast = {"folder_poll_s": 0.02, "folder_settle_s": 0.05, "folder_full_scan_s": 1_000.0, **settings}
        return FolderSource(lambda: watched, IntakeSettings.model_validate(fast))

    return make


def keys(received: list[ReceivedEvent]) -> list[str]:
    return sorted(event.key for each in received for event in each.event.objects)


def test_files_are_told_once(make_source: MakeSource, tmp_path: Path) -> None:
    source = make_source()
    write(tmp_path, "otel-raw/year=2026/logs_1.json")
    write(tmp_path, "metrics-raw/a b/é.json")
    received = source.receive(10, 2)
    assert keys(received) == ["metrics-raw/a b/é.json", "otel-raw/year=2026/logs_1.json"]
    source.ack(received)
    assert source.receive(10, 0.2) == []
    write(tmp_path, "otel-raw/year=2026/logs_2.json")
    assert keys(source.receive(10, 2)) == ["otel-raw/year=2026/logs_2.json"]


def test_what_is_not_raw_or_not_finished_is_not_told(make_source: MakeSource, tmp_path: Path) -> None:
    for key in ("db/o/logs.parquet", "elsewhere/logs_1.json", "otel-raw/.logs_1.json.swp", "logs_1.json"):
        write(tmp_path, key)
    (tmp_path / "otel-raw" / "logs_2.json.tmp").write_bytes(b"half")
    (tmp_path / "otel-raw" / "link.json").symlink_to(tmp_path / "logs_1.json")
    assert make_source().receive(10, 0.4) == []


def test_a_file_that_is_still_being_written_waits(make_source: MakeSource, tmp_path: Path) -> None:
    source = make_source(folder_settle_s=0.5)
    path = write(tmp_path, "otel-raw/logs_1.json", b"")
    with path.open("ab") as file:
        for _ in range(8):
            file.write(b"line\n")
            file.flush()
            assert source.receive(10, 0.15) == []
    received = source.receive(10, 3)
    assert keys(received) == ["otel-raw/logs_1.json"]
    assert path.stat().st_size == 40


def test_what_is_given_back_comes_again(make_source: MakeSource, tmp_path: Path) -> None:
    source = make_source()
    write(tmp_path, "otel-raw/logs_1.json")
    received = source.receive(10, 2)
    source.nack(received)
    assert keys(source.receive(10, 2)) == keys(received)


def test_a_renamed_replacement_is_told_at_once_and_an_overwritten_file_by_the_full_look(
    make_source: MakeSource, tmp_path: Path
) -> None:
    source = make_source(folder_full_scan_s=0.5)
    path = write(tmp_path, "otel-raw/logs_1.json")
    old = time.time_ns() - 60_000_000_000
    os.utime(path.parent, ns=(old, old))
    source.ack(source.receive(10, 2))
    path.write_bytes(b"another")
    received = source.receive(10, 3)
    assert keys(received) == ["otel-raw/logs_1.json"]
    source.ack(received)
    write(tmp_path, "otel-raw/logs_1.json", b"a third")
    assert keys(source.receive(10, 3)) == ["otel-raw/logs_1.json"]


def test_a_name_that_is_no_key_is_told_as_unreadable(make_source: MakeSource, tmp_path: Path) -> None:
    (tmp_path / "otel-raw").mkdir()
    (tmp_path / "otel-raw" / os.fsdecode(b"logs_\xff.json")).write_bytes(b"x")
    (received,) = make_source().receive(10, 2)
    assert "not Unicode" in received.event.unreadable[0].reason


def test_a_profile_of_everything_leaves_segments_alone(tmp_path: Path) -> None:
    for key in ("db/o/logs.parquet", "app/logs_1.json", "app/x/logs_2.json", "dbx/logs_3.json"):
        write(tmp_path, key)
    fast = IntakeSettings(folder_poll_s=0.02, folder_settle_s=0.05)
    everything = FolderSource(lambda: [Watched(BUCKET, str(tmp_path), ("",))], fast)
    assert keys(everything.receive(10, 2)) == ["app/logs_1.json", "app/x/logs_2.json", "dbx/logs_3.json"]
    within_a_name = FolderSource(lambda: [Watched(BUCKET, str(tmp_path), ("app/log", "app/x"))], fast)
    assert keys(within_a_name.receive(10, 2)) == ["app/logs_1.json", "app/x/logs_2.json"]


def test_a_vanished_root_is_an_outage(make_source: MakeSource, tmp_path: Path) -> None:
    source = FolderSource(lambda: [Watched(BUCKET, str(tmp_path / "gone"), ("",))], IntakeSettings())
    assert source.receive(10, 0) == []
    assert isinstance(source.trouble, Unavailable) and "cannot watch" in source.trouble.message


def test_a_folder_in_trouble_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that is gone, and a directory on a failing disk: the files beside them are told, and both come back."""
    for key in ("a/otel-raw/bad/logs_1.json", "a/otel-raw/logs_2.json", "b/otel-raw/logs_3.json"):
        write(tmp_path, key)
    (tmp_path / "gone").mkdir()
    watched = [Watched(f"file:///{name}", str(tmp_path / name), RAW_PREFIXES) for name in ("gone", "a", "b")]
    fast = IntakeSettings(folder_poll_s=0.01, folder_settle_s=0.01, folder_full_scan_s=0.01)
    source = FolderSource(lambda: watched, fast)
    (tmp_path / "gone").rmdir()
    read = os.scandir

    def failing(path: str) -> Any:
        if path.endswith("/bad"):
            raise OSError(errno.EIO, "Input/output error")
        return read(path)

    monkeypatch.setattr(os, "scandir", failing)
    received = source.receive(10, 2)
    assert keys(received) == ["otel-raw/logs_2.json", "otel-raw/logs_3.json"]
    assert source.trouble is not None and "Input/output error" in source.trouble.message
    source.ack(received)
    monkeypatch.undo()
    write(tmp_path, "gone/otel-raw/logs_4.json")
    found = source.receive(1, 2) + source.receive(1, 2)
    assert keys(found) == ["otel-raw/bad/logs_1.json", "otel-raw/logs_4.json"] and source.trouble is None


def test_idle_looks_read_no_directory_again(
    make_source: MakeSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make_source()
    for number in range(30):
        write(tmp_path, f"otel-raw/{number % 3}/logs_{number}.json")
    old = time.time_ns() - 60_000_000_000
    for folder in [tmp_path / "otel-raw", *(tmp_path / "otel-raw").iterdir()]:
        os.utime(folder, ns=(old, old))
    received = source.receive(100, 2)
    assert len(received) == 30
    source.ack(received)
    read: list[str] = []
    real = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: (read.append(path), real(path))[1])
    assert source.receive(10, 0.3) == []
    assert read == []
    write(tmp_path, "otel-raw/1/logs_new.json")
    assert keys(source.receive(10, 2)) == ["otel-raw/1/logs_new.json"]
    assert {Path(path).name for path in read} == {"1"}


def test_deleted_files_are_forgotten(make_source: MakeSource, tmp_path: Path) -> None:
    source = make_source(folder_full_scan_s=0.1)
    path = write(tmp_path, "otel-raw/logs_1.json")
    source.ack(source.receive(10, 2))
    path.unlink()
    source.receive(10, 0.4)
    assert source._known == {}


def scan(lake: Lake, recorder: Recorder) -> Counter[str]:
    """What a role that starts now makes of the folder."""
    source = FolderSource(lambda: watched_folders(recorder.key_map()), lake.settings.intake)
    return recorder.record_events([each.event for each in source.receive(100, 2)], "folder").counts


@pytest.mark.parametrize("change", ["touch", "cp -a", "restore"])
def test_a_file_is_known_by_its_content(lake: Lake, recorder: Recorder, change: str) -> None:
    root = Path(lake.bucket.removeprefix("file://"))
    path = write(root, "otel-raw/logs_1.json", b"one")
    assert +scan(lake, recorder) == {"recorded": 1}
    if change == "touch":
        os.utime(path, (1, 1))
    else:
        copy = root.with_name("copy")
        shutil.copytree(root, copy, copy_function=shutil.copy2 if change == "cp -a" else shutil.copy)
        shutil.rmtree(root)
        copy.rename(root)
    assert +scan(lake, recorder) == {"known": 1}
    lake.assert_each_once(["otel-raw/logs_1.json"])
    write(root, "otel-raw/logs_1.json", b"two")
    assert +scan(lake, recorder) == {"recorded": 1}


def test_a_moved_lake_ingests_nothing_again(
    lake: Lake, make_recorder: Callable[[Lake], Recorder], tmp_path: Path
) -> None:
    root = Path(lake.bucket.removeprefix("file://"))
    write(root, "otel-raw/logs_1.json", b"one")
    assert +scan(lake, make_recorder(lake)) == {"recorded": 1}
    (tmp_path / "elsewhere").mkdir()
    shutil.move(root, tmp_path / "elsewhere" / root.name)
    store = lake.settings.store.model_copy(update={"url": (tmp_path / "elsewhere" / root.name).as_uri()})
    moved = Lake(lake.settings.model_copy(update={"store": store}), lake.database)
    assert +scan(moved, make_recorder(moved)) == {"known": 1}
    # What was recorded under the old address is read under the new one.
    assert config_of(moved.settings, lake.bucket, []).url == moved.bucket


def test_a_file_that_looks_the_same_is_not_read_again(
    lake: Lake, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(Path(lake.bucket.removeprefix("file://")), "otel-raw/logs_1.json", b"one")
    read: list[str] = []
    real = FolderBucket.content_version
    monkeypatch.setattr(
        FolderBucket, "content_version", lambda bucket, key, etag: (read.append(key), real(bucket, key, etag))[1]
    )
    assert +scan(lake, recorder) == {"recorded": 1}
    assert +scan(lake, recorder) == {"known": 1}
    assert read == ["otel-raw/logs_1.json"]


def test_what_an_earlier_release_recorded_is_known_in_place(lake: Lake, recorder: Recorder) -> None:
    write(Path(lake.bucket.removeprefix("file://")), "otel-raw/logs_1.json", b"one")
    meta = recorder.store(recorder.key_map(), lake.bucket).head("otel-raw/logs_1.json")
    old = RawObject(ORG, "default", "logs", lake.bucket, meta.key, version_of(meta), meta.size_bytes)
    with lake.database.transaction() as tx:
        record_seen(tx, [old])
        # As the migration does with rows of folders.
        set_stamps(tx, {old.object_id: old.object_id})
    assert +scan(lake, recorder) == {"known": 1}


def test_a_folder_ends_in_the_ledger_and_a_restart_adds_nothing(lake: Lake, recorder: Recorder) -> None:
    root = Path(lake.bucket.removeprefix("file://"))
    wanted = ["otel-raw/100%.logs.json", "otel-raw/a+b c/logs_%2F.json", "otel-raw/ü#1/metrics?.json"]
    for key in wanted:
        write(root, key)
    for _ in range(2):
        source = FolderSource(lambda: watched_folders(recorder.key_map()), lake.settings.intake)
        stop = Stop()
        loop = SourceLoop(source, recorder, 100)
        received = source.receive(100, 3)
        assert len(received) == 3
        loop._handle(received, stop)
    lake.assert_each_once(wanted)
