"""The embedded PostgreSQL touches only what is its own: folders, sockets and processes."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from lakerunner.index import embedded
from lakerunner.index.embedded import EmbeddedPostgres
from lakerunner.model.errors import BadInput, Unavailable
from tests.components.postgres import PostgresServer

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="as root, the server runs as another user")


def modes(path: Path) -> dict[Path, int]:
    return {folder: folder.stat().st_mode for folder in (path, *path.parents)}


def long_folder(tmp_path: Path) -> Path:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    return folder


def test_a_server_runs_in_a_folder_that_only_we_can_reach_and_changes_no_other(tmp_path: Path) -> None:
    folder = tmp_path / "closed" / "data"
    folder.mkdir(parents=True)
    (tmp_path / "closed").chmod(0o700)
    before = modes(folder) | modes(embedded.POSTGRES_VERSIONS[18])
    server = PostgresServer(folder)
    server.start()
    try:
        assert EmbeddedPostgres(folder).pid() is not None
        with psycopg.connect(EmbeddedPostgres(folder).url) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    finally:
        server.stop()
    assert modes(folder) | modes(embedded.POSTGRES_VERSIONS[18]) == before
    assert stat.S_IMODE((folder / "postgres").stat().st_mode) == 0o700


@as_root
def test_a_folder_from_a_machine_where_the_user_has_another_number_is_taken_over(tmp_path: Path) -> None:
    server = PostgresServer(tmp_path)
    server.start()
    server.stop()
    outside = tmp_path / "outside"
    outside.touch()
    (tmp_path / "postgres" / "link").symlink_to(outside)
    there = 54_321
    for path in (tmp_path / "postgres").rglob("*"):
        os.chown(path, there, there, follow_symlinks=False)
    os.chown(tmp_path / "postgres", there, there)
    server.start()
    try:
        with psycopg.connect(EmbeddedPostgres(tmp_path).url) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    finally:
        server.stop()
    owners = {path.lstat().st_uid for path in (tmp_path / "postgres").rglob("*")}
    assert there not in owners
    assert outside.stat().st_uid == 0


@as_root
def test_binaries_out_of_reach_are_an_error_and_stay_so(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "postgres").touch(0o755)
    with pytest.raises(BadInput, match="has no access to"):
        embedded._require_reach(closed / "postgres", "nobody")
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


def test_one_process_at_a_time_creates_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    inside: list[str] = []

    def useradd(user: str) -> None:
        inside.append(user)
        time.sleep(0.05)
        assert inside == [user], "two at once give the user two numbers"
        inside.clear()

    monkeypatch.setattr(embedded, "ensure_user_exists", useradd)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(embedded._ensure_user, ["somebody"] * 4))


def test_a_user_that_cannot_be_created_is_an_error_that_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        embedded,
        "ensure_user_exists",
        lambda user: subprocess.run(
            ["sh", "-c", "echo cannot lock /etc/passwd >&2; exit 1"], check=True, capture_output=True, text=True
        ),
    )
    with pytest.raises(Unavailable, match=r"cannot create the user somebody, as whom .* runs: cannot lock /etc/passwd"):
        embedded._ensure_user("somebody")


def test_the_socket_of_a_long_path_is_in_a_private_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    postgres = EmbeddedPostgres(long_folder(tmp_path))
    folder = postgres.socket_dir
    assert folder.parent == tmp_path
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o755)
    with pytest.raises(BadInput, match="not a private folder"):
        _ = postgres.url
    folder.rmdir()
    (tmp_path / "bait").mkdir(0o700)
    folder.symlink_to(tmp_path / "bait")
    with pytest.raises(BadInput, match="not a private folder"):
        _ = postgres.url


@as_root
def test_a_socket_folder_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    postgres = EmbeddedPostgres(long_folder(tmp_path))
    os.chown(postgres.socket_dir, 12_345, 12_345)
    with pytest.raises(BadInput, match="not a private folder"):
        postgres.command()


def test_a_stale_pid_file_stops_no_other_postgres(tmp_path: Path, postgres_server: PostgresServer) -> None:
    """The file names a real PostgreSQL, which serves another folder."""
    other = postgres_server._process
    assert other is not None
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "postmaster.pid").write_text(f"{other.pid}\n{tmp_path / 'postgres'}\n")
    postgres = EmbeddedPostgres(tmp_path)
    assert postgres.pid() is None
    postgres.stop()
    assert other.poll() is None
    assert postgres_server._embedded.pid() == other.pid


def test_a_process_that_is_no_postgres_is_not_stopped(tmp_path: Path) -> None:
    (tmp_path / "postgres").mkdir()
    with subprocess.Popen(["sleep", "60"], cwd=tmp_path / "postgres") as other:
        (tmp_path / "postgres" / "postmaster.pid").write_text(f"{other.pid}\n")
        EmbeddedPostgres(tmp_path).stop()
        assert other.poll() is None
        other.send_signal(signal.SIGKILL)
