"""Fetch samples from segments, against pyarrow reading the same columns.

`python -m bench.scan` prints one JSON line per case. The peer is the physical limit of the format: pyarrow reading the
same columns of the same file into memory, and nothing else. CPU and wall times are the best of several runs, since the
machine may be shared.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.index.lookup import Want
from lakerunner.model.ids import fresh_id
from lakerunner.model.labels import METRIC_NAME, LabelSet
from lakerunner.model.segment import Segment
from lakerunner.model.signals.metrics import METRICS, SAMPLES, SERIES
from lakerunner.query.fanout.answer import Workers
from lakerunner.query.fanout.flight_workers import FlightWorkers
from lakerunner.query.fanout.local_workers import LocalWorkers
from lakerunner.query.lake_query import LakeQuery
from lakerunner.query.plan.catalog import Catalog
from lakerunner.query.plan.planner import Planner
from lakerunner.query.plan.snapshots import Looked
from lakerunner.query.scan.object_cache import ObjectCache
from lakerunner.query.scan.rows.opened import RowsOpener
from lakerunner.query.scan.samples.opened import Opener
from lakerunner.query.series.batch import SeriesBatch
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.worker.server import WorkerServer
from lakerunner.runtime.byte_lru import ByteLru
from lakerunner.store import keys
from lakerunner.store.config import StoreConfig
from lakerunner.store.object_store import ObjectStore
from lakerunner.store.open import open_store
from lakerunner.store.segment_writer import describe, encode_tables, segment_of

ORG = uuid.UUID(int=1)
POINTS, STEP_MS, START_MS = 360, 10_000, 1_700_000_400_000
COLUMNS = ["tid", "timestamp", "value", "start_timestamp"]
NAME = "http_server_requests_total"


class FixedCatalog:
    """Replaces the index, which is measured elsewhere."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = segments

    def lookup(self, org_id: uuid.UUID, wants: Sequence[Want]) -> Looked:
        return Looked(self._segments)


