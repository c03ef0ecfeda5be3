"""A lake for a test: an index, a bus and a bucket in a folder, with raw objects put in and rows read out."""

from __future__ import annotations

import gzip
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from google.protobuf.message import Message

from lakerunner.bus import topics
from lakerunner.bus.announce import object_seen
from lakerunner.bus.contract import Bus
from lakerunner.bus.open import open_bus
from lakerunner.bus.relay import relay_once
from lakerunner.formats.decoded import Decoded
from lakerunner.formats.options import MetricOptions, Options
from lakerunner.formats.read import read_object
from lakerunner.index import ledger, outbox
from lakerunner.index.database import Database
from lakerunner.index.segments import live_segments
from lakerunner.index.series_key import series_key
from lakerunner.intake.buckets import own_bucket
from lakerunner.model.raw_object import RawObject
from lakerunner.model.segment import Segment
from lakerunner.model.signal import Signal
from lakerunner.model.signals import SIGNALS
from lakerunner.model.time import TimeRange
from lakerunner.pipeline.ingest.stage import INGEST, IngestRunner
from lakerunner.pipeline.ingest.task import run_task
from lakerunner.pipeline.items import load_items, make_item
from lakerunner.pipeline.spark.job import run_tasks
from lakerunner.pipeline.stage import Item
from lakerunner.runtime.settings import (
    BusSettings,
    DataSettings,
    HttpSettings,
    IndexSettings,
    LogSettings,
    PipelineSettings,
    Settings,
    SparkSettings,
)
from lakerunner.runtime.settings.load import settings_as_env
from lakerunner.store import keys
from lakerunner.store.bucket import version_of
from lakerunner.store.config import StoreConfig
from lakerunner.store.nanos import join_nanos
from lakerunner.store.open import open_store
from tests.formats import otlp_samples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORG = uuid.UUID(int=7)
COLLECTOR = "shop"
_ALL_TIME = TimeRange(0, 1 << 62)
_BATCHES = {
    "logs": otlp_samples.log_batches,
    "metrics": otlp_samples.metric_batches,
    "traces": otlp_samples.trace_batches,
}


#: What tells the rows of a signal apart.
_IDENTITY = {
    "logs": ["timestamp", "service_name", "message", "span_id", "attr_user_id"],
    "metrics": ["tid", "timestamp", "metric_name"],
    "traces": ["trace_id", "span_id", "start_timestamp", "name"],
}


def identities(table: pa.Table, signal: Signal) -> list[tuple[object, ...]]:
    """The rows in an order of their own, each as often as it is there: equal lists are equal tables."""
    columns = [table.column(name).cast(pa.string()).to_pylist() for name in _IDENTITY[signal.name]]
    return sorted(zip(*columns, strict=True), key=str)


def settings_of(url: str, folder: Path, **pipeline: Any) -> Settings:
    """Small and impatient: bundles close at once, a dead consumer is noticed in a second."""
    return Settings(
        data=DataSettings(dir=folder),
        index=IndexSettings(url=url),
        bus=BusSettings(partitions=2, session_timeout_s=1.0, retry_base_s=0.05, retry_max_s=0.2, max_attempts=3),
        http=HttpSettings(port=0),
        log=LogSettings(format="json"),
        spark=SparkSettings(master="local[2]"),
        pipeline=PipelineSettings(bundle_idle_s=0.05, bundle_age_s=0.2, **pipeline),
    )


def otlp(signal: Signal, rows: int, seed: int = 1) -> bytes:
    """One export of that many records, points or spans."""
    options = {"series": rows} if signal.name == "metrics" else {"per_batch": rows}
    batches: Iterator[Message] = _BATCHES[signal.name](rows, seed=seed, **options)
    return b"".join(batch.SerializeToString() for batch in batches)


