"""Bad input gives one line with the error and a hint, and exit code 2 (or 1 for a failure), never a traceback."""

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from lakerunner.index.database import Database
from tests.cli.conftest import Done, Run, run_lakerunner
from tests.components.postgres import PostgresServer


def assert_one_line(done: Done, code: int, *says: str) -> None:
    assert done.code == code, done
    assert "Traceback" not in done.err
    lines = done.err.strip().splitlines()
    for text in says:
        assert text in lines[-1]
    assert len(lines) == 1


@pytest.mark.parametrize(
    ("url", "code", "says"),
    [
        ("mysql://x/y", 2, "postgresql://user:password@host"),
        ("postgresql://x@nohost.invalid/db", 2, "check host and port in index.url"),
        ("postgresql://x@127.0.0.1:1/db", 1, "is PostgreSQL running?"),
    ],
)
def test_wrong_address(url: str, code: int, says: str) -> None:
    env = {"LAKERUNNER_INDEX_URL": url, "LAKERUNNER_INDEX_CONNECT_TIMEOUT_S": "1"}
    assert_one_line(run_lakerunner("org", "list", env=env), code, says)


@pytest.fixture
def guarded_url(tmp_path: Path) -> Iterator[str]:
    """Yield the address of a database that requires a password."""
    server = PostgresServer(tmp_path)
    server.start()
    url = server.new_database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER ROLE postgres PASSWORD 'right'")
        (hba_file,) = tmp_path.rglob("pg_hba.conf")
        hba_file.write_text("local all all scram-sha-256\n")
        connection.execute("SELECT pg_reload_conf()")
    yield url
    server.stop()


def test_wrong_password(guarded_url: str) -> None:
    def with_password(password: str) -> dict[str, str]:
        url = urlsplit(guarded_url)
        return {"LAKERUNNER_INDEX_URL": urlunsplit(url._replace(netloc=f"postgres:{password}@"))}

    wrong = run_lakerunner("org", "list", env=with_password("hunter2"))
    assert_one_line(wrong, 2, "check user and password in index.url")
    assert "hunter2" not in wrong.err
    assert run_lakerunner("org", "list", env=with_password("right")).code == 0
    role = run_lakerunner("relay", env={**with_password("hunter2"), "LAKERUNNER_HTTP_PORT": "0"})
    assert role.code == 2
    assert "check user and password" in role.err.splitlines()[-1]
    assert "Traceback" not in role.err


def test_port_in_use(lakerunner: Run, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        env = {"LAKERUNNER_HTTP_PORT": port, "LAKERUNNER_DATA_DIR": str(tmp_path)}
        assert_one_line(run_lakerunner("serve", env=env), 2, f"cannot listen on 127.0.0.1:{port}")
        role = lakerunner("monitor", env=env)
        assert role.code == 2
        assert "another process uses the port" in role.err.splitlines()[-1]


def test_unreadable_yaml(tmp_path: Path) -> None:
    path = tmp_path / "lakerunner.yaml"
    path.write_text("http: {port: 7")
    assert_one_line(run_lakerunner("config", "check", "--config", str(path)), 2, "as YAML: line 1, column")
    assert_one_line(run_lakerunner("serve", "--config", str(tmp_path / "absent")), 2, "cannot find the settings file")


def test_unknown_names() -> None:
    assert_one_line(run_lakerunner("config", "check", "--set", "http.prot=1"), 2, "did you mean http.port?")
    assert_one_line(run_lakerunner("config", "check", "--set", "http.port"), 2, "write NAME=VALUE")
    mapping = "formats.mapping=logs-raw/ colour=red"
    assert_one_line(run_lakerunner("config", "check", "--set", mapping), 2, "there is no field 'colour'")
    env = {"LAKERUNNER_HTTP_PROT": "1"}
    assert_one_line(run_lakerunner("config", "check", env=env), 2, "did you mean LAKERUNNER_HTTP_PORT?")


def test_a_schema_newer_than_the_code(lakerunner: Run, database: Database) -> None:
    with database.transaction() as tx:
        tx.execute("INSERT INTO schema_migration VALUES (999, 'future', '', now(), 999)")
    assert_one_line(lakerunner("migrate"), 2, "requires a release that knows schema 999", "upgrade lakerunner")
    role = lakerunner("relay", env={"LAKERUNNER_HTTP_PORT": "0"})
    assert role.code == 2
    assert "upgrade lakerunner" in role.err.splitlines()[-1]


def test_a_schema_older_than_the_code(lakerunner: Run, database: Database) -> None:
    with database.transaction() as tx:
        tx.execute("DELETE FROM schema_migration WHERE version > 1")
    role = lakerunner("relay", env={"LAKERUNNER_HTTP_PORT": "0"})
    assert role.code == 2
    assert "run `lakerunner migrate`" in role.err.splitlines()[-1]


def test_misused_verbs_name_what_is_wrong(lakerunner: Run) -> None:
    assert_one_line(lakerunner("key", "revoke", "not-an-id"), 2, "lakerunner key list")
    assert_one_line(lakerunner("key", "create", "k", "--scope", "query"), 2, "--org")
    assert_one_line(lakerunner("key", "create", "k", "--scope", "query", "--org", "nobody"), 1, "org list")
    assert_one_line(lakerunner("bus", "redrive"), 2, "--all")
    assert_one_line(lakerunner("bus", "tail", "no.such.topic"), 1, "no.such.topic")
    assert lakerunner("serve", "--nonsense").code == 2


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode != 0:
        reason = "a full disk needs a file system of our own, and so the right to mount one"
        if os.environ.get("CI") and os.geteuid() == 0:
            pytest.fail(reason)
        pytest.skip(reason)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_full_disk(lakerunner: Run, tiny_disk: Path) -> None:
    env = {"LAKERUNNER_DATA_DIR": str(tiny_disk / "data"), "LAKERUNNER_HTTP_PORT": "0"}
    assert_one_line(run_lakerunner("serve", env=env), 1, "cannot make the embedded database", "No space left")
    (tiny_disk / "filler").write_bytes(b"x" * (1024 * 1024 - 64 * 1024))
    doctor = lakerunner("doctor", "-o", "json", env=env)
    assert doctor.code == 1
    assert [finding["subject"] for finding in doctor.json() if not finding["ok"]] == ["disk"]