def labels_of(number: int) -> LabelSet:
    return LabelSet.of(
        {
            METRIC_NAME: NAME,
            "job": f"service-{number % 50}",
            "instance": f"10.0.{number // 250 % 250}.{number % 250}:8080",
            "method": ("GET", "POST", "PUT")[number % 3],
            "status": ("200", "404", "500")[number // 3 % 3],
            "pod": f"pod-{number}",
        }
    )


def write(store: ObjectStore, series: int, hours: int) -> list[Segment]:
    """Write growing counters, one segment per hour."""
    sets = sorted((labels_of(number) for number in range(series)), key=lambda labels: labels.tid())
    described = [
        {
            "tid": labels.tid(),
            "metric_name": NAME,
            "type": "counter",
            "temporality": "cumulative",
            "monotonic": True,
            "labels": list(labels.without(METRIC_NAME)),
        }
        for labels in sets
    ]
    series_table = pa.Table.from_pylist(described, schema=SERIES.schema())
    random = np.random.default_rng(7)
    segments = []
    for hour in range(hours):
        samples = _samples([labels.tid() for labels in sets], START_MS + hour * POINTS * STEP_MS, random)
        files = encode_tables(METRICS, {SAMPLES.suffix: samples, SERIES.suffix: series_table})
        segment = segment_of(
            METRICS,
            describe(METRICS, samples),
            segment_id=fresh_id(),
            org_id=ORG,
            collector="bench",
            size_bytes=sum(file.size for file in files),
        )
        for key, file in zip(keys.segment_keys(segment), files, strict=True):
            store.put(key, memoryview(file))
        segments.append(segment)
    return segments


def _samples(tids: list[int], start_ms: int, random: np.random.Generator) -> pa.Table:
    rows = len(tids) * POINTS
    times = np.tile(start_ms + np.arange(POINTS) * STEP_MS, len(tids))
    values = random.integers(0, 100, (len(tids), POINTS)).cumsum(axis=1).astype(np.float64).ravel()
    columns = {
        "metric_name": pa.array([NAME]).take(pa.array(np.zeros(rows, np.int64))),
        "tid": pa.array(np.repeat(np.array(tids), POINTS)),
        "timestamp": pa.array(times),
        "value": pa.array(values),
        "start_timestamp": pa.array(np.full(rows, START_MS - 1)),
    }
    arrays = [
        columns[column.name].cast(column.type) if column.name in columns else pa.nulls(rows, column.type)
        for column in SAMPLES.columns
    ]
    return pa.Table.from_arrays(arrays, schema=SAMPLES.schema())


def best_ms(call: Callable[[], object], runs: int) -> tuple[float, float]:
    """Return CPU and wall milliseconds, each the best of the runs after a warm-up."""
    call()
    cpu, wall = [], []
    for _ in range(runs):
        began, began_cpu = time.perf_counter(), time.process_time()
        call()
        cpu.append(time.process_time() - began_cpu)
        wall.append(time.perf_counter() - began)
    return min(cpu) * 1e3, min(wall) * 1e3


def fetch(workers: Workers, segments: Sequence[Segment]) -> SeriesBatch:
    source = LakeQuery(ORG, Planner(cast(Catalog, FixedCatalog(segments)), ORG), workers)
    end_ms = max(segment.time_range.end_ns for segment in segments) // 1_000_000
    return source.select([Matcher(METRIC_NAME, MatchKind.EQUAL, NAME)], START_MS, end_ms)


def read_columns(folder: Path, segments: Sequence[Segment]) -> None:
    for segment in segments:
        pq.read_table(folder / keys.segment_keys(segment)[0], columns=COLUMNS, use_threads=False, partitioning=None)


def report(case: str, value: float, unit: str, peer: str, peer_value: float) -> None:
    line = {
        "bench": "scan",
        "case": case,
        "value": round(value, 2),
        "unit": unit,
        "better": "lower",
        "peer": peer,
        "peer_value": round(peer_value, 2),
        "ratio": round(value / peer_value, 3) if peer_value else None,
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _workers(store: ObjectStore, cache: ObjectCache, decoded_bytes: int = 0) -> LocalWorkers:
    decoded: ByteLru[Any] = ByteLru(decoded_bytes)
    return LocalWorkers(Opener(cache, 1 << 29, decoded), RowsOpener(store, cache, decoded=decoded), 2)


def measure(folder: Path, series: int, hours: int, runs: int, *, flight: bool = False) -> None:
    bucket = folder / f"bucket-{series}-{hours}"
    store = open_store(StoreConfig(bucket.as_uri()))
    segments = write(store, series, hours)
    cache = ObjectCache(store, folder / f"cache-{series}-{hours}", 10 << 30)
    workers = _workers(store, cache)
    began = time.perf_counter()
    got = fetch(workers, segments)
    cold_ms = (time.perf_counter() - began) * 1e3
    assert len(got.values) == series * POINTS * hours, "the fetch is incomplete"
    limit_cpu, limit_wall = best_ms(lambda: read_columns(bucket, segments), runs)
    cpu, wall = best_ms(lambda: fetch(workers, segments), runs)
    remembering = _workers(store, cache, 2 << 30)
    fetch(remembering, segments)
    again_cpu, again_wall = best_ms(lambda: fetch(remembering, segments), runs)
    remembering.close()
    case = f"{series} series x {POINTS} points x {hours} h"
    limit = "pyarrow reads the columns"
    report(f"hot fetch, {case}, cpu", cpu, "ms", limit, limit_cpu)
    report(f"hot fetch, {case}, wall", wall, "ms", limit, limit_wall)
    report(f"hot fetch, decoded before, {case}, cpu", again_cpu, "ms", limit, limit_cpu)
    report(f"hot fetch, decoded before, {case}, wall", again_wall, "ms", limit, limit_wall)
    report(f"first fetch, {case}, wall", cold_ms, "ms", limit, limit_wall)
    if flight:
        service = WorkerServer("grpc://127.0.0.1:0", workers, "secret", 8, 8 << 30)
        remote = FlightWorkers(lambda: [f"127.0.0.1:{service.port}"], "secret")
        cpu, wall = best_ms(lambda: fetch(remote, segments), runs)
        report(f"hot fetch over Flight, both ends, {case}, cpu", cpu, "ms", limit, limit_cpu)
        report(f"hot fetch over Flight, {case}, wall", wall, "ms", limit, limit_wall)
        remote.close()
        service.shutdown()
    workers.close()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the series")
    parser.add_argument("--runs", type=int, default=7, help="runs of each case; the best counts")
    parser.add_argument("--series", type=int, help="series of the main case (default 10,000)")
    options = parser.parse_args(arguments)
    series = options.series or (1_000 if options.quick else 10_000)
    with tempfile.TemporaryDirectory(prefix="lakerunner-bench-") as name:
        folder = Path(name)
        measure(folder, series, 1, options.runs, flight=True)
        for doubled in range(1, 4):
            measure(folder, series // 8 * 2**doubled // 2, 1, options.runs)
        measure(folder, series // 8, 8, options.runs)


if __name__ == "__main__":
    main()
