"""Load Lakerunner: write segments as compaction would leave them, in a folder bucket and the embedded index."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from bench.promql.sets import (
    BOUNDS,
    COUNTING_SINCE_MS,
    HOUR_MS,
    NATIVE_SCHEMA,
    ZERO_THRESHOLD,
    Histograms,
    Ints,
    Kind,
    MetricSet,
    first_bucket,
    histograms_of,
    values_of,
)

from lakerunner.index.commit import ItemResult, Outcome, commit_item
from lakerunner.index.database import Database
from lakerunner.index.orgs import DEFAULT_ORG_ID
from lakerunner.index.work import WorkItem, create_item
from lakerunner.model.ids import fresh_id
from lakerunner.model.labels import METRIC_NAME
from lakerunner.model.segment import Segment
from lakerunner.model.signals.metrics import METRICS, SAMPLES, SERIES, SPAN
from lakerunner.query.series.histograms.histogram import CUSTOM_SCHEMA
from lakerunner.runtime.settings import DataSettings, Settings
from lakerunner.store import keys
from lakerunner.store.config import StoreConfig
from lakerunner.store.object_store import ObjectStore
from lakerunner.store.open import open_store
from lakerunner.store.segment_writer import describe, encode_tables, segment_of
from lakerunner.store.table_writer import SETTLED_LEVEL


def load(database: Database, data_dir: Path, sets: Sequence[MetricSet]) -> int:
    """Write all data sets, make them visible, and return the number of rows."""
    store = open_store(StoreConfig.of(Settings(data=DataSettings(dir=data_dir))))
    rows = 0
    for metric in sets:
        segments = list(_segments(store, metric))
        rows += sum(segment.row_count for segment in segments)
        item_id = uuid.uuid4()
        with database.transaction() as tx:
            create_item(tx, WorkItem(item_id, "ingest", DEFAULT_ORG_ID, METRICS.name))
        assert commit_item(database, ItemResult(item_id, made=segments)) is Outcome.COMMITTED
    # Autovacuum would do this before the first query in production.
    with database.transaction() as tx:
        tx.execute("ANALYZE segment")
    return rows


def _segments(store: ObjectStore, metric: MetricSet) -> Iterator[Segment]:
    """Write one segment per hour of the set, sorted by (name, series, time). Each set is its own collector."""
    tids = np.array([labels.tid() for labels in metric.labels()], np.int64)
    order = np.argsort(tids)
    series = _series_table(metric, tids, order)
    points_an_hour = HOUR_MS // metric.step_ms
    whole = values_of(metric) if metric.kind in (Kind.COUNTER, Kind.GAUGE) else histograms_of(metric)
    for first in range(0, metric.points, points_an_hour):
        span = slice(first, first + points_an_hour)
        columns = {
            "metric_name": _repeated(metric.metric, len(order) * points_an_hour),
            "tid": np.repeat(tids[order], points_an_hour),
            "timestamp": metric.times_ms(span.start, span.stop)[order].ravel(),
        }
        if metric.kind is not Kind.GAUGE:
            columns["start_timestamp"] = np.full(len(order) * points_an_hour, COUNTING_SINCE_MS)
        if isinstance(whole, Histograms):
            columns |= _histogram_columns(metric, whole, order, span)
        else:
            columns["value"] = whole[order, span].ravel()
        yield _put(store, metric, {SAMPLES.suffix: _samples_table(columns), SERIES.suffix: series})


def _put(store: ObjectStore, metric: MetricSet, tables: dict[str, pa.Table]) -> Segment:
    files = encode_tables(METRICS, tables, SETTLED_LEVEL)
    segment = segment_of(
        METRICS,
        describe(METRICS, tables[SAMPLES.suffix]),
        segment_id=fresh_id(),
        org_id=DEFAULT_ORG_ID,
        collector=metric.name,
        size_bytes=sum(file.size for file in files),
        level=1,
    )
    for key, file in zip(keys.segment_keys(segment), files, strict=True):
        store.put(key, memoryview(file))
    return segment


def _series_table(metric: MetricSet, tids: Ints, order: Ints) -> pa.Table:
    labels = metric.labels()
    kind = "histogram" if metric.kind in (Kind.CLASSIC, Kind.NATIVE) else metric.kind.value
    counts = metric.kind is not Kind.GAUGE
    rows = [
        {
            "tid": int(tids[row]),
            "metric_name": metric.metric,
            "type": kind,
            "temporality": "cumulative" if counts else None,
            "monotonic": True if metric.kind is Kind.COUNTER else None,
            "labels": list(labels[row].without(METRIC_NAME)),
        }
        for row in order.tolist()
    ]
    return pa.Table.from_pylist(rows, schema=SERIES.schema())


def _samples_table(columns: dict[str, object]) -> pa.Table:
    rows = len(columns["tid"])  # type: ignore[arg-type]
    arrays = [
        pa.array(columns[column.name]).cast(column.type)
        if column.name in columns
        else pa.nulls(rows, column.type)
        for column in SAMPLES.columns
    ]  # fmt: skip
    return pa.Table.from_arrays(arrays, schema=SAMPLES.schema())


def _histogram_columns(metric: MetricSet, whole: Histograms, order: Ints, span: slice) -> dict[str, object]:
    """Build histogram columns as ingest stores OTLP histograms: all buckets in one span, absolute counts."""
    counts = whole.counts[order, span]
    rows, buckets = counts.shape[0] * counts.shape[1], counts.shape[2]
    classic = metric.kind is Kind.CLASSIC
    firsts = np.array([0 if classic else first_bucket(number) for number in order.tolist()], np.int32)
    spans = pa.StructArray.from_arrays(
        [pa.array(np.repeat(firsts, counts.shape[1])), pa.array(np.full(rows, buckets, np.uint32))], fields=list(SPAN)
    )
    columns: dict[str, object] = {
        "h_schema": np.full(rows, CUSTOM_SCHEMA if classic else NATIVE_SCHEMA, np.int8),
        "h_zero_threshold": np.full(rows, 0.0 if classic else ZERO_THRESHOLD),
        "h_zero_count": np.zeros(rows),
        "h_count": counts.sum(axis=2).ravel().astype(np.float64),
        "h_sum": whole.sums[order, span].ravel(),
        "h_positive_spans": _lists(spans, 1),
        "h_positive_buckets": _lists(pa.array(counts.ravel().astype(np.float64)), buckets),
        "h_reset_hint": np.zeros(rows, np.int8),
    }
    if classic:
        columns["h_custom_values"] = _lists(pa.array(np.tile(BOUNDS, rows)), len(BOUNDS))
    return columns


def _lists(values: pa.Array, each: int) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(np.arange(0, len(values) + 1, each, dtype=np.int32)), values)


def _repeated(text: str, rows: int) -> pa.Array:
    return pa.array([text]).take(pa.array(np.zeros(rows, np.int64)))
