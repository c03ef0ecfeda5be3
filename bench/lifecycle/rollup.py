"""Rollup of an hour of raw samples to the 60 s and 300 s tiers: samples per second and core, memory, bytes.

Counters sampled every 10 s, in one segment per 5 minutes, as ingest writes them. The peer is DuckDB with one thread:
GROUP BY series and minute over the same files, with count, sum, min, max, first and last, written as Parquet. It keeps
no samples and makes no sketches. Both run in processes of their own, and CPU time counts.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import orjson
import pyarrow as pa
from bench.peak_memory import peak_bytes

from lakerunner.model.ids import fresh_id
from lakerunner.model.rollup_window import Window
from lakerunner.model.segment import Segment
from lakerunner.model.signals.metrics import METRICS, SAMPLES, SERIES
from lakerunner.pipeline.rollup.task import RollupTask, run_rollup
from lakerunner.pipeline.rollup.warm import warm
from lakerunner.runtime.settings import PipelineSettings
from lakerunner.store import keys
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store
from lakerunner.store.segment_writer import describe, encode_tables, segment_of

ORG = uuid.UUID(int=7)
HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000 // HOUR_MS * HOUR_MS
STEP_MS, SEGMENTS, METRIC_COUNT = 10_000, 12, 50
PER_CORE = 1_000_000


def measure(quick: bool) -> Iterator[str]:
    series = 5_000 if quick else 100_000
    with tempfile.TemporaryDirectory(prefix="lakerunner-bench-") as folder:
        segments = _write(Path(folder), series)
        raw_bytes = sum(segment.size_bytes for segment in segments)
        one_minute = _in_child(_roll_up, folder, segments, (60,))
        both = _in_child(_roll_up, folder, segments, (60, 300))
        peer = _in_child(_duckdb, folder)
        samples = both["samples"]
        speed = {name: samples / each["cpu_s"] for name, each in (("60", one_minute), ("both", both), ("peer", peer))}
        yield _line(
            "samples/s per core into 60 s", speed["60"], "samples/s", "higher", "DuckDB GROUP BY", speed["peer"]
        )
        yield _line("samples/s per core into 60 s", speed["60"], "samples/s", "higher", "target", PER_CORE)
        yield _line(
            "into 60 s and 300 s at once", speed["both"], "samples/s", "higher", "DuckDB GROUP BY", speed["peer"]
        )
        yield _line("peak RSS", both["rss_bytes"], "bytes", "lower", "limit", 2 << 30)
        for tier_s, size in both["bytes"].items():
            yield _line(f"bytes of the {tier_s} s tier", size, "bytes", "lower", "raw segments", raw_bytes)
        for tier_s, rows in both["rows"].items():
            yield _line(f"rows of the {tier_s} s tier", rows, "rows", "lower", "raw samples", samples)


def _line(case: str, value: float, unit: str, better: str, peer: str, peer_value: float) -> str:
    found = {
        "bench": "lifecycle", "case": f"rollup: {case}", "value": round(value, 3), "unit": unit, "better": better,
        "peer": peer, "peer_value": round(peer_value, 3), "ratio": round(value / peer_value, 3),
    }  # fmt: skip
    return orjson.dumps(found).decode()


def _write(folder: Path, series: int) -> list[Segment]:
    """An hour of counters, in segments of five minutes."""
    random = np.random.default_rng(1)
    per_metric = series // METRIC_COUNT
    metric = np.repeat(np.arange(METRIC_COUNT), per_metric)
    tids = np.concatenate([np.sort(random.integers(-(1 << 62), 1 << 62, per_metric)) for _ in range(METRIC_COUNT)])
    names = pa.array([f"requests_{number:02}_total" for number in range(METRIC_COUNT)])
    of_series = names.take(pa.array(metric))
    labels = [[("pod", f"pod-{number}"), ("job", f"job-{number % 20}")] for number in range(len(tids))]
    columns = {"tid": tids, "metric_name": of_series, "type": ["counter"] * len(tids), "labels": labels}
    described = _table(SERIES.schema(), columns, len(tids))
    store = open_store(StoreConfig(url=f"file://{folder}"))
    reached = random.integers(0, 1_000_000, len(tids)).astype(np.float64)
    steps = HOUR_MS // STEP_MS // SEGMENTS
    made = []
    for number in range(SEGMENTS):
        times = START_MS + STEP_MS * (1 + number * steps + np.arange(steps))
        values = np.cumsum(random.integers(0, 9, (len(tids), steps)), axis=1) + reached[:, None]
        reached = values[:, -1].copy()
        columns = {
            "metric_name": of_series.take(pa.array(np.repeat(np.arange(len(tids)), steps))),
            "tid": np.repeat(tids, steps), "timestamp": np.tile(times, len(tids)), "value": values.ravel(),
        }  # fmt: skip
        rows = _table(SAMPLES.schema(), columns, values.size)
        files = encode_tables(METRICS, {"": rows, ".series": described})
        size = sum(file.size for file in files)
        segment = segment_of(
            METRICS, describe(METRICS, rows), segment_id=fresh_id(), org_id=ORG, collector="bench", size_bytes=size
        )
        for key, file in zip(keys.segment_keys(segment), files, strict=True):
            store.put(key, memoryview(file))
        made.append(segment)
    return made


def _table(schema: pa.Schema, columns: dict[str, Any], rows: int) -> pa.Table:
    arrays = [
        pa.array(columns[each.name]).cast(each.type)
        if each.name in columns and each.name != "labels"
        else pa.array(columns["labels"], each.type)
        if each.name in columns
        else pa.nulls(rows, each.type)
        for each in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _in_child(work: Any, *arguments: Any) -> dict[str, Any]:
    """Run it in a fresh process, so that memory and CPU time are its own."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        found: dict[str, Any] = pool.apply(work, arguments)
    return found


