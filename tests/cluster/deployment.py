"""Lakerunner on two hosts over those servers, set up by the commands of docs/deploy.md."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from lakerunner.index.database import Database
from lakerunner.ops.supervisor import RoleAddress, is_ready, read_serve_state
from lakerunner.runtime.surroundings import MARK
from tests.cluster.page import Page, read_page
from tests.cluster.servers import BUCKET, Servers
from tests.components.moto import CREDENTIALS, REGION
from tests.components.process import RunningProcess

ROOT = Path(__file__).parents[2]
HOSTS = 2
ORGS = ("acme", "globex")
_READY_S = 600.0


class Host:
    """One `lakerunner serve`, with one of every role."""

    def __init__(self, deployment: Deployment, number: int) -> None:
        self._deployment = deployment
        self.number = number
        self.data_dir = deployment.folder / f"host-{number}"
        self.data_dir.mkdir(parents=True, exist_ok=True)
        # Enough free ports in a row for every role, and one more for the query worker.
        self.port = _ports_in_a_row(40)
        self.worker_port = self.port + 39
        self.process: RunningProcess | None = None

    @property
    def api(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        settings = self._deployment.settings_file(self)
        values = {"DATA": str(self.data_dir), "PORT": str(self.port), "WORKER_PORT": str(self.worker_port)}
        halves = [part.partition("=") for part in self._deployment.page.serve]
        verb = [name + equals + values.get(value, value) for name, equals, value in halves]
        argv = [*self._deployment.command, *verb, "--config", str(settings)]
        env = self._deployment.environment(self)
        self.process = RunningProcess.start(argv, log_path=self.data_dir / "serve.log", env=env, cwd=self.data_dir)

    def processes(self) -> dict[str, dict[str, Any]]:
        state = read_serve_state(self.data_dir)
        return {} if state is None else {each["name"]: each for each in state["processes"]}  # type: ignore[attr-defined]

    def waiting(self) -> list[str]:
        """The roles that are not ready."""
        found = self.processes()
        places = [RoleAddress(name, "127.0.0.1", each["port"]) for name, each in found.items()]
        return [place.name for place in places if not is_ready(place)] if found else ["serve"]

    def kill(self, role: str, number: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.processes()[role]["pid"], number)

    def log_tails(self) -> str:
        """The end of what each role logged."""
        logs = sorted((self.data_dir / "logs").glob("*.log"))
        return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-600:]}" for path in logs)

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop(timeout_s=40.0)
            self.process = None


class Deployment:
    """Usable as a context manager: leaving it ends every process."""

    def __init__(
        self, folder: Path, hosts: int = HOSTS, with_spark: bool = True, **settings: dict[str, object]
    ) -> None:
        self.folder = folder.resolve()
        self.page: Page = read_page()
        self.servers = Servers(self.folder / "servers", hosts, with_spark)
        self._changes = settings
        self._token = secrets.token_hex(16)
        self.as_user, self._python = _ordinary_user()
        self.command = [*self.as_user, self._python, "-m", "lakerunner"]
        self.hosts: list[Host] = []
        self._host_count = hosts
        #: By org, the secret of a key for queries.
        self.keys: dict[str, str] = {}
        self.seconds_to_ready = 0.0

    def __enter__(self) -> Deployment:
        began = time.monotonic()
        try:
            self.servers.start()
            self.hosts = [Host(self, number) for number in range(self._host_count)]
            self._hand_over()
            for command in self.page.commands:
                if command[0] not in ("doctor", "query"):
                    self.run(*command)
            for host in self.hosts:
                host.start()
            self.await_ready()
        except BaseException:
            self.close()
            raise
        self.seconds_to_ready = time.monotonic() - began
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        # At once: each takes some seconds.
        with ThreadPoolExecutor(max(len(self.hosts), 1)) as pool:
            list(pool.map(Host.stop, self.hosts))
        self.servers.close()

    def run(self, *command: str, **variables: str) -> str:
        """Type a command of the page, as its user; return what it prints."""
        is_key = command[:2] == ("key", "create")
        argv = [*self.command, *command, "--config", str(self.settings_file())]
        done = subprocess.run(
            [*argv, "-o", "json"] if is_key else argv,
            env={**os.environ, **self.environment(), **variables},
            cwd=self.hosts[0].data_dir,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise AssertionError(f"lakerunner {' '.join(command)}: {done.stdout}{done.stderr}")
        if is_key:
            self.keys[command[2].removesuffix("-grafana")] = json.loads(done.stdout)["secret"]
        return done.stdout

    def settings_file(self, host: Host | None = None) -> Path:
        """The page's settings, with the addresses of this machine in place of the page's."""
        number = host.number if host else 0
        settings = yaml.safe_load(self.page.settings)
        store = f"http://127.0.0.1:{self.servers.store_proxies[number].port}"
        settings["bus"]["brokers"] = self.servers.brokers[number]
        queue = f"http://127.0.0.1:{self.servers.queue_proxies[number].port}"
        settings["store"]["endpoint"], settings["intake"]["sqs_endpoint"] = store, queue
        settings["intake"]["sqs_url"] = f"{queue}/123456789012/{BUCKET}"
        if self.servers.with_spark:
            settings["spark"] |= {"master": self.servers.spark.master, "options": self.servers.spark.options}
        else:
            settings["spark"]["master"] = "local[1]"
        settings["query"]["workers"] = ",".join(f"127.0.0.1:{each.worker_port}" for each in self.hosts)
        for section, values in self._changes.items():
            settings.setdefault(section, {}).update(values)
        path = self.folder / f"lakerunner-{number}.yaml"
        path.write_text(yaml.safe_dump(settings))
        path.chmod(0o644)
        return path

    def environment(self, host: Host | None = None) -> dict[str, str]:
        number = host.number if host else 0
        return {
            **CREDENTIALS,
            "AWS_DEFAULT_REGION": REGION,
            # A Python of the system, if ordinary users cannot run ours, finds our packages.
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), sysconfig.get_path("purelib")]),
            # A Spark session of this process has left its own here, which the ordinary user may not run.
            "PYSPARK_PYTHON": self._python,
            "PYSPARK_DRIVER_PYTHON": self._python,
            "LAKERUNNER_INDEX_URL": self.servers.postgres.url_at(self.servers.index_proxies[number].port),
            "LAKERUNNER_QUERY_WORKER_TOKEN": self._token,
            "LAKERUNNER_DATA_DIR": str(self.hosts[number].data_dir),
            # A driver that is killed leaves an empty folder behind.
            "TMPDIR": str(self.hosts[number].data_dir),
        }

    def await_ready(self, timeout_s: float = _READY_S) -> None:
        end = time.monotonic() + timeout_s
        while waiting := {f"host {host.number}": names for host in self.hosts if (names := host.waiting())}:
            assert time.monotonic() < end, f"not ready after {timeout_s:g} s: {waiting}; see {self.folder}"
            for host in self.hosts:
                assert host.process is not None and host.process.returncode is None, _tail(host.process)
            time.sleep(0.5)

    def database(self) -> Database:
        """Reached directly, whatever happens to the proxies."""
        return Database(self.servers.postgres.admin_url.replace("/postgres?", "/lakerunner?"))

    def _hand_over(self) -> None:
        """Let the ordinary user own the hosts' folders, and nothing else."""
        for path in (self.folder, *self.folder.parents):
            if self.as_user and not path.stat().st_mode & 0o001:
                raise AssertionError(f"{path} must be open to ordinary users: choose another folder")
        if self.as_user:
            user = pwd.getpwnam("nobody")
            for host in self.hosts:
                os.chown(host.data_dir, user.pw_uid, user.pw_gid)
            # What tests compiled is private to root; compiling all of it again takes minutes.
            for folder in (ROOT / "src").rglob("__pycache__"):
                folder.chmod(0o755)
                for kernel in (*folder.glob("*.nb[ic]"), *folder.glob(MARK)):
                    kernel.chmod(0o644)


def _tail(process: RunningProcess | None) -> str:
    return process.tail() if process is not None else "not started"


def _ordinary_user() -> tuple[list[str], str]:
    """What runs a command as an ordinary user, if this is root; and a Python that this user can run."""
    if os.geteuid() != 0:
        return [], sys.executable
    user = pwd.getpwnam("nobody")
    setpriv = shutil.which("setpriv")
    assert setpriv, "setpriv (util-linux) is needed to run roles as an ordinary user"
    become = [setpriv, f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--inh-caps=-all", "--"]
    for python in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        # Also as a child of itself: where it was installed may be closed to others.
        again = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import json'], check=True)"
        if subprocess.run([*become, python, "-c", again], capture_output=True).returncode == 0:
            return become, python
    sys.stderr.write(f"roles run as root: {sys.executable} is not open to ordinary users\n")
    return [], sys.executable


def _ports_in_a_row(count: int) -> int:
    """The first of so many ports that are free now, below those that the system gives to clients."""
    for _ in range(100):
        first = random.randrange(20_000, 32_000)
        with contextlib.suppress(OSError):
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            return first
    raise AssertionError("no free ports in a row")
