"""Merge segments, against DuckDB in one process that reads the same files, sorts and writes them.

CPU seconds are compared, and both sides use one core: other work on the machine then does not count. DuckDB writes
Parquet with zstd too, but makes no filters over texts, no statistics for the index and no stable order.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from bench.otlp import MAKERS, OBJECT_ROWS
from bench.peak_memory import peak_bytes

from lakerunner.formats.attribute_types import AttributeTypes
from lakerunner.formats.read import read_object
from lakerunner.model.ids import fresh_id
from lakerunner.model.segment import Segment
from lakerunner.model.signal import Signal
from lakerunner.model.signals import LOGS, SIGNALS, signal_named
from lakerunner.pipeline.compact.task import CompactTask, run_task
from lakerunner.pipeline.ordering import sorted_table
from lakerunner.pipeline.repeats import with_repeats
from lakerunner.pipeline.split import Tables, merged
from lakerunner.store import keys
from lakerunner.store.config import StoreConfig
from lakerunner.store.needles import warm
from lakerunner.store.open import open_store
from lakerunner.store.segment_writer import describe, encode_tables, segment_of

_ORG = fresh_id()
#: Objects that are decoded; segments are made of them again and again, at later times.
_OBJECTS = 4


def measure(quick: bool) -> Iterator[str]:
    for signal in SIGNALS:
        yield from _signal(signal, inputs=8, rows=20_000 if quick else 100_000)
    sizes = (1, 2) if quick else (1, 2, 4)
    with tempfile.TemporaryDirectory(prefix="bench-compaction-") as folder:
        for factor in sizes:
            yield from _memory(Path(folder) / str(factor), factor, 20_000 if quick else 250_000)


def _signal(signal: Signal, inputs: int, rows: int) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="bench-compaction-") as name:
        folder = Path(name)
        task = make_inputs(folder, signal, inputs, rows)
        megabytes = sum(each.size_bytes for each in task.inputs) / 1e6
        ours, theirs = apart(merge, task, warm_up=True), apart(_by_duckdb, (folder, task))
        size = ours["size_bytes"] / 1e6
        yield line(
            f"compaction of {signal}, {inputs} segments of {rows} rows, {megabytes:.0f} MB",
            megabytes / ours["cpu_s"], "MB/s per core", "higher",
            "DuckDB: read, ORDER BY, write", megabytes / theirs["cpu_s"],
        )  # fmt: skip
        yield line(f"size of compacted {signal}", size, "MB", "lower", "its inputs", megabytes)


def _memory(folder: Path, factor: int, rows: int) -> Iterator[str]:
    task = make_inputs(folder, LOGS, 8, rows * factor)
    spent = apart(merge, task, warm_up=True)
    megabytes = sum(each.size_bytes for each in task.inputs) / 1e6
    case = f"peak memory, 8 segments of logs, {megabytes:.0f} MB, {rows * factor * 8} rows"
    yield line(case, spent["peak_mb"], "MB", "lower", "limit", 2_048.0)


def make_inputs(folder: Path, signal: Signal, inputs: int, rows: int) -> CompactTask:
    """Segments as ingest writes them, which overlap each other in time."""
    decoded = [
        read_object(MAKERS[signal.name](number, OBJECT_ROWS), signal).tables for number in range(_OBJECTS)
    ]  # fmt: skip
    types = AttributeTypes(AttributeTypes().added(merged(signal, decoded)[""].schema, signal.rows.schema().names))
    config = StoreConfig(url=(folder / "bucket").as_uri())
    store = open_store(config)
    segments = []
    for number in range(inputs):
        count = max(1, rows // OBJECT_ROWS)
        # Neighbours overlap: each begins before the one before it has ended.
        parts = [later(signal, decoded[n % _OBJECTS], number * count // 2 + n) for n in range(count)]
        segments.append(write_segment(store, signal, parts, types))
    return CompactTask(fresh_id(), signal.name, tuple(segments), config, str(folder / "scratch"), types)


def later(signal: Signal, tables: Tables, seconds: int) -> Tables:
    rows = tables[""]
    at = rows.column_names.index(signal.time_column)
    shift = seconds * 1_000_000_000 // signal.time_unit_ns
    times = pc.add(rows.column(at).cast(pa.int64()), shift).cast(rows.schema.field(at).type)
    rows = rows.set_column(at, rows.schema.field(at), times)
    for name, digits in (("trace_id", 32), ("span_id", 16)):
        if name in rows.column_names:
            # Fresh ids: repeated ones would compress too well.
            index = rows.column_names.index(name)
            rows = rows.set_column(index, rows.schema.field(index), _random_ids(rows.num_rows, digits))
    return {**tables, "": rows}


def _random_ids(count: int, digits: int) -> pa.Array:
    text = os.urandom(count * digits // 2).hex().encode()
    offsets = np.arange(0, len(text) + 1, digits, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text))


def write_segment(
    store: Any, signal: Signal, parts: Sequence[Tables], types: AttributeTypes, org_id: uuid.UUID = _ORG
) -> Segment:
    joined = merged(signal, parts, types)
    tables = {each.suffix: sorted_table(joined[each.suffix], each.sort_key) for each in signal.tables}
    if signal is LOGS:
        tables[""] = with_repeats(tables[""])
    files = encode_tables(signal, tables)
    about = describe(signal, tables[""])
    size = sum(file.size for file in files)
    segment = segment_of(signal, about, segment_id=fresh_id(), org_id=org_id, collector="bench", size_bytes=size)
    for key, file in zip(keys.segment_keys(segment), files, strict=True):
        store.put(key, memoryview(file))
    return segment


def merge(task: CompactTask) -> dict[str, float]:
    result = run_task(task)
    if result.error is not None or result.segment is None:
        raise RuntimeError(f"cannot measure: {result.error}")
    return {"size_bytes": result.segment.size_bytes}


def _by_duckdb(given: tuple[Path, CompactTask]) -> dict[str, float]:
    folder, task = given
    signal = signal_named(task.signal)
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET enable_progress_bar = false")
    for number, table in enumerate(signal.tables):
        paths = [str(folder / "bucket" / keys.segment_keys(segment)[number]) for segment in task.inputs]
        distinct = "DISTINCT ON (tid)" if number else ""
        order = ", ".join(table.sort_key)
        rows = f"SELECT {distinct} * FROM read_parquet(?, union_by_name = true) ORDER BY {order}"  # noqa: S608
        target = folder / f"duckdb{number}.parquet"
        options = "FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 131072"
        connection.execute(f"COPY ({rows}) TO '{target}' ({options})", [paths])
    return {}


def apart(work: Callable[[Any], dict[str, float]], given: Any, *, warm_up: bool = False) -> dict[str, float]:
    """Run it in a process of its own; return what it returned, its CPU seconds and its peak memory."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_child, args=(there, work, given, warm_up))
    process.start()
    there.close()
    spent: dict[str, float] = here.recv()
    process.join()
    return spent


def _child(pipe: Connection, work: Callable[[Any], dict[str, float]], given: Any, warm_up: bool) -> None:
    pa.set_cpu_count(1)
    if warm_up:
        warm()
    began, cpu = time.perf_counter(), time.process_time()
    found = work(given)
    used = {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - began}
    pipe.send({**found, **used, "peak_mb": peak_bytes() / 2**20})


def line(case: str, value: float, unit: str, better: str, peer: str, peer_value: float) -> str:
    return json.dumps(
        {
            "bench": "lifecycle", "case": case, "value": round(value, 2), "unit": unit, "better": better,
            "peer": peer, "peer_value": round(peer_value, 2), "ratio": round(value / peer_value, 3),
        }
    )  # fmt: skip
