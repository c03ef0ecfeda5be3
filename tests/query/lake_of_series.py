"""Series in memory written as real segments of a real lake, for tests that read them back."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from lakerunner.index.commit import ItemResult, Outcome, commit_item
from lakerunner.index.database import Database
from lakerunner.index.work import WorkItem, create_item
from lakerunner.model.ids import fresh_id
from lakerunner.model.labels import METRIC_NAME
from lakerunner.model.segment import Segment
from lakerunner.model.signals.metrics import METRICS, SAMPLES, SERIES, SPAN
from lakerunner.query.lake import Lake, open_lake
from lakerunner.query.series.memory_source import MemorySeries, MemorySource
from lakerunner.ruler.results import histogram_columns
from lakerunner.runtime.settings import DataSettings, IndexSettings, QuerySettings, Settings
from lakerunner.store import keys
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store
from lakerunner.store.segment_writer import describe, encode_tables, segment_of

#: Segments of an hour, as ingest makes them; longer where that would be very many.
_HOUR_MS = 3_600_000
_MAX_SEGMENTS = 5
_SPANS = pa.list_(SPAN)


class LakeOfSeries:
    def __init__(self, folder: Path, url: str, **query: object) -> None:
        self.settings = Settings(
            data=DataSettings(dir=folder), index=IndexSettings(url=url), query=QuerySettings.model_validate(query)
        )
        self.database = Database(url)
        self.store = open_store(StoreConfig.of(self.settings))
        self.lake: Lake = open_lake(self.settings, self.database)

    def close(self) -> None:
        self.lake.close()
        self.database.close()

    def write(self, loaded: MemorySource, *, temporality: str | None = None) -> uuid.UUID:
        """The series as segments of an org of their own. With a temporality, histograms are as if sent over OTLP."""
        org_id = uuid.uuid4()
        series = list(loaded._series.values())
        # In one transaction and not one each: what is tested here is reading.
        self.commit(org_id, [self.put(org_id, part, temporality) for part in _windows(series)])
        return org_id

    def put(self, org_id: uuid.UUID, series: list[MemorySeries], temporality: str | None = None) -> Segment:
        """The objects of one segment, and its description. The index does not know it yet."""
        tables = {SAMPLES.suffix: samples_table(series), SERIES.suffix: series_table(series, temporality)}
        return self.put_tables(org_id, tables)

    def put_tables(self, org_id: uuid.UUID, tables: dict[str, pa.Table]) -> Segment:
        files = encode_tables(METRICS, tables)
        segment = segment_of(
            METRICS,
            describe(METRICS, tables[SAMPLES.suffix]),
            segment_id=fresh_id(),
            org_id=org_id,
            collector="test",
            size_bytes=sum(file.size for file in files),
        )
        for key, file in zip(keys.segment_keys(segment), files, strict=True):
            self.store.put(key, memoryview(file))
        return segment

    def commit(self, org_id: uuid.UUID, segments: list[Segment]) -> None:
        item_id = uuid.uuid4()
        with self.database.transaction() as tx:
            create_item(tx, WorkItem(item_id, "ingest", org_id, METRICS.name))
        assert commit_item(self.database, ItemResult(item_id, made=segments)) is Outcome.COMMITTED


@contextmanager
def lake_of_series(folder: Path, url: str, **query: object) -> Iterator[LakeOfSeries]:
    lake = LakeOfSeries(folder, url, **query)
    try:
        yield lake
    finally:
        lake.close()


def _windows(series: list[MemorySeries]) -> Iterator[list[MemorySeries]]:
    """The series cut by time. Each window repeats the last sample of the one before: reading must not see it twice."""
    times = [one.timestamps_ms for one in series if len(one.timestamps_ms)]
    if not times:
        return
    last = max(int(one[-1]) for one in times)
    width = max(_HOUR_MS, -(-(last + 1) // _MAX_SEGMENTS))
    for start in range(0, last + 1, width):
        cut = [part for one in series if (part := _cut(one, start, start + width)) is not None]
        if cut:
            yield cut


def _cut(one: MemorySeries, start_ms: int, end_ms: int) -> MemorySeries | None:
    begin, end = np.searchsorted(one.timestamps_ms, [start_ms, end_ms])
    if begin == end:
        return None
    begin = max(0, begin - 1)
    return MemorySeries(
        one.labels,
        one.timestamps_ms[begin:end],
        one.values[begin:end],
        one.start_timestamps_ms[begin:end],
        None if one.histograms is None else one.histograms[begin:end],
    )


def _in_order(series: list[MemorySeries]) -> list[MemorySeries]:
    return sorted(series, key=lambda one: (one.labels.get(METRIC_NAME), one.labels.tid()))


def samples_table(series: list[MemorySeries]) -> pa.Table:
    series = _in_order(series)
    lengths = [len(one.values) for one in series]
    hists = [hist for one in series for hist in (one.histograms or [None] * len(one.values))]
    starts = np.concatenate([one.start_timestamps_ms for one in series])
    held = np.array([hist is not None for hist in hists])
    columns = {
        "metric_name": pa.array(
            [one.labels.get(METRIC_NAME) for one, n in zip(series, lengths, strict=True) for _ in range(n)]
        ),
        "tid": pa.array(np.repeat([one.labels.tid() for one in series], lengths)),
        "timestamp": pa.array(np.concatenate([one.timestamps_ms for one in series])),
        "value": pa.array(np.concatenate([one.values for one in series]), mask=held, from_pandas=False),
        "start_timestamp": pa.array(starts, mask=starts == 0),
        **histogram_columns(hists),
    }
    arrays = []
    for column in SAMPLES.columns:
        array = columns.get(column.name)
        array = pa.nulls(len(hists), column.type) if array is None else array
        arrays.append(array.cast(column.type))
    return pa.Table.from_arrays(arrays, schema=SAMPLES.schema())


def series_table(series: list[MemorySeries], temporality: str | None) -> pa.Table:
    rows = []
    for one in _in_order(series):
        histogram = one.histograms is not None and temporality is not None
        rows.append(
            {
                "tid": one.labels.tid(),
                "metric_name": one.labels.get(METRIC_NAME),
                "type": "histogram" if histogram else "unknown",
                "unit": "s",
                "description": f"about {one.labels.get(METRIC_NAME)}",
                "temporality": temporality if histogram else None,
                "labels": list(one.labels.without(METRIC_NAME)),
            }
        )
    return pa.Table.from_pylist(rows, schema=SERIES.schema())
