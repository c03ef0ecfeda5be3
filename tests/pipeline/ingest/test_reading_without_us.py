"""The lake is open: what docs/formats/reading.md shows is run here, on segments that ingest wrote."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from lakerunner.demo.produce import counted_batches
from lakerunner.model.ids import fresh_id
from lakerunner.model.raw_object import RawObject
from lakerunner.model.signals import SIGNALS
from lakerunner.model.time import NS_PER_S
from lakerunner.pipeline.ingest.task import IngestTask, run_task
from lakerunner.store.bucket import version_of
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[3] / "docs" / "formats" / "reading.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
START_NS = 1_767_225_600 * NS_PER_S


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of half a minute of all signals."""
    folder = tmp_path_factory.mktemp("bucket")
    config = StoreConfig(url=folder.as_uri())
    store = open_store(config)
    for signal in SIGNALS:
        for batch in counted_batches(signal.name, 0, START_NS, START_NS + 30 * NS_PER_S, 100.0):
            key = f"otel-raw/{signal}_{fresh_id()}.binpb"
            meta = store.put(key, batch.payload)
            raw = RawObject(fresh_id(), "edge", signal.name, config.url, key, version_of(meta), meta.size_bytes)
            task = IngestTask(fresh_id(), fresh_id(), "edge", signal.name, (raw,), {config.url: config}, config)
            result = run_task(task)
            assert result.error is None
            assert sum(segment.row_count for segment in result.segments) >= batch.records
    return folder


def run(example: str, bucket: Path, spark: SparkSession | None = None) -> dict[str, Any]:
    spans = next(iter(bucket.glob("db/*/*/*/traces/*/tbl_*.parquet")))
    trace_id = pq.read_table(spans, columns=["trace_id"], partitioning=None)["trace_id"][0].as_py()
    names: dict[str, Any] = {"BUCKET": str(bucket), "TRACE_ID": trace_id, "SPARK": spark}
    exec(example, names)  # the page is ours
    return names


def test_the_page_has_examples_of_both() -> None:
    assert sum("import duckdb" in example for example in EXAMPLES) == 3
    assert sum("SPARK.read" in example for example in EXAMPLES) == 1


@pytest.mark.parametrize("nth", range(3))
def test_duckdb(bucket: Path, nth: int) -> None:
    example = [example for example in EXAMPLES if "import duckdb" in example][nth]
    names = run(example, bucket)
    answers = [names[name] for name in ("errors", "spans", "samples") if name in names]
    assert len(answers) == 1
    assert answers[0]


def test_spark_counts_the_same(bucket: Path, spark: SparkSession) -> None:
    example = next(example for example in EXAMPLES if "SPARK.read" in example)
    by_spark = {row["service_name"]: row["count"] for row in run(example, bucket, spark)["errors"]}
    by_duckdb = dict(run(EXAMPLES[0], bucket)["errors"])
    assert by_spark == by_duckdb
    assert by_spark
