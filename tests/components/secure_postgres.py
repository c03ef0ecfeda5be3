"""A PostgreSQL that speaks TLS and asks for passwords: the system's, because the embedded one has no TLS."""

from __future__ import annotations

import ipaddress
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from cryptography import x509

from tests.components.certificates import issue
from tests.components.missing import missing
from tests.components.process import RunningProcess, free_port

USER, PASSWORD = "lake", "pg-hush"


@dataclass(frozen=True)
class SecurePostgres:
    port: int
    authority_path: Path
    socket_dir: Path

    def url(self, **options: str) -> str:
        """The address over TLS, for a client that checks the server's certificate and name."""
        asked = {"sslmode": "verify-full", "sslrootcert": str(self.authority_path), **options}
        query = "&".join(f"{name}={value}" for name, value in asked.items())
        return f"postgresql://{USER}@127.0.0.1:{self.port}/postgres?{query}"

    def change_password(self, password: str) -> None:
        with psycopg.connect(host=str(self.socket_dir), port=self.port, user="postgres", autocommit=True) as admin:
            admin.execute(f"ALTER ROLE {USER} PASSWORD '{password}'")


def _programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres")) or [
        Path(each) for each in [shutil.which("postgres")] if each
    ]
    if not found:
        missing("cannot try PostgreSQL over TLS: there is no PostgreSQL on this system")
    return found[-1].parent


def _ordinary_user() -> str | None:
    """PostgreSQL refuses root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        missing("cannot try PostgreSQL over TLS as root: there is no user `postgres`")


@contextmanager
def running_secure_postgres() -> Iterator[SecurePostgres]:
    programs, user = _programs(), _ordinary_user()
    with tempfile.TemporaryDirectory(prefix="lr-pg-", dir="/tmp") as place:
        folder = Path(place)
        folder.chmod(0o755)
        authority = issue(folder, "authority")
        own = issue(folder, "server", authority, x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
        own.key_path.chmod(0o600)
        data, port = folder / "data", free_port()
        data.mkdir(0o700)
        for path in (folder, data, own.key_path, own.cert_path):
            if user is not None:
                shutil.chown(path, user)
        authority.cert_path.chmod(0o644)
        own.cert_path.chmod(0o644)
        initdb = [str(programs / "initdb"), "-D", str(data), "-U", "postgres", "--auth=trust", "-N"]
        subprocess.run(initdb, check=True, capture_output=True, user=user, cwd=folder)
        (data / "pg_hba.conf").write_text("local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n")
        options = {
            "listen_addresses": "127.0.0.1",
            "port": port,
            "unix_socket_directories": folder,
            "ssl": "on",
            "ssl_cert_file": own.cert_path,
            "ssl_key_file": own.key_path,
            "fsync": "off",
        }
        command = [str(programs / "postgres"), "-D", str(data)]
        command += [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        if user is not None:
            command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *command]
        with RunningProcess.start(command, log_path=folder / "log", cwd=folder) as process:
            process.wait_for_port("127.0.0.1", port, 30)
            with _first_connection(folder, port) as admin:
                admin.execute(f"CREATE ROLE {USER} SUPERUSER LOGIN PASSWORD '{PASSWORD}'")
            yield SecurePostgres(port, authority.cert_path, folder)


def _first_connection(folder: Path, port: int) -> psycopg.Connection:
    end = time.monotonic() + 30.0
    while True:
        try:
            return psycopg.connect(host=str(folder), port=port, user="postgres", autocommit=True)
        except psycopg.OperationalError:
            # It listens before it lets anybody in.
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
