"""`lakerunner serve` as a process that a test starts, queries over HTTP and kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from lakerunner.index.database import Database
from lakerunner.index.embedded import EmbeddedPostgres
from lakerunner.ops.supervisor import RoleAddress, is_ready, read_serve_state

ROOT = Path(__file__).parents[2]


class ServeProcess:
    """A data folder and the `serve` process over it."""

    def __init__(self, data_dir: Path, module: str = "tests.ops.exercise", **settings: str) -> None:
        self.data_dir = data_dir
        self.module = module
        self.url = EmbeddedPostgres(data_dir).url
        # Port 0: every role gets a free port.
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("LAKERUNNER_")},
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            "LAKERUNNER_DATA_DIR": str(data_dir),
            "LAKERUNNER_HTTP_PORT": "0",
            "LAKERUNNER_SERVE_RESTART_BASE_S": "0.2",
            "LAKERUNNER_SERVE_RESTART_MAX_S": "1",
            **settings,
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> ServeProcess:
        with self._own_log.open("ab") as log:
            self.process = subprocess.Popen(self.command(*options), env=self.env, cwd=ROOT, stdout=log, stderr=log)
        return self

    def command(self, *options: str) -> list[str]:
        return [sys.executable, "-m", self.module, "serve", *options]

    @property
    def _own_log(self) -> Path:
        return self.data_dir.with_name(f"{self.data_dir.name}-serve.log")

    def state(self) -> dict[str, Any]:
        state = read_serve_state(self.data_dir)
        return state if state is not None else {"processes": []}

    def pids(self) -> dict[str, int]:
        return {process["name"]: process["pid"] for process in self.state()["processes"]}

    def addresses(self) -> list[RoleAddress]:
        return [RoleAddress(p["name"], "127.0.0.1", p["port"]) for p in self.state()["processes"] if p["port"]]

    def await_all_ready(self, timeout_s: float = 60.0) -> None:
        end = time.monotonic() + timeout_s
        while True:
            addresses = self.addresses()
            if addresses and all(is_ready(address) for address in addresses):
                return
            assert self.process is not None and self.process.poll() is None, f"serve has ended: {self.log_tails()}"
            assert time.monotonic() < end, f"not all ready in time: {self.log_tails()}"
            time.sleep(0.1)

    def log_tails(self) -> str:
        logs = [self._own_log, *sorted((self.data_dir / "logs").glob("*.log"))]
        return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-400:]}" for path in logs)

    def terminate(self, timeout_s: float = 40.0) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)

    def database(self) -> Database:
        return Database(self.url)

    def close(self) -> None:
        """Kill everything that still runs, whatever happened in the test."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pid in self.pids().values():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        EmbeddedPostgres(self.data_dir).stop()


def running(pids: list[int]) -> list[int]:
    """Return the pids that still run, without zombies."""
    alive = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            continue
        if state != "Z":
            alive.append(pid)
    return alive
