"""Queries answer the same before and after compaction, and other readers read what it writes."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from lakerunner.demo.produce import counted_batches
from lakerunner.model.signals import LOGS, METRICS, TRACES
from lakerunner.model.time import NS_PER_S
from lakerunner.query.lake import open_lake
from lakerunner.query.language import QueryOptions
from lakerunner.query.logql.language import LANGUAGE as LOGQL
from lakerunner.query.promql.language import LANGUAGE as PROMQL
from lakerunner.query.run import run
from lakerunner.query.series.times import QueryTimes
from tests.pipeline.compact.small_lake import compact_until_settled, ingest
from tests.pipeline.ingest.test_reading_without_us import EXAMPLES
from tests.pipeline.ingest.test_reading_without_us import run as run_example
from tests.pipeline.lake import ORG, Lake

START_NS = 1_767_225_600 * NS_PER_S
START_MS = START_NS // 1_000_000
#: Language, query.
QUERIES: tuple[tuple[Any, str], ...] = (
    (PROMQL, 'sum by (job) (rate({__name__=~".+_count"}[20s]))'),
    (PROMQL, 'count by (__name__) ({__name__=~".+"})'),
    (PROMQL, 'histogram_quantile(0.9, sum by (le) (rate({__name__=~".+_bucket"}[20s])))'),
    (LOGQL, 'sum by (service_name, detected_level) (count_over_time({service_name=~".+"}[10s]))'),
    (LOGQL, 'sum by (service_name) (bytes_over_time({service_name=~".+"} |= "o" [10s]))'),
)


def answers(lake: Lake) -> list[str]:
    opened = open_lake(lake.settings, lake.database)
    try:
        found = []
        for language, text in QUERIES:
            plan = language.compile(text, QueryTimes(START_MS, START_MS + 60_000, 5_000), QueryOptions())
            source = opened.query(ORG)
            source.prepare(plan.leaves)
            result = run(plan, source, lambda: None)
            assert source.stats.complete
            series = [(str(each.labels), list(map(str, each.values))) for each in result.value]
            assert series, text
            found.append(str(sorted(series)))
        return [
            *found,
            *(entries(opened, text) for text in ('{service_name=~".+"}', '{service_name=~".+"} |= "order"')),
        ]
    finally:
        opened.close()


def entries(opened: Any, text: str) -> str:
    plan = LOGQL.compile(text, QueryTimes(START_MS, START_MS + 60_000, 5_000), QueryOptions(limit=5_000))
    source = opened.query(ORG)
    source.prepare(plan.leaves)
    rows = pa.Table.from_batches(list(source.rows(plan))).to_pylist()
    assert rows
    return str(sorted(map(str, rows)))


@pytest.fixture
def filled(lake: Lake) -> Lake:
    for signal in (LOGS, METRICS, TRACES):
        for part in range(3):
            begin_ns = START_NS + part * 10 * NS_PER_S
            for batch in counted_batches(signal.name, part, begin_ns, begin_ns + 10 * NS_PER_S, 30.0):
                ingest(lake, lake.put(signal, batch.payload))
    return lake


def test_equal_lines_are_as_many_entries_as_before(lake: Lake) -> None:
    """Twice in one object they are one entry, as in Loki; in objects that were ingested apart they are two."""
    row = {"ts": "2026-01-01T00:00:01Z", "service": "s", "message": "again"}
    for number in range(3):
        rows = [row, row, {**row, "message": f"line {number}"}]
        ingest(lake, lake.put(LOGS, "\n".join(map(json.dumps, rows)).encode(), f"logs_{number}.json"))
    shown: list[Any] = []
    for _ in range(2):
        opened = open_lake(lake.settings, lake.database)
        try:
            found = entries(opened, '{service_name="s"}')
            plan = LOGQL.compile(
                'sum(count_over_time({service_name="s"}[1m]))', QueryTimes(START_MS + 60_000, START_MS + 60_000, 0),
                QueryOptions(),
            )  # fmt: skip
            counted = run(plan, opened.query(ORG), lambda: None).value
            shown.append((found, counted.values.tolist()))  # type: ignore[union-attr]
        finally:
            opened.close()
        compact_until_settled(lake, LOGS)
    (segment,) = lake.segments(LOGS)
    assert segment.row_count == 9
    assert shown[0] == shown[1]
    assert shown[0][1] == [6.0]


def test_answers_stay(filled: Lake) -> None:
    before = answers(filled)
    count = len(filled.segments(LOGS))
    assert count > 1
    for signal in (LOGS, METRICS, TRACES):
        assert compact_until_settled(filled, signal)
        assert len(filled.segments(signal)) == 1
    assert answers(filled) == before


def test_duckdb_reads_what_compaction_writes(filled: Lake) -> None:
    """The documented examples. Superseded files are deleted first, as the sweeper does after a while."""
    bucket = filled.settings.data.dir / "bucket"
    examples = [example for example in EXAMPLES if "import duckdb" in example][:3]
    before = [run_example(example, bucket) for example in examples]
    for signal in (LOGS, METRICS, TRACES):
        compact_until_settled(filled, signal)
    live = {
        filled.path(segment, table)
        for signal in (LOGS, METRICS, TRACES)
        for segment in filled.segments(signal)
        for table in range(len(signal.tables))
    }
    for path in bucket.glob("db/**/*.parquet"):
        if path not in live:
            path.unlink()
    after = [run_example(example, bucket) for example in examples]
    assert after[0]["errors"] == before[0]["errors"]
    assert after[1]["spans"]
    assert after[2]["samples"]
