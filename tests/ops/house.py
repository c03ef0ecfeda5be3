"""A whole house for a test: `serve` as a process of its own, asked over HTTP and killed at will."""

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
from lakerunner.ops.supervisor import Placed, is_ready, read_note

ROOT = Path(__file__).parents[2]


class House:
    """One data folder and the `serve` over it."""

    def __init__(self, data_dir: Path, module: str = "tests.ops.exercise", **settings: str) -> None:
        self.data_dir = data_dir
        self.module = module
        self.url = EmbeddedPostgres(data_dir).url
        # Ports after the first must be free too; the room after an ephemeral one nearly always is.
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

    def start(self) -> House:
        with self._own_log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", self.module, "serve"], env=self.env, cwd=ROOT, stdout=log, stderr=log
            )
        return self

    @property
    def _own_log(self) -> Path:
        return self.data_dir.with_name(f"{self.data_dir.name}-serve.log")

    def note(self) -> dict[str, Any]:
        note = read_note(self.data_dir)
        return note if note is not None else {"processes": []}

    def pids(self) -> dict[str, int]:
        return {process["name"]: process["pid"] for process in self.note()["processes"]}

    def places(self) -> list[Placed]:
        return [Placed(p["name"], "127.0.0.1", p["port"]) for p in self.note()["processes"] if p["port"]]

    def await_all_ready(self, timeout_s: float = 60.0) -> None:
        end = time.monotonic() + timeout_s
        while True:
            places = self.places()
            if places and all(is_ready(place) for place in places):
                return
            assert self.process is not None and self.process.poll() is None, f"serve has ended: {self.last_words()}"
            assert time.monotonic() < end, f"not all ready in time: {self.last_words()}"
            time.sleep(0.1)

    def last_words(self) -> str:
        logs = [self._own_log, *sorted((self.data_dir / "logs").glob("*.log"))]
        return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-400:]}" for path in logs)

    def terminate(self, timeout_s: float = 40.0) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)

    def database(self) -> Database:
        return Database(self.url)

    def close(self) -> None:
        """Whatever happened in the test, leave nothing running."""
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
    """Those that are still processes, zombies left out."""
    alive = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            continue
        if state != "Z":
            alive.append(pid)
    return alive
