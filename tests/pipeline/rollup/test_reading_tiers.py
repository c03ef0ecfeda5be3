"""What docs/formats/reading.md shows of tiers is run here, on segments that the rollup wrote on Spark."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from lakerunner.pipeline.rollup.task import run_rollup
from lakerunner.pipeline.spark.job import run_tasks
from tests.pipeline.ingest.test_reading_without_us import EXAMPLES, run
from tests.pipeline.lake import Lake
from tests.pipeline.rollup.naive import Sample
from tests.pipeline.rollup.tier_lake import DAY_MS, HOUR_MS, add, roll_up_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_duckdb_and_spark_read_tiers(lake: Lake, spark: SparkSession) -> None:
    step_ms = 60_000
    values = {DAY_MS + step_ms * (n + 1): float((n * 37) % 101 + 1) for n in range(120)}
    add(lake, [Sample(1, time, value) for time, value in values.items()])
    roll_up_all(lake, partial(run_tasks, spark, "rollup", run_rollup))
    bucket = lake.settings.data.dir / "bucket"
    by_duckdb, by_spark = (example for example in EXAMPLES if "rollup-" in example and "filename" not in example)
    found = run(by_duckdb, bucket)["hours"]
    for hour, row in enumerate(found):
        inside = [v for t, v in values.items() if hour * HOUR_MS < t - DAY_MS <= (hour + 1) * HOUR_MS]
        assert row[:2] == ("metric_0", 1)
        assert row[3:5] == (pytest.approx(sum(inside) / len(inside)), max(inside))
    assert len(found) == 2
    median = sorted(values.values())[59]
    assert run(by_spark, bucket, spark)["medians"] == {"metric_0": pytest.approx(median, rel=0.01)}
