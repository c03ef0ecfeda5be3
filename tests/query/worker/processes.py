"""Query workers as processes over the bucket of a lake, for tests that kill, stop, slow and fill them."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lakerunner.query.fanout.addresses import noted
from lakerunner.runtime.settings.load import settings_as_env
from tests.components.process import RunningProcess, free_port
from tests.query.lake_of_series import LakeOfSeries

ROOT = Path(__file__).parents[3]
TOKEN = "shared by the test"
ARGV = [sys.executable, "-m", "tests.query.worker.worker_process"]


@dataclass(frozen=True)
class WorkerProcess:
    process: RunningProcess
    #: Where it answers Flight, and HTTP.
    address: str
    http_port: int

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def metric(self, name: str) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/metrics", timeout=5) as answer:
            found = re.search(rf"^{name} (\S+)$", answer.read().decode(), re.MULTILINE)
        assert found is not None, f"no metric {name}"
        return float(found[1])


def worker_env(lake: LakeOfSeries, folder: Path, http_port: int, **variables: object) -> dict[str, str]:
    """The variables of a worker with a data folder of its own."""
    return {
        **settings_as_env(lake.settings),
        "LAKERUNNER_DATA_DIR": str(folder),
        "LAKERUNNER_STORE_URL": lake.settings.store_url,
        "LAKERUNNER_HTTP_PORT": str(http_port),
        "LAKERUNNER_QUERY_WORKER_TOKEN": TOKEN,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        **{name: str(value) for name, value in variables.items()},
    }


@contextmanager
def worker_process(lake: LakeOfSeries, folder: Path, **variables: object) -> Iterator[WorkerProcess]:
    port = free_port()
    env = worker_env(lake, folder, port, **variables)
    with RunningProcess.start(ARGV, log_path=folder / "log", env=env, cwd=ROOT) as process:
        until(lambda: process.returncode is not None or bool(noted(folder)), 30, process.tail)
        assert process.returncode is None, process.tail()
        try:
            yield WorkerProcess(process, noted(folder)[0], port)
        finally:
            # One that is stopped would not hear that it should end.
            if process.returncode is None:
                os.kill(process.pid, signal.SIGCONT)


def until(condition: Callable[[], bool], timeout_s: float, told: Callable[[], str] = lambda: "") -> float:
    """Wait for it. The seconds that it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < timeout_s, f"not within {timeout_s:g} s\n{told()}"
        time.sleep(0.02)
    return time.monotonic() - began
