"""The index over TLS: the certificate is checked, the password may be in a file, and it may change while roles run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from lakerunner.index.database import Database
from lakerunner.model.errors import BadInput, LakeError, Unavailable
from tests.components.certificates import issue
from tests.components.secure_postgres import PASSWORD, USER, SecurePostgres, running_secure_postgres


@pytest.fixture(scope="module")
def server() -> Iterator[SecurePostgres]:
    with running_secure_postgres() as running:
        yield running


def _pass_file(path: Path, server: SecurePostgres, password: str) -> Path:
    path.write_text(f"127.0.0.1:{server.port}:*:{USER}:{password}\n")
    path.chmod(0o600)
    return path


def _is_encrypted(database: Database) -> bool:
    with database.transaction() as tx:
        row = tx.execute("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").fetchone()
    assert row is not None
    return bool(row["ssl"])


def test_connections_are_encrypted_and_the_server_is_checked(server: SecurePostgres, tmp_path: Path) -> None:
    database = Database(server.url(passfile=str(_pass_file(tmp_path / "pass", server, PASSWORD))))
    try:
        assert _is_encrypted(database)
    finally:
        database.close()


def test_a_server_of_another_authority_is_refused(server: SecurePostgres, tmp_path: Path) -> None:
    own = _pass_file(tmp_path / "pass", server, PASSWORD)
    stranger = issue(tmp_path, "stranger").cert_path
    for url in (
        server.url(passfile=str(own), sslrootcert=str(stranger)),
        # The certificate is for the address only.
        server.url(passfile=str(own)).replace("@127.0.0.1", "@localhost"),
    ):
        database = Database(url, connect_timeout_s=2.0)
        try:
            with pytest.raises(LakeError) as refused:
                database.ping()
        finally:
            database.close()
        assert PASSWORD not in str(refused.value)


def test_without_tls_nobody_is_let_in(server: SecurePostgres, tmp_path: Path) -> None:
    own = _pass_file(tmp_path / "pass", server, PASSWORD)
    database = Database(server.url(passfile=str(own), sslmode="disable"), connect_timeout_s=2.0)
    try:
        with pytest.raises((BadInput, Unavailable), match="pg_hba"):
            database.ping()
    finally:
        database.close()


def test_a_changed_password_is_used_without_a_restart(server: SecurePostgres, tmp_path: Path) -> None:
    own = _pass_file(tmp_path / "pass", server, PASSWORD)
    database = Database(server.url(passfile=str(own)), connect_timeout_s=5.0)
    try:
        assert _is_encrypted(database)
        server.change_password("pg-hush-2")
        _pass_file(own, server, "pg-hush-2")
        # Whoever is connected is thrown out: the next connection needs the new password.
        with psycopg.connect(host=str(server.socket_dir), port=server.port, user="postgres", autocommit=True) as admin:
            admin.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{USER}'")
        assert _is_encrypted(database)
    finally:
        database.close()
        server.change_password(PASSWORD)
