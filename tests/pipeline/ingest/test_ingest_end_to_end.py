"""Objects in, segments out, through the real boxer, the real Spark session, index, bus and bucket."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakerunner.bus import topics
from lakerunner.index.commit import Outcome
from lakerunner.model.signal import Signal
from lakerunner.model.signals import LOGS, METRICS, SIGNALS, TRACES
from lakerunner.pipeline.boxer import Boxer
from lakerunner.pipeline.ingest.stage import INGEST, IngestRunner
from lakerunner.pipeline.items import load_items
from lakerunner.pipeline.worker import Worker, run_batch
from lakerunner.runtime.stop import Stop
from tests.pipeline.lake import OBJECT_TOPICS, ORG, WORK_TOPICS, Lake, identities, otlp, runner_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Drain = Callable[[], None]


@pytest.fixture
def runner(lake: Lake, spark: SparkSession) -> IngestRunner:
    return runner_on(spark, lake)


def box(lake: Lake, until: Callable[[], bool], timeout_s: float = 20.0) -> None:
    with lake.consumer("boxer-ingest", *OBJECT_TOPICS) as consumer:
        boxer = Boxer(INGEST, lake.database, consumer, lake.settings.pipeline)
        end = time.monotonic() + timeout_s
        while not until():
            assert time.monotonic() < end, lake.states()
            boxer.step()
    lake.relay()


def ingest(lake: Lake, runner: IngestRunner, until: Callable[[], bool], timeout_s: float = 60.0) -> None:
    stop = Stop()
    with lake.consumer("ingest", *WORK_TOPICS) as consumer:
        worker = Worker(INGEST, lake.database, consumer, lake.settings.pipeline, runner, 3)
        end = time.monotonic() + timeout_s

        def look(*_: object) -> None:
            assert time.monotonic() < end, lake.states()
            if until():
                stop.request()

        poll = consumer.poll
        consumer.poll = lambda *args: (look(), poll(*args))[1]
        worker.run(stop)


def nothing_waits(lake: Lake) -> bool:
    return not {"seen", "bundled"} & lake.states().keys()


def all_bundled(lake: Lake) -> bool:
    return "seen" not in lake.states()


def through(lake: Lake, runner: IngestRunner) -> None:
    box(lake, lambda: all_bundled(lake))
    ingest(lake, runner, lambda: nothing_waits(lake))


@pytest.mark.parametrize("signal", SIGNALS, ids=str)
def test_every_row_arrives_once_and_in_order(signal: Signal, lake: Lake, runner: IngestRunner) -> None:
    bodies = [otlp(signal, 200, seed) for seed in (1, 2, 3)]
    for number, body in enumerate(bodies):
        lake.put(signal, body, f"{signal}_{number}.binpb{'.gz' if number else ''}")
    through(lake, runner)
    assert lake.states() == {"done": 3}
    sent = pa.concat_tables(
        [lake.read(signal, body).tables[signal.rows.suffix] for body in bodies], promote_options="permissive"
    )
    stored = lake.rows(signal)
    assert identities(stored, signal) == identities(sent, signal)
    assert lake.ledger_rows(signal) == lake.row_count(signal) == sent.num_rows
    for segment in lake.segments(signal):
        table = pq.read_table(lake.path(segment), partitioning=None)
        assert table.equals(table.sort_by([(name, "ascending") for name in signal.rows.sort_key]))
        assert segment.row_count == table.num_rows
        assert segment.size_bytes == sum(lake.path(segment, n).stat().st_size for n in range(len(signal.tables)))


def test_series_of_a_segment_are_those_of_its_samples(lake: Lake, runner: IngestRunner) -> None:
    for seed in (1, 2):
        lake.put(METRICS, otlp(METRICS, 120, seed))
    through(lake, runner)
    for segment in lake.segments(METRICS):
        samples = pq.read_table(lake.path(segment), partitioning=None)
        series = pq.read_table(lake.path(segment, 1), partitioning=None)
        tids = series.column("tid").to_pylist()
        assert len(tids) == len(set(tids))
        assert set(tids) == set(samples.column("tid").to_pylist())


def test_segments_are_announced_to_the_next_stages(lake: Lake, runner: IngestRunner) -> None:
    lake.put(LOGS, otlp(LOGS, 20))
    lake.put(METRICS, otlp(METRICS, 20))
    through(lake, runner)
    lake.relay()
    assert lake.topic(topics.made(LOGS, "compact").name) == 1
    assert lake.topic(topics.made(METRICS, "compact").name) == 1
    assert lake.topic(topics.made(METRICS, "rollup").name) == 1


def test_duckdb_and_spark_read_the_segments_without_us(lake: Lake, runner: IngestRunner, spark: SparkSession) -> None:
    for signal in SIGNALS:
        lake.put(signal, otlp(signal, 100))
    through(lake, runner)
    for signal in SIGNALS:
        files = [str(lake.path(segment)) for segment in lake.segments(signal)]
        counted = lake.row_count(signal)
        assert duckdb.connect().sql(f"SELECT count(*) FROM (SELECT * FROM read_parquet({files}))").fetchall() == [
            (counted,)
        ]
        frame = spark.read.parquet(*files)
        assert len(frame.collect()) == counted
        assert {column.name for column in signal.rows.columns if not column.sparse} <= set(frame.columns)


def test_a_bad_object_is_quarantined_and_its_neighbours_land(lake: Lake, runner: IngestRunner) -> None:
    lake.put(LOGS, otlp(LOGS, 50), "logs_good.binpb")
    lake.put(LOGS, b"\x0a\xff\xff\xff\xff\x0f garbage", "logs_bad.binpb")
    lake.put(LOGS, b"\x1f\x8b broken gzip", "logs_gzip.binpb.gz")
    gone = lake.put(LOGS, otlp(LOGS, 5), "logs_gone.binpb")
    lake.store.delete([gone.key])
    changed = lake.put(LOGS, otlp(LOGS, 5), "logs_changed.binpb")
    lake.store.put(changed.key, otlp(LOGS, 6), create_only=False)
    lake.put(LOGS, b"", "logs_empty.binpb")
    through(lake, runner)
    assert lake.states() == {"done": 3, "quarantined": 3}
    assert lake.row_count(LOGS) == 50
    reasons = lake.reasons()
    assert set(reasons) == {"logs_bad.binpb", "logs_gzip.binpb.gz", "logs_gone.binpb"}
    assert "no such object" in reasons["logs_gone.binpb"]
    assert all(reason.startswith("cannot ") or ": cannot " in reason for reason in reasons.values()), reasons


def test_redelivery_of_everything_changes_nothing(lake: Lake, runner: IngestRunner) -> None:
    raws = [lake.put(TRACES, otlp(TRACES, 30, seed)) for seed in (1, 2)]
    through(lake, runner)
    before = {segment.segment_id for segment in lake.segments(TRACES)}
    work = lake.bus.read(topics.work(TRACES, "ingest").name)
    lake.announce(raws)
    lake.bus.publish([topic_message(record) for record in work])
    with lake.consumer("boxer-ingest", *OBJECT_TOPICS) as consumer:
        boxer = Boxer(INGEST, lake.database, consumer, lake.settings.pipeline)
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            boxer.step()
    lag = lambda group: sum(each.behind for each in lake.bus.lag(group))  # noqa: E731
    assert lag("boxer-ingest") == 0
    ingest(lake, runner, lambda: lag("ingest") == 0)
    assert {segment.segment_id for segment in lake.segments(TRACES)} == before
    assert lake.row_count(TRACES) == lake.ledger_rows(TRACES) == 60


def topic_message(record: object) -> object:
    from lakerunner.index.outbox import Outgoing

    return Outgoing(record.topic, record.key, record.payload)  # type: ignore[attr-defined]


def test_an_item_done_twice_commits_once(lake: Lake, runner: IngestRunner) -> None:
    lake.put(LOGS, otlp(LOGS, 40))
    box(lake, lambda: all_bundled(lake))
    item_id = lake.value("SELECT item_id FROM work_item")
    with lake.database.transaction() as tx:
        items, _ = load_items(tx, INGEST, [item_id], lake.settings.pipeline)
    for attempt in (1, 2):
        ends = run_batch(INGEST, lake.database, runner, [items[item_id]], {item_id: attempt})
        assert ends == {item_id: None}
    assert lake.row_count(LOGS) == 40
    assert Outcome.ALREADY == "already"
    # The second attempt wrote under names of its own, which nobody sees.
    assert len(list((lake.settings.data.dir / "bucket" / "db").rglob("*.parquet"))) == 2


def test_orgs_do_not_share_items(lake: Lake, runner: IngestRunner) -> None:
    other = uuid.UUID(int=8)
    lake.put(LOGS, otlp(LOGS, 10))
    lake.put(LOGS, otlp(LOGS, 15), org_id=other)
    through(lake, runner)
    assert sum(segment.row_count for segment in lake.segments(LOGS, ORG)) == 10
    assert sum(segment.row_count for segment in lake.segments(LOGS, other)) == 15
