"""A measured server: its processes, its folder, and one persistent connection. Lakerunner is one."""

from __future__ import annotations

import http.client
import os
import shutil
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlencode

import psutil

from tests.components.process import RunningProcess, free_port

ROOT = Path(__file__).parents[2]
_READY_S = 180.0
#: Prometheus writes its head to disk as it stops.
_STOP_S = 90.0


class Refused(Exception):
    """A server did not answer with success."""


class Server(ABC):
    """A measured server. It can be stopped and restarted over its folder."""

    name: str
    #: Parameters that bypass the server's cache of answers.
    uncached: Sequence[tuple[str, str]] = ()
    #: Folders of caches that survive a restart.
    caches: Sequence[str] = ()

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = 0
        self._processes: list[RunningProcess] = []
        self._connection: http.client.HTTPConnection | None = None

    @abstractmethod
    def start(self) -> None:
        """Start the server and wait until it is ready."""

    def stop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        for process in reversed(self._processes):
            process.stop(_STOP_S)
        self._processes.clear()

    def forget(self) -> None:
        """Delete the caches of the stopped server."""
        for cache in self.caches:
            shutil.rmtree(self.folder / cache, ignore_errors=True)

    def send(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> http.client.HTTPResponse:
        """Send a request over the persistent connection, or over a new one if the server has closed it."""
        if self._connection is not None:
            try:
                self._connection.request(method, path, body, headers or {})
                return self._connection.getresponse()
            except (ConnectionError, http.client.HTTPException):
                self._connection.close()
        self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_READY_S)
        self._connection.request(method, path, body, headers or {})
        return self._connection.getresponse()

    def ask(self, path: str, fields: Sequence[tuple[str, str]]) -> bytes:
        """Return the whole answer. Queries are POST requests, as from Grafana; label values only support GET."""
        form = urlencode([*fields, *self.uncached])
        if path.endswith("/values"):
            response = self.send("GET", f"{path}?{form}")
        else:
            kind = {"Content-Type": "application/x-www-form-urlencoded"}
            response = self.send("POST", path, form.encode(), kind)
        body = response.read()
        if response.status // 100 != 2:
            raise Refused(f"{self.name} answers {path} {fields} with {response.status}: {body[:500].decode()}")
        return body

    def cpu_s(self) -> float:
        """Return user and system time of all processes of the server, to the microsecond."""
        return sum(_process_cpu_s(pid) for pid in self.pids())

    def pids(self) -> list[int]:
        return [pid for process in self._processes for pid in _tree(process.pid)]

    def run(self, argv: Sequence[str | Path], log: str, ready: str, port: int, env: dict[str, str]) -> None:
        process = RunningProcess.start(argv, log_path=self.folder / log, env=env, cwd=ROOT)
        self._processes.append(process)
        process.wait_for_port("127.0.0.1", port, _READY_S)
        end = time.monotonic() + _READY_S
        while not _answers(port, ready):
            if process.returncode is not None or time.monotonic() > end:
                raise Refused(f"{self.name} does not become ready\n{process.tail()}")
            time.sleep(0.05)


class Lake(Server):
    """`lakerunner query-worker` and `query-api` as processes, over an index that is already running."""

    name = "lakerunner"
    uncached = (("nocache", "1"),)
    caches = ("cache",)

    def __init__(self, folder: Path, index_pid: int, max_samples: int, **settings: str) -> None:
        """Further settings are variables without their prefix, in lower case."""
        super().__init__(folder)
        self._index_pid = index_pid
        self._max_samples = max_samples
        self._settings = {f"LAKERUNNER_{name.upper()}": value for name, value in settings.items()}

    def start(self) -> None:
        self.port = free_port()
        for role, port in (("query-worker", free_port()), ("query-api", self.port)):
            env = {
                "PYTHONPATH": str(ROOT / "src"),
                "LAKERUNNER_DATA_DIR": str(self.folder),
                "LAKERUNNER_HTTP_PORT": str(port),
                "LAKERUNNER_AUTH_REQUIRED": "false",
                "LAKERUNNER_LOG_LEVEL": "warning",
                "LAKERUNNER_API_MAX_SAMPLES": str(self._max_samples),
                **self._settings,
            }
            self.run([sys.executable, "-m", "lakerunner", role], f"{role}.log", "/readyz", port, env)

    def pids(self) -> list[int]:
        return [*super().pids(), *_tree(self._index_pid)]


def _answers(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _tree(pid: int) -> list[int]:
    try:
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except psutil.NoSuchProcess:
        return []


def _process_cpu_s(pid: int) -> float:
    """Read the CPU clock of another process (clock_getcpuclockid) in nanoseconds; /proc only counts 10 ms ticks."""
    try:
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        return 0.0


def env_without_lakerunner() -> None:
    """Remove the caller's own settings, which must not affect the measured processes."""
    for name in [name for name in os.environ if name.startswith("LAKERUNNER_") and name != "LAKERUNNER_TEST_PEERS"]:
        del os.environ[name]
