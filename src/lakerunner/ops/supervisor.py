"""Run a whole deployment on one machine: the embedded PostgreSQL and every role as supervised processes."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import orjson

from lakerunner.index.embedded import EmbeddedPostgres
from lakerunner.index.migrate import migrate
from lakerunner.index.orgs import ensure_default_org
from lakerunner.index.role import open_database
from lakerunner.model.errors import BadInput, Conflict, LakeError, Unavailable
from lakerunner.ops.child import Child, LogPump
from lakerunner.ops.fork_server import ForkServer, Process, plain_env, reap_orphans
from lakerunner.runtime.http import require_free_ports
from lakerunner.runtime.retry import Backoff
from lakerunner.runtime.run import SUPERVISOR_VARIABLE
from lakerunner.runtime.settings import EMBEDDED, Settings
from lakerunner.runtime.settings.load import settings_as_env
from lakerunner.runtime.stop import Stop
from lakerunner.runtime.telemetry import log

_TICK_S = 0.1
_READY_POLL_S = 0.2
_POSTGRES_START_S = 30.0
#: How long the first roles wait until the fork server has imported them.
_FORK_SERVER_START_S = 60.0
_SAME_SIGNAL_S = 1.0
POSTGRES = "postgres"


@dataclass(frozen=True, slots=True)
class RoleAddress:
    """The HTTP address of a role."""

    name: str
    host: str
    port: int

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


class Supervisor:
    """Starts all processes in order, keeps them running, and stops them in reverse. One per data folder."""

    def __init__(
        self,
        settings: Settings,
        roles: Sequence[str],
        on_ready: Callable[[Supervisor], None],
        fork_server: ForkServer | None = None,
        module: str = "lakerunner.cli.main",
    ) -> None:
        self._settings = settings
        #: The module whose `main` runs the role that the command line names.
        self._module = module
        self._fork_server = fork_server
        self._on_ready = on_ready
        self._backoff = Backoff(settings.serve.restart_base_s, settings.serve.restart_max_s)
        self._children: list[Child] = []
        self._pumps: dict[str, LogPump] = {}
        self._stop = Stop()
        self._stop_at_once = False
        self._started = False
        self._stop_asked_at = 0.0
        self._roles = tuple(roles)
        self.addresses: tuple[RoleAddress, ...] = ()
        self.data_dir = settings.data.dir.resolve()

    def run(self) -> int:
        """Serve until a signal asks to stop. Return the exit code."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        lock = self._lock_data_dir()
        try:
            self._assign_ports()
            if self._settings.index.url == EMBEDDED:
                self._start_postgres()
            self._prepare_index()
            for address in self.addresses:
                self._start_role(address)
            self._started = True
            self._write_state()
            self._watch()
            return 0
        finally:
            self._stop_all()
            lock.close()

    # -- starting ----------------------------------------------------------------------------------------------

    def _lock_data_dir(self) -> IO[str]:
        try:
            (self.data_dir / "logs").mkdir(parents=True, exist_ok=True)
            lock = (self.data_dir / "serve.lock").open("a")
        except OSError as reason:
            raise BadInput(f"cannot use the data folder {self.data_dir}: {reason.strerror}", where="data.dir") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            raise Conflict(
                f"cannot serve from {self.data_dir}: another `lakerunner serve` uses it",
                hint="stop that one, or set data.dir",
            ) from None
        return lock

    def _assign_ports(self) -> None:
        http = self._settings.http
        ports = require_free_ports(http.host, http.port, len(self._roles))
        self.addresses = tuple(
            RoleAddress(role, http.host, port) for role, port in zip(self._roles, ports, strict=True)
        )

    def _start_postgres(self) -> None:
        postgres = EmbeddedPostgres(self.data_dir)
        log_path = self.data_dir / "logs" / "postgres.log"
        child = Child(POSTGRES, lambda: postgres.spawn(log_path), self._backoff)
        child.start()
        self._children.append(child)

    def _prepare_index(self) -> None:
        """Wait for the index, bring its schema up to date, and create the default org."""
        database = open_database(self._settings)
        end = time.monotonic() + _POSTGRES_START_S
        try:
            while not self._stop:
                try:
                    for migration in migrate(database):
                        log().info("migrated", version=migration.version, name=migration.name)
                    with database.transaction() as tx:
                        ensure_default_org(tx)
                    return
                except Unavailable as error:
                    self._require_alive(error)
                    if time.monotonic() > end:
                        raise
                    self._stop.wait(0.1)
        finally:
            database.close()

    def _require_alive(self, error: Unavailable) -> None:
        """Fail with the last log line if the embedded server died at its start: waiting longer would not help."""
        if self._children and not self._children[0].alive():
            lines = (self.data_dir / "logs" / "postgres.log").read_text(errors="replace").strip().splitlines()
            last = lines[-1] if lines else str(error)
            raise Unavailable(f"cannot start the embedded PostgreSQL: {last}", hint="see logs/postgres.log")

    def _start_role(self, address: RoleAddress) -> None:
        pump = LogPump(self.data_dir / "logs" / f"{address.name}.log")
        env = {
            **plain_env(),
            **settings_as_env(self._settings),
            "LAKERUNNER_DATA_DIR": str(self.data_dir),
            "LAKERUNNER_HTTP_PORT": str(address.port),
            "LAKERUNNER_LOG_FORMAT": "json",
            **self._no_drain(),
            SUPERVISOR_VARIABLE: str(os.getpid()),
        }
        child = Child(address.name, lambda: self._spawn(address.name, env, pump), self._backoff)
        child.start()
        self._children.append(child)
        self._pumps[address.name] = pump

    def _no_drain(self) -> dict[str, str]:
        """All roles stop together here, so nobody is left to take over: unless the settings say that others are."""
        if "drain_s" in self._settings.http.model_fields_set:
            return {}
        return {"LAKERUNNER_HTTP_DRAIN_S": "0", "LAKERUNNER_API_FINISH_S": "0"}

    def _spawn(self, role: str, env: dict[str, str], pump: LogPump) -> Process:
        """Start a role as a fork if the fork server is ready, else as a new process, which takes seconds longer."""
        output = pump.pipe()
        try:
            if self._fork_server is not None:
                # Only the start of everything waits for the imports.
                wait_s = 0.0 if self._started else _FORK_SERVER_START_S
                forked = self._fork_server.spawn(role, env, output, wait_s)
                if forked is not None:
                    return forked
            return subprocess.Popen(
                [sys.executable, "-m", self._module, role], env=env, stdin=subprocess.DEVNULL, stdout=output,
                # Ctrl-C at the terminal must reach the supervisor only, which then stops its children in order.
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(output)

    # -- running -----------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        started = time.monotonic()
        announced = warned = False
        next_poll = 0.0
        while not self._stop.wait(_TICK_S):
            self._watch_children()
            if announced or time.monotonic() < next_poll:
                continue
            next_poll = time.monotonic() + _READY_POLL_S
            waiting = [address.name for address in self.addresses if not is_ready(address)]
            if not waiting:
                announced = True
                log().info("all ready", seconds=round(time.monotonic() - started, 1))
                self._on_ready(self)
            elif not warned and time.monotonic() - started > self._settings.serve.ready_timeout_s:
                warned = True
                log().warning("not ready yet", roles=waiting, hint=f"see {self.data_dir / 'logs'}")

    def _watch_children(self) -> None:
        changed = False
        for child in self._children:
            pid = child.pid
            try:
                code = child.watch()
            except LakeError as error:
                log().error("cannot restart", child=child.name, error=str(error))
                continue
            if code is not None and child.name in self._pumps:
                log().warning("last error", child=child.name, error=self._pumps[child.name].last_error())
            changed = changed or child.pid != pid
        if changed:
            self._write_state()
        if self._fork_server is not None:
            reap_orphans([self._fork_server.pid, *(child.pid for child in self._children)])

    def _write_state(self) -> None:
        """Write the process ids and ports to serve.json, for `lakerunner status` and for operators."""
        ports = {address.name: address.port for address in self.addresses}
        document = {
            "supervisor": os.getpid(),
            "processes": [
                {
                    "name": child.name,
                    "pid": child.pid,
                    "port": ports.get(child.name),
                    "restarts": child.restarts,
                    "recycles": child.recycles,
                }
                for child in self._children
            ],
        }
        path = self.data_dir / "serve.json"
        part = path.with_suffix(".part")
        part.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
        part.replace(path)

    # -- stopping ----------------------------------------------------------------------------------------------

    def _on_signal(self, *_: object) -> None:
        now = time.monotonic()
        if not self._stop:
            self._stop_asked_at = now
        # A second Ctrl-C kills at once. A signal that follows immediately is the first one delivered twice: terminals
        # and `timeout` signal both the process group and its leader.
        self._stop_at_once = now - self._stop_asked_at > _SAME_SIGNAL_S
        self._stop.request()

    def _stop_all(self) -> None:
        """Stop in reverse order: producers before consumers, and the database last."""
        end = time.monotonic() + self._settings.serve.stop_timeout_s
        for child in reversed(self._children):
            started = time.monotonic()
            if child.name == POSTGRES:
                EmbeddedPostgres(self.data_dir).stop()
            else:
                child.terminate()
            while not child.wait(0.1):
                if self._stop_at_once or time.monotonic() > end:
                    log().warning("killed", child=child.name)
                    child.kill()
            log().info("stopped", child=child.name, seconds=round(time.monotonic() - started, 2))
        with suppress(FileNotFoundError):
            (self.data_dir / "serve.json").unlink()


def is_ready(address: RoleAddress) -> bool:
    """Return whether the role reports that it is ready."""
    try:
        with urllib.request.urlopen(f"{address.url}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def read_serve_state(data_dir: Path) -> dict[str, object] | None:
    """Return the processes of the `serve` that runs over this folder; None if there is none."""
    try:
        state: dict[str, object] = orjson.loads((data_dir / "serve.json").read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None
    return state