def _roll_up(folder: str, segments: list[Segment], tiers: tuple[int, ...]) -> dict[str, Any]:
    warm()
    settings = PipelineSettings()
    window = Window(ORG, 60, START_MS * 1_000_000, (START_MS + HOUR_MS) * 1_000_000)
    task = RollupTask(
        uuid.uuid4(), ORG, window.row_range, tiers, tuple(segments), StoreConfig(url=f"file://{folder}"),
        settings.rollup_piece_rows, settings.rollup_segment_rows,
    )  # fmt: skip
    before = time.process_time()
    result = run_rollup(task)
    cpu_s = time.process_time() - before
    if result.error is not None:
        raise result.error
    sizes = {tier_s: sum(s.size_bytes for s in result.segments if s.tier_s == tier_s) for tier_s in tiers}
    rows = {tier_s: sum(s.row_count for s in result.segments if s.tier_s == tier_s) for tier_s in tiers}
    return {"samples": result.samples, "cpu_s": cpu_s, "rss_bytes": peak_bytes(), "bytes": sizes, "rows": rows}


def _duckdb(folder: str) -> dict[str, Any]:
    connection = duckdb.connect(config={"threads": 1})
    files = [str(path) for path in Path(folder).glob("db/*/bench/*/*/*/tbl_*.parquet") if ".series" not in path.name]
    before = time.process_time()
    connection.execute(
        "COPY (SELECT metric_name, tid, ceil(epoch_ms(timestamp) / 60000) AS bucket, count(value), sum(value),"  # noqa: S608
        " min(value), max(value), arg_min(value, timestamp), arg_max(value, timestamp), max(timestamp)"
        " FROM read_parquet($files)"
        " GROUP BY ALL ORDER BY ALL) TO '" + folder + "/peer.parquet' (COMPRESSION zstd)",
        {"files": files},
    )
    return {"cpu_s": time.process_time() - before, "rss_bytes": peak_bytes()}


if __name__ == "__main__":
    for line in measure("--quick" in sys.argv[1:]):
        sys.stdout.write(line + "\n")
