"""`lakerunner rules backfill` from announcement to end: on a real Spark, few tasks at a time, with progress shown."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakerunner.bus import topics
from lakerunner.index.orgs import create_org
from lakerunner.model.signals import LOGS
from lakerunner.model.time import TimeRange
from lakerunner.pipeline.backfill.request import left, wanted_versions
from lakerunner.pipeline.backfill.stage import BACKFILL, BackfillRunner
from lakerunner.pipeline.backfill.task import BackfillResult, BackfillTask, run_task
from lakerunner.pipeline.boxer import Boxer
from lakerunner.pipeline.spark.job import run_tasks
from lakerunner.pipeline.worker import Worker
from lakerunner.runtime.stop import Stop
from tests.faults.clean_roles import beside, relay
from tests.pipeline.derive.test_rules_in_lake import MATCH, applied, equal, ingest, logs
from tests.pipeline.lake import ORG, Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEGMENTS = 5
ALWAYS = TimeRange(0, 1 << 62)


@pytest.mark.slow
def test_a_backfill_runs_on_spark_with_its_share_and_says_how_far_it_is(lake: Lake, spark: SparkSession) -> None:
    with lake.database.transaction() as tx:
        create_org(tx, "acme", ORG)
    for number in range(SEGMENTS):
        ingest(lake, logs([(number + 1, "error ms=3", "eu"), (number + 30, "ok", "us")]))
    applied(lake)
    sizes: list[int] = []

    def on_spark(tasks: Sequence[BackfillTask]) -> list[BackfillResult]:
        sizes.append(len(tasks))
        return run_tasks(spark, "backfill", run_task, tasks)

    def boxer(stop: Stop) -> None:
        with lake.consumer("boxer-backfill", topics.made(LOGS, "backfill").name) as consumer:
            Boxer(BACKFILL, lake.database, consumer, lake.settings.pipeline).run(stop)

    def worker(stop: Stop) -> None:
        runner = BackfillRunner(lake.settings, lake.database, on_spark)
        with lake.consumer("backfill", topics.work(LOGS, "backfill").name) as consumer:
            Worker(BACKFILL, lake.database, consumer, lake.settings.pipeline, runner, 5).run(stop)

    with beside(relay(lake), boxer, worker):
        shown = _on_a_terminal(lake)
    assert f"{SEGMENTS} segments to evaluate, 0 left" in shown
    assert "[" in shown and f"of {2 * SEGMENTS} rows" in shown, "no progress was shown"
    assert sum(sizes) == SEGMENTS and max(sizes) <= lake.settings.derive.backfill_tasks == 2
    assert left(lake.database, ORG, wanted_versions(lake.database, ORG, None), ALWAYS).segments == 0
    assert equal(lake, "errors_total", MATCH, "region") == SEGMENTS
    # Again: nothing is left to do.
    assert "0 segments to evaluate" in _on_a_terminal(lake)


def _on_a_terminal(lake: Lake) -> str:
    """What the verb shows on a terminal."""
    command = [sys.executable, "-m", "lakerunner", "rules", "backfill", "--org", "acme", "--from", "0"]
    env = {**os.environ, **lake.env(), "PYTHONPATH": str(Path(__file__).parents[3] / "src")}
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, env=env, stdout=theirs, stderr=theirs, stdin=theirs) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:
                break
            if not piece:
                break
            shown += piece
        assert process.wait(60) == 0, shown.decode()
    os.close(ours)
    return shown.decode()
