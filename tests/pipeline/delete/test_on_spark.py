"""Deletions as Spark tasks: what travels to executors and back survives the journey."""

import uuid
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lakerunner.index.commit import Outcome
from lakerunner.model.deletion import DeletionState
from lakerunner.pipeline.delete.task import run_task
from lakerunner.pipeline.spark.job import run_tasks
from tests.pipeline.delete import deleting
from tests.query.lake_of_logs import HOUR_NS, write_logs
from tests.query.lake_of_series import lake_of_series

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_segments_are_rewritten_by_executors(spark: "SparkSession", tmp_path: Path, database_url: str) -> None:
    with lake_of_series(tmp_path, database_url) as lake:
        org_id = uuid.uuid4()
        write_logs(lake, org_id)
        deletion_id = deleting.request(lake.database, org_id, "logs", '{service_name="s1"}', 0, HOUR_NS)
        tasks = partial(run_tasks, spark, "delete", run_task)
        assert deleting.work_off(lake.settings, lake.database, tasks) == [Outcome.COMMITTED]
        done = deleting.found(lake.database, org_id, deletion_id)
        assert (done.state, done.rows_deleted) == (DeletionState.DONE, 20)
