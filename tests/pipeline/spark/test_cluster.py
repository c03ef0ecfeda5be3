"""Ingest on a real Spark cluster stores the same rows as ingest on one machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakerunner.model.signals import SIGNALS
from tests.components.postgres import PostgresServer
from tests.components.process import RunningProcess
from tests.components.spark_cluster import running_cluster
from tests.faults import clean_roles
from tests.faults.clean_roles import beside, until
from tests.faults.exactness import check_index, check_rows
from tests.pipeline.lake import Lake, identities, otlp, runner_on, settings_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[3]
SENT = {signal: [otlp(signal, 80, seed) for seed in range(4)] for signal in SIGNALS}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def filled(url: str, folder: Path) -> Lake:
    # One object an item, so that a job has many tasks and both executors get some.
    lake = Lake(settings_of(url, folder, bundle_objects=1))
    for signal, bodies in SENT.items():
        for body in bodies:
            lake.put(signal, body)
    return lake


def is_done(lake: Lake) -> bool:
    return lake.states() == {"done": sum(map(len, SENT.values()))}


def test_a_cluster_stores_what_one_machine_stores(
    postgres_server: PostgresServer, tmp_path: Path, spark: SparkSession
) -> None:
    here = filled(postgres_server.new_database(), tmp_path / "here")
    there = filled(postgres_server.new_database(), tmp_path / "there")
    try:
        with beside(clean_roles.relay(here), clean_roles.boxer(here), clean_roles.ingest(here, runner_on(spark, here))):
            until(lambda: is_done(here), "local mode")
        with running_cluster(tmp_path) as cluster:
            with (
                beside(clean_roles.relay(there), clean_roles.boxer(there)),
                driver(there, cluster.master, cluster.options, tmp_path) as process,
            ):
                until(lambda: is_done(there) or process.returncode is not None, "the cluster", 200)
                assert process.returncode is None, process.tail()
            assert len(cluster.executors) == 2, "both workers must have had an executor"
        for lake in (here, there):
            check_rows(lake, SENT)
            check_index(lake, SENT)
        for signal in SIGNALS:
            assert identities(there.rows(signal), signal) == identities(here.rows(signal), signal)
    finally:
        here.close()
        there.close()


def driver(lake: Lake, master: str, options: str, folder: Path) -> RunningProcess:
    """The ingest role as it is run, with the cluster as its master."""
    env = {
        **lake.env(),
        "LAKERUNNER_SPARK_MASTER": master,
        "LAKERUNNER_SPARK_OPTIONS": options,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    }
    argv = [sys.executable, "-m", "tests.pipeline.run_role", "ingest"]
    return RunningProcess.start(argv, log_path=folder / "driver.log", env=env, cwd=ROOT)
