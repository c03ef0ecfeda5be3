"""TraceQL over many spans: `python -m bench traceql` prints one JSON line a figure; `--quick` takes a fiftieth.

Spans of traces of ten are written as segments, those of each trace over two of them. Queries run in this process on
cached objects, beside DuckDB, and beside chDB where it is installed, over the same files. The floor is pyarrow
reading the columns that a case needs. Times are CPU milliseconds of this process, all threads, the best of several
runs. Counts are compared with DuckDB's before anything is timed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.formats.attributes import with_keys
from lakerunner.model.ids import fresh_id
from lakerunner.model.signals.traces import TRACES
from lakerunner.model.time import NS_PER_S
from lakerunner.query.scan.object_cache import ObjectCache
from lakerunner.query.scan.rows.opened import RowsOpener
from lakerunner.query.scan.rows.request import RowScan, RowSegment, RowTally
from lakerunner.query.scan.rows.segment import ReadableRows
from lakerunner.query.scan.rows.unordered import map_groups
from lakerunner.query.traceql import ast
from lakerunner.query.traceql.language import LANGUAGE, compiled
from lakerunner.query.traceql.metrics import MetricRun, Window
from lakerunner.query.traceql.search import Search, search
from lakerunner.runtime.byte_lru import ByteLru
from lakerunner.store import keys
from lakerunner.store.config import StoreConfig
from lakerunner.store.object_store import ObjectStore
from lakerunner.store.open import open_store
from lakerunner.store.segment_writer import describe, encode_tables, segment_of

T = TypeVar("T")
ORG = uuid.UUID(int=1)
START_NS = 1_700_000_000 * NS_PER_S // (3600 * NS_PER_S) * (3600 * NS_PER_S)
SPANS, PER_SEGMENT, PER_TRACE = 10_000_000, 50_000, 10
SEGMENT_NS = 60 * NS_PER_S
DECODED_BYTES = 1 << 30


@dataclass(frozen=True)
class Case:
    name: str
    query: str
    #: Counts what the answer has, in the SQL of DuckDB and chDB.
    sql: str
    columns: tuple[str, ...]


CASES = [
    Case("search by attribute and duration", "{ span.http.status_code = 503 && duration > 900ms }",
         "SELECT count(DISTINCT trace_id) FROM {table} WHERE attr_http_status_code = 503 AND duration_ns > 900000000",
         ("trace_id", "attr_http_status_code", "duration_ns")),
    Case("structural search",
         '{ resource.service.name = "service-03" } >> { span.http.status_code = 503 && duration > 990ms }',
         "SELECT count(DISTINCT b.trace_id) FROM {table} a JOIN {table} b ON a.trace_id = b.trace_id "
         "WHERE a.service_name = 'service-03' AND b.attr_http_status_code = 503 AND b.duration_ns > 990000000 "
         "AND a.span_id < b.span_id",
         ("trace_id", "span_id", "service_name", "attr_http_status_code", "duration_ns")),
    Case("rate by service", "{ span.http.status_code >= 500 } | rate() by (resource.service.name)",
         "SELECT count(*) FROM {table} WHERE attr_http_status_code >= 500",
         ("service_name", "attr_http_status_code", "start_timestamp")),
    Case("quantile of durations", "{ } | quantile_over_time(duration, .5, .99)",
         "SELECT sum(n) FROM (SELECT date_trunc('minute', start_timestamp) AS m, "
         "quantile_cont(duration_ns, 0.99) AS q, count(*) AS n FROM {table} GROUP BY m)",
         ("duration_ns", "start_timestamp")),
]  # fmt: skip


def spans(number: int, rows: int, random: np.random.Generator) -> pa.Table:
    """Half of the spans of `rows / 5` traces. Span ids ascend along the one chain that each trace is."""
    traces, half = rows // (PER_TRACE // 2), number % 2
    trace = np.repeat(np.arange(traces), PER_TRACE // 2) + number // 2 * traces
    position = np.tile(np.arange(PER_TRACE // 2) * 2 + half, traces)
    start = START_NS + number // 2 * SEGMENT_NS + random.integers(0, SEGMENT_NS, rows)
    status = random.choice([200.0, 204.0, 404.0, 503.0], rows, p=[0.9, 0.05, 0.04, 0.01])
    ids = trace.astype(np.uint64) * np.uint64(PER_TRACE) + position.astype(np.uint64)
    hexed = np.char.mod("%016x", ids.astype(np.int64))
    parents = np.where(position > 0, np.char.mod("%016x", ids.astype(np.int64) - 1), None)
    mixed = (trace.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).astype(np.int64) & 0x7FFFFFFFFFFFFFFF
    services = np.array([f"service-{each:02}" for each in range(20)], dtype=object)
    columns = {
        "trace_id": pa.array(np.char.add(np.char.mod("%016x", mixed), np.char.mod("%016x", trace)), pa.string()),
        "span_id": pa.array(hexed, pa.string()),
        "parent_span_id": pa.array(parents, pa.string()),
        "name": pa.array(np.array([f"op {each}" for each in range(50)], object)[random.integers(0, 50, rows)]),
        "kind": pa.array(["server"] * rows),
        "status_code": pa.array(np.where(status >= 500, "error", "unset"), pa.string()),
        "start_timestamp": pa.array(start, pa.timestamp("ns", "UTC")),
        "duration_ns": pa.array(random.integers(2, NS_PER_S, rows)),
        "service_name": pa.array(services[random.integers(0, 20, rows)], pa.string()),
    }
    fields = [TRACES.rows.schema().field(name) for name in columns]
    table = pa.table(list(columns.values()), schema=pa.schema(fields))
    table = table.append_column("attr_http_status_code", pa.array(status))
    missing = [each for each in TRACES.rows.schema() if each.name not in table.column_names]
    for each in missing:
        table = table.append_column(each, pa.nulls(rows, each.type))
    table = with_keys(table, {"attr_http_status_code": ["http.status_code"]})
    return table.sort_by([(name, "ascending") for name in TRACES.rows.sort_key])


def write(store: ObjectStore, rows: int) -> list[RowSegment]:
    random = np.random.default_rng(7)
    segments = []
    for number in range(rows // PER_SEGMENT):
        table = spans(number, PER_SEGMENT, random)
        (body,) = encode_tables(TRACES, {"": table})
        segment = segment_of(TRACES, describe(TRACES, table), segment_id=fresh_id(), org_id=ORG, collector="bench",
                             size_bytes=body.size)  # fmt: skip
        store.put(keys.segment_keys(segment)[0], memoryview(body))
        segments.append(RowSegment.of(segment))
    return segments


class Source:
    """Rows of the segments, as a worker reads them."""

    def __init__(self, opener: RowsOpener, segments: Sequence[RowSegment], pool: ThreadPoolExecutor) -> None:
        self._opener, self._segments, self._pool = opener, segments, pool

    def mapped(self, scan: RowScan, make: Callable[[ReadableRows], T]) -> Iterator[T]:
        return map_groups(self._opener, self._segments, scan, lambda _: None, RowTally(), _raised, make, self._pool)


def _raised(_: RowSegment, error: Exception) -> None:
    raise error


def ask(case: Case, source: Source, minutes: int, limit: int) -> int:
    root = compiled(case.query).root
    if isinstance(root, ast.Pipeline):
        asked = Search(root, START_NS, START_NS + minutes * 60 * NS_PER_S, limit, 3)
        return sum(batch.num_rows for batch in search(asked, source, lambda: None))  # type: ignore[arg-type]
    steps = START_NS - NS_PER_S + 60 * NS_PER_S * np.arange(minutes + 2, dtype=np.int64)
    run = MetricRun(Window(steps, 60 * NS_PER_S), source, lambda: None, 10_000)  # type: ignore[arg-type]
    run.block(root)
    return run.spans


def best_ms(call: Callable[[], Any], runs: int) -> tuple[float, Any]:
    best, answer = float("inf"), None
    for _ in range(runs):
        before = time.process_time()
        answer = call()
        best = min(best, (time.process_time() - before) * 1000)
    return best, answer


def tell(case: str, value: float, peer: str, peer_value: float) -> None:
    figure = {"bench": "traceql", "case": case, "value": round(value, 2), "unit": "ms", "better": "lower"}
    ratio = round(value / peer_value, 3) if peer_value else None
    sys.stdout.write(json.dumps({**figure, "peer": peer, "peer_value": round(peer_value, 2), "ratio": ratio}) + "\n")
    sys.stdout.flush()


def chdb_over(bucket: Path) -> Callable[[str], int] | None:
    """None if chDB is not installed."""
    try:
        session: Any = importlib.import_module("chdb.session").Session()
    except ImportError:
        return None
    table = f"file('{bucket}/**/*.parquet', 'Parquet')"
    return lambda sql: int(session.query(_dialect(sql).format(table=table), "CSV").data())


def _read(path: str, case: Case) -> pa.Table:
    return pq.read_table(path, columns=list(case.columns), partitioning=None)


def _dialect(sql: str) -> str:
    return sql.replace("quantile_cont(duration_ns, 0.99)", "quantile(0.99)(duration_ns)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a fiftieth of the spans")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    args = parser.parse_args()
    rows, runs = (SPANS // 50, 2) if args.quick else (SPANS, 3)
    LANGUAGE.warm()
    with tempfile.TemporaryDirectory(prefix="lakerunner-bench-") as name, ThreadPoolExecutor(2) as pool:
        folder = Path(name)
        bucket = folder / "bucket"
        bucket.mkdir()
        store = open_store(StoreConfig(bucket.as_uri()))
        segments = write(store, rows)
        paths = [str(bucket / segment.key) for segment in segments]
        sys.stderr.write(f"{rows:,} spans in {len(segments)} segments\n")
        minutes = -(-len(segments) // 2)
        connection = duckdb.connect()
        chdb = chdb_over(bucket)
        cache = ObjectCache(store, folder / "hot", 100 << 30)
        source = Source(RowsOpener(store, cache, decoded=ByteLru(DECODED_BYTES)), segments, pool)
        for case in CASES:
            if args.only not in case.name:
                continue
            table = f"read_parquet({paths!r}, hive_partitioning = false)"
            theirs, wanted = best_ms(lambda case=case, table=table: connection.execute(
                case.sql.format(table=table)).fetchone()[0], runs)  # fmt: skip
            found = ask(case, source, minutes, 1 << 30)
            assert found == wanted, f"{case.name}: {found} instead of {wanted}"
            ours, _ = best_ms(lambda case=case: ask(case, source, minutes, 1 << 30), runs)
            tell(case.name, ours, "DuckDB", theirs)
            if chdb is not None:
                peer, _ = best_ms(lambda case=case: chdb(case.sql), runs)
                tell(case.name, ours, "chDB", peer)
            floor, _ = best_ms(lambda case=case: [_read(path, case) for path in paths], runs)
            tell(case.name, ours, "pyarrow reads the columns", floor)
            if "search" in case.name:
                few, _ = best_ms(lambda case=case: ask(case, source, minutes, 20), runs)
                tell(f"{case.name}, newest 20", few, "DuckDB counts all", theirs)


if __name__ == "__main__":
    main()