class Lake:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.database = Database(settings.index.url, connect_timeout_s=5.0)
        self.bus: Bus = open_bus(settings, self.database)
        self.bus.ensure_topics()
        self.store = open_store(StoreConfig.of(settings))

    def read(self, signal: Signal, body: bytes) -> Decoded:
        """What ingest reads in an object: the ids of series depend on the lake's key."""
        with self.database.transaction() as tx:
            options = Options(metrics=MetricOptions(series_key=series_key(tx)))
        return read_object(body, signal, options=options)

    def close(self) -> None:
        self.bus.close()
        self.database.close()

    def env(self) -> dict[str, str]:
        return settings_as_env(self.settings)

    def put(self, signal: Signal, body: bytes, name: str = "", org_id: uuid.UUID = ORG) -> RawObject:
        """Store a raw object and record it, as intake does."""
        name = name or f"{signal}_{uuid.uuid4().hex}.binpb"
        key = f"{keys.raw_prefix(org_id)}{COLLECTOR}/{name}"
        meta = self.store.put(key, gzip.compress(body) if name.endswith(".gz") else body)
        raw = RawObject(
            org_id, COLLECTOR, signal.name, own_bucket(self.settings), key, version_of(meta), meta.size_bytes
        )
        self.record([raw])
        return raw

    def record(self, objects: Sequence[RawObject]) -> None:
        with self.database.transaction() as tx:
            outbox.put(tx, [object_seen(raw) for raw in ledger.record_seen(tx, objects)])
        self.relay()

    def relay(self) -> None:
        while relay_once(self.database, self.bus):
            pass

    def announce(self, objects: Sequence[RawObject]) -> None:
        """The same messages once more, as a bus may deliver them."""
        self.bus.publish([object_seen(raw) for raw in objects])

    def segments(self, signal: Signal, org_id: uuid.UUID = ORG) -> list[Segment]:
        with self.database.transaction() as tx:
            return live_segments(tx, org_id, signal.name, _ALL_TIME)

    def path(self, segment: Segment, table: int = 0) -> Path:
        return self.settings.data.dir / "bucket" / keys.segment_keys(segment)[table]

    def file(self, segment: Segment, table: int = 0) -> pa.BufferReader:
        """A file of a segment, wherever the bucket is."""
        return pa.BufferReader(self.store.get(keys.segment_keys(segment)[table]))

    def rows(self, signal: Signal, table: int = 0) -> pa.Table:
        """All live rows."""
        files = [self.file(segment, table) for segment in self.segments(signal)]
        tables = [join_nanos(pq.read_table(file)) for file in files]
        return pa.concat_tables(tables, promote_options="permissive")

    def row_count(self, signal: Signal) -> int:
        """Counted in the files, not believed from the index."""
        return sum(pq.read_metadata(self.file(segment)).num_rows for segment in self.segments(signal))

    def ledger_rows(self, signal: Signal) -> int:
        return int(self.value("SELECT coalesce(sum(row_count), 0) FROM raw_object WHERE signal = %s", [signal.name]))

    def states(self) -> dict[str, int]:
        with self.database.transaction() as tx:
            return {state: count for state, count in ledger.count_by_state(tx).items() if count}

    def reasons(self) -> Mapping[str, str]:
        with self.database.transaction() as tx:
            rows = tx.execute("SELECT key, reason FROM raw_object WHERE reason IS NOT NULL").fetchall()
        return {row["key"].rpartition("/")[2]: row["reason"] for row in rows}

    def value(self, query: str, values: Sequence[Any] = ()) -> Any:
        with self.database.transaction() as tx:
            row = tx.execute(query, values).fetchone()
        assert row is not None
        return next(iter(row.values()))

    def topic(self, name: str) -> int:
        """How many messages a topic holds."""
        return len(self.bus.read(name))

    @contextmanager
    def consumer(self, group: str, *names: str) -> Iterator[Any]:
        consumer = self.bus.consumer(group, names)
        try:
            yield consumer
        finally:
            consumer.close()


def loaded(lake: Lake, *raws: RawObject) -> Item[RawObject]:
    """A work item of these objects, as a worker loads it."""
    made = make_item(lake.database, INGEST, raws)
    assert made is not None
    with lake.database.transaction() as tx:
        items, _ = load_items(tx, INGEST, [made], lake.settings.pipeline)
    return items[made]


def runner_on(spark: SparkSession, lake: Lake) -> IngestRunner:
    """Ingest on the suite's Spark session, which it must not stop."""
    return IngestRunner(lake.settings, lake.database, partial(run_tasks, spark, "ingest", run_task))


OBJECT_TOPICS = tuple(topics.objects(signal).name for signal in SIGNALS)
WORK_TOPICS = tuple(topics.work(signal, "ingest").name for signal in SIGNALS)
