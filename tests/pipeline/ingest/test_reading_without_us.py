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
from lakerunner.model.signals import LOGS, SIGNALS
from lakerunner.model.time import NS_PER_S
from lakerunner.pipeline.ingest.stage import INGEST, IngestRunner
from lakerunner.pipeline.ingest.task import IngestTask, run_task
from lakerunner.pipeline.worker import run_batch
from lakerunner.store.bucket import version_of
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store
from tests.pipeline.lake import ORG, Lake, loaded

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
            raw = RawObject(ORG, "edge", signal.name, config.url, key, version_of(meta), meta.size_bytes)
            task = IngestTask(fresh_id(), ORG, "edge", signal.name, (raw,), {config.url: config}, config)
            result = run_task(task)
            assert result.error is None
            assert sum(segment.row_count for segment in result.segments) >= batch.records
    return folder


def run(example: str, bucket: Path, spark: SparkSession | None = None) -> dict[str, Any]:
    names: dict[str, Any] = {"BUCKET": str(bucket), "ORG": ORG, "SPARK": spark}
    if "TRACE_ID" in example:
        spans = next(iter(bucket.glob("db/*/*/*/traces/*/tbl_*.parquet")))
        names["TRACE_ID"] = pq.read_table(spans, columns=["trace_id"], partitioning=None)["trace_id"][0].as_py()
    exec(example, names)  # the page is ours
    return names


def test_the_page_has_examples_of_both() -> None:
    assert sum("import duckdb" in example for example in EXAMPLES) == 5
    assert sum("SPARK.read" in example for example in EXAMPLES) == 2


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


def test_attributes_of_several_types_can_be_read_together(lake: Lake, spark: SparkSession) -> None:
    """Whole numbers, fractions, texts and integers that no double holds, each in a segment of its own."""
    values = ["1", "1.5", '"x"', "true", str(2**53 + 1), "2"]
    runner = IngestRunner(lake.settings, lake.database, lambda tasks: [run_task(task) for task in tasks])
    for number, value in enumerate(values):
        line = f'{{"ts": "2026-11-15T10:00:00Z", "level": "error", "service": "cart", "n": {value}}}'
        raw = lake.put(LOGS, line.encode(), f"logs_{number}.json")
        item = loaded(lake, raw)
        assert run_batch(INGEST, lake.database, runner, [item], {item.item_id: 1}) == {item.item_id: None}
    bucket = lake.settings.data.dir / "bucket"
    assert len(lake.segments(LOGS)) == len(values)
    by_duckdb = [run(example, bucket) for example in EXAMPLES if "import duckdb" in example and "logs" in example]
    assert by_duckdb[0]["errors"] == [("cart", 6)]
    assert by_duckdb[1]["values"] == [(n, 1) for n in ("1.0", "1.5", "2.0", "9007199254740993", "true", "x")]
    names = run(next(example for example in EXAMPLES if "SPARK.read" in example), bucket, spark)
    assert [tuple(row) for row in names["errors"]] == [("cart", 6)]
    assert [row["attr_n"] for row in names["logs"].orderBy("attr_n").collect()] == [None, None, None, 1.0, 1.5, 2.0]
