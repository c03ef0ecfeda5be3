"""Ingest on a real Spark cluster stores every row once, also when executors, the master or all of Spark are lost."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest

from lakerunner.model.signal import Signal
from lakerunner.model.signals import SIGNALS
from tests.components.postgres import PostgresServer
from tests.components.process import RunningProcess, free_port
from tests.components.spark_cluster import SparkCluster, running_cluster
from tests.faults import clean_roles
from tests.faults.clean_roles import beside, until
from tests.faults.exactness import check_index, check_rows
from tests.pipeline.lake import Lake, otlp, settings_of

ROOT = Path(__file__).parents[3]
#: A secret that executors need: it must reach them, and be on no command line.
SECRET = "AWS_SECRET_ACCESS_KEY"
SECRET_VALUE = "very-secret-of-the-test"
LOST_S, FINISH_S = 6.0, 2.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Sender:
    """Puts objects of all signals into a lake, and knows what was sent."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self.sent: dict[Signal, list[bytes]] = {signal: [] for signal in SIGNALS}

    def send(self) -> None:
        for each, bodies in self.sent.items():
            bodies.append(otlp(each, 80, 10 * len(bodies)))
            self._lake.put(each, bodies[-1])

    def is_done(self) -> bool:
        return self._lake.states() == {"done": sum(map(len, self.sent.values()))}


def test_a_cluster_stores_every_row_and_comes_back(postgres_server: PostgresServer, tmp_path: Path) -> None:
    # One object an item, so that a job has many tasks and both executors get some.
    lake = Lake(settings_of(postgres_server.new_database(), tmp_path / "lake", bundle_objects=1))
    sender = Sender(lake)
    for _ in range(3):
        sender.send()
    try:
        with running_cluster(tmp_path) as cluster, beside(clean_roles.relay(lake), clean_roles.boxer(lake)):
            with Driver(lake, cluster, tmp_path) as driver:
                driver.until_done(sender)
                check_rows(lake, sender.sent)
                _no_secret_is_shown(driver, cluster)

                # An executor dies in mid task: its items run again.
                sender.send()
                cluster.executor_processes()[0].kill()
                driver.until_done(sender)

                # A master that knows nobody takes the executors away, and none would ever come back.
                cluster.restart_master()
                until(lambda: not cluster.executor_processes(), "the executors are taken away", 90)
                sender.send()
                driver.until_done(sender)
                until(driver.is_ready, "ready again")
                check_index(lake, sender.sent)

                # All of Spark is lost: the role says so, and nothing keeps it from stopping.
                cluster.kill()
                stored = {each: list(bodies) for each, bodies in sender.sent.items()}
                sender.send()
                until(lambda: not driver.is_ready(), "not ready without Spark", 90)
                assert "no executor" in driver.trouble() or "gone" in driver.trouble() or "ended" in driver.trouble()
                # The rest is slack for a busy machine.
                assert driver.terminate() < FINISH_S + 12.0 + 15.0
            check_rows(lake, stored)
    finally:
        lake.close()


def _no_secret_is_shown(driver: Driver, cluster: SparkCluster) -> None:
    family = [psutil.Process(driver.process.pid), *psutil.Process(driver.process.pid).children(recursive=True)]
    executors: list[psutil.Process] = []

    def seen() -> bool:
        executors[:] = cluster.executor_processes()
        return bool(executors)

    # One look found none in two runs on busy cores, although both were there by the logs of Spark.
    until(seen, "an executor stays while ingest is idle", 10)
    assert all(each.environ()[SECRET] == SECRET_VALUE for each in executors)
    shown = []
    for process in [*family, *executors]:
        # Some end meanwhile.
        with contextlib.suppress(psutil.Error):
            shown += process.cmdline()
    assert any("CoarseGrainedExecutorBackend" in each for each in shown)
    assert not any(SECRET_VALUE in each for each in shown)


class Driver:
    """The ingest role as it is run, with the cluster as its master."""

    def __init__(self, lake: Lake, cluster: SparkCluster, folder: Path) -> None:
        self._port = free_port()
        env = {
            **lake.env(),
            SECRET: SECRET_VALUE,
            "LAKERUNNER_HTTP_PORT": str(self._port),
            "LAKERUNNER_SPARK_MASTER": cluster.master,
            "LAKERUNNER_SPARK_OPTIONS": cluster.options,
            "LAKERUNNER_SPARK_LOST_S": str(LOST_S),
            "LAKERUNNER_PIPELINE_FINISH_S": str(FINISH_S),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        }
        argv = [sys.executable, "-m", "tests.pipeline.run_role", "ingest"]
        self.process = RunningProcess.start(argv, log_path=folder / "driver.log", env=env, cwd=ROOT)

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stop()

    def until_done(self, sender: Sender) -> None:
        until(lambda: sender.is_done() or self.process.returncode is not None, self.process.tail(), 180)
        assert self.process.returncode is None, self.process.tail()

    def trouble(self) -> str:
        """What it says of Spark."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/healthz", timeout=5) as answer:
            return str(json.loads(answer.read())["checks"]["spark"])

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/readyz", timeout=5):
                return True
        except urllib.error.URLError:
            return False

    def terminate(self) -> float:
        """Ask it to stop, and return how long that took."""
        began = time.monotonic()
        os.kill(self.process.pid, signal.SIGTERM)
        until(lambda: self.process.returncode is not None, "the role ends", 60)
        return time.monotonic() - began
