"""Scanning rows of logs: `python -m bench rows` prints one JSON line a figure; `--quick` takes a tenth of the rows.

Every case is asked of the row scan with segments on the local disk, of the same scan again and again (decoded columns
in memory), and of DuckDB over the same files. The floor is pyarrow decompressing the columns a case needs, and no
more. Times are CPU milliseconds of this process, all threads, the best of several runs. Bytes are those a fresh
process asks of the store, as a share of all segments.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from bench.peak_memory import peak_bytes

from lakerunner.formats.attributes import with_keys
from lakerunner.model.ids import fresh_id
from lakerunner.model.signals.logs import LOGS
from lakerunner.model.time import NS_PER_MS, NS_PER_S
from lakerunner.query.scan.object_cache import ObjectCache
from lakerunner.query.scan.rows.conditions.predicate import (
    EVERYTHING,
    Column,
    Compare,
    Contains,
    Int,
    Matches,
    Op,
    Predicate,
    Text,
)
from lakerunner.query.scan.rows.opened import RowsOpener
from lakerunner.query.scan.rows.request import RowScan, RowSegment, RowTally
from lakerunner.query.scan.rows.scan import scan_segments
from lakerunner.runtime.byte_lru import ByteLru
from lakerunner.store import keys
from lakerunner.store.config import StoreConfig
from lakerunner.store.object_store import ObjectStore
from lakerunner.store.open import open_store
from lakerunner.store.segment_writer import describe, encode_tables, segment_of

ORG = uuid.UUID(int=1)
START_NS = 1_700_000_000 * NS_PER_S
ROWS_PER_SEGMENT = 50_000
#: Two collectors write at the same time: neighbours overlap.
SEGMENT_NS = 120 * NS_PER_S
SERVICES = [f"service-{number:02}" for number in range(30)]
DECODED_BYTES = 1 << 30
#: Less than the columns of the cases together, so that the bound is felt.
SMALL_DECODED_BYTES = 256 << 20
_ABSENT = "f" * 32


@dataclass(frozen=True)
class Case:
    name: str
    predicate: Predicate
    where: str
    #: What the predicate, the order and the projection need of all segments.
    floor: tuple[str, ...]
    limit: int | None = 50
    columns: tuple[str, ...] | None = None
    #: The share of all bytes that a fresh process may ask for.
    target: float | None = None


def cases(trace_id: str) -> list[Case]:
    def equal(name: str, value: str) -> Compare:
        return Compare(Column(name), Op.EQUAL, Text(value))

    times = ("timestamp", "timestamp_nanos")
    service = "service-07"
    return [
        Case("newest 50 of a service", equal("service_name", service), f"service_name = '{service}'",
             (*times, "service_name"), target=0.02),
        Case("newest 50 errors", Compare(Column("severity_number"), Op.GREATER_EQUAL, Int(17)),
             "severity_number >= 17", (*times, "severity_number")),
        Case("newest 50 of an attribute's value", equal("attr_user_id", "user-00421"), "attr_user_id = 'user-00421'",
             (*times, "attr_user_id")),
        Case("newest 50 by pattern", Matches(Column("message"), r"timeout after 29\d\dms", anchored=False),
             r"regexp_matches(message, 'timeout after 29\d\dms')", (*times, "message")),
        Case("newest 50 by rare text", Contains(Column("message"), "payment-0000123 "),
             "contains(message, 'payment-0000123 ')", (*times, "message")),
        Case("a trace", equal("trace_id", trace_id), f"trace_id = '{trace_id}'", (*times, "trace_id")),
        Case("an absent trace", equal("trace_id", _ABSENT), f"trace_id = '{_ABSENT}'", ("trace_id",), target=0.005),
        Case("two columns of all rows", EVERYTHING, "true", (*times, "service_name", "severity_number"),
             None, ("service_name", "severity_number")),
        Case("export of a service", equal("service_name", service), f"service_name = '{service}'",
             (*times, "service_name"), None),
    ]  # fmt: skip


def text(pattern: Sequence[pa.Array | str], rows: int) -> pa.Array:
    parts = [
        pa.array([part]).take(pa.array(np.zeros(rows, np.int64))) if isinstance(part, str) else part for part in pattern
    ]
    return pc.binary_join_element_wise(*parts, "")


def numbered(prefix: str, numbers: np.ndarray, width: int) -> pa.Array:
    digits = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), width, "0")
    return text([prefix, digits], len(numbers))


def hexed(random: np.random.Generator, count: int, size: int) -> pa.Array:
    raw = random.bytes(count * size).hex()
    return pa.array([raw[at : at + 2 * size] for at in range(0, len(raw), 2 * size)])


def logs(number: int, rows: int, random: np.random.Generator) -> pa.Table:
    """OTLP-like lines: some services talk more than others, spans share traces, few lines are errors."""
    weights = 1 / np.arange(1, len(SERVICES) + 1)
    service = random.choice(len(SERVICES), rows, p=weights / weights.sum())
    start_ns = START_NS + number // 2 * SEGMENT_NS
    times = start_ns + random.integers(0, SEGMENT_NS, rows)
    level = random.choice(4, rows, p=[0.1, 0.82, 0.05, 0.03])
    traces, spans = hexed(random, rows // 5, 16), hexed(random, rows // 2, 8)
    millis = random.integers(1, 3_000, rows)
    payment = random.integers(0, 10_000_000, rows)
    path = random.integers(0, 200, rows)
    kind = pa.array(random.integers(0, 4, rows))
    forms = [
        text(
            ["handled request ", numbered("/api/v1/items/", path, 1), " in ", pa.array(millis).cast(pa.string()), "ms"],
            rows,
        ),
        text(
            ["charged ", numbered("payment-", payment, 7), " of customer ", numbered("user-", payment % 50_000, 5)],
            rows,
        ),
        text(["upstream timeout after ", pa.array(millis).cast(pa.string()), "ms, will retry"], rows),
        text(["cache miss for key ", traces.take(pa.array(random.integers(0, len(traces), rows)))], rows),
    ]
    columns = {
        "timestamp": pa.array(times),
        "observed_timestamp": pa.array(times + random.integers(0, 5 * NS_PER_MS, rows)),
        "service_name": pa.array(SERVICES).take(pa.array(service)),
        "severity": pa.array(["DEBUG", "INFO", "WARN", "ERROR"]).take(pa.array(level)),
        "severity_number": pa.array([5, 9, 13, 17]).take(pa.array(level)),
        "message": pc.choose(kind, *forms),
        "trace_id": traces.take(pa.array(random.integers(0, len(traces), rows))),
        "span_id": spans.take(pa.array(random.integers(0, len(spans), rows))),
        "flags": pa.array(np.ones(rows, np.int64)),
    }
    pods = service * 8 + random.integers(0, 8, rows)
    attributes = {
        "attr_http_method": pa.array(["GET", "POST", "PUT"]).take(pa.array(random.integers(0, 3, rows))),
        "attr_http_status": pa.array([200, 201, 404, 500]).take(
            pa.array(random.choice(4, rows, p=[0.8, 0.1, 0.07, 0.03]))
        ),
        "attr_url_path": numbered("/api/v1/items/", path, 1),
        "attr_user_id": numbered("user-", random.integers(0, 50_000, rows), 5),
        "attr_duration_ms": pa.array(random.exponential(40.0, rows)),
        "attr_cache_hit": pa.array(random.random(rows) < 0.7),
        "attr_thread_name": numbered("worker-", random.integers(0, 32, rows), 1),
        "resource_k8s_pod_name": numbered("pod-", pods, 4),
        "resource_host_name": numbered("node-", pods % 40, 3),
        "resource_deployment_environment": numbered("env-", service % 3, 1),
        "scope_name": numbered("io.shop.", service % 12, 1),
    }
    fixed = [
        columns[column.name].cast(column.type) if column.name in columns else pa.nulls(rows, column.type)
        for column in LOGS.rows.columns
    ]
    table = pa.Table.from_arrays(fixed, schema=LOGS.rows.schema())
    for name in sorted(attributes):
        table = table.append_column(name, attributes[name])
    table = with_keys(table, {name: [name.split("_", 1)[1]] for name in attributes})
    return table.sort_by([(name, "ascending") for name in LOGS.rows.sort_key])


def write(store: ObjectStore, rows: int) -> tuple[list[RowSegment], str]:
    """The segments, and a trace that one of them has."""
    random = np.random.default_rng(7)
    segments = []
    trace_id = ""
    for number in range(rows // ROWS_PER_SEGMENT):
        table = logs(number, ROWS_PER_SEGMENT, random)
        (body,) = encode_tables(LOGS, {"": table})
        segment = segment_of(LOGS, describe(LOGS, table), segment_id=fresh_id(), org_id=ORG, collector="bench",
                             size_bytes=body.size)  # fmt: skip
        store.put(keys.segment_keys(segment)[0], memoryview(body))
        segments.append(RowSegment.of(segment))
        trace_id = trace_id or table.column("trace_id")[ROWS_PER_SEGMENT // 3].as_py()
    return segments, trace_id


def best_ms(call: Callable[[], int], runs: int) -> tuple[float, int]:
    """CPU milliseconds, the best of the runs after one to warm up, and what the call gave."""
    given = call()
    spent = []
    for _ in range(runs):
        began = time.process_time()
        given = call()
        spent.append(time.process_time() - began)
    return min(spent) * 1e3, given


def tell(case: str, value: float, unit: str, peer: str, peer_value: float) -> None:
    line = {
        "bench": "rows",
        "case": case,
        "value": round(value, 3),
        "unit": unit,
        "better": "lower",
        "peer": peer,
        "peer_value": round(peer_value, 3),
        "ratio": round(value / peer_value, 3) if peer_value else None,
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def count(opener: RowsOpener, segments: Sequence[RowSegment], case: Case, tally: RowTally) -> int:
    scan = RowScan(LOGS, case.predicate, case.columns, limit=case.limit)
    return sum(batch.num_rows for batch in scan_segments(opener, segments, scan, lambda held_bytes: None, tally))


def by_duckdb(connection: duckdb.DuckDBPyConnection, paths: Sequence[str], case: Case) -> int:
    names = "*" if case.columns is None else ", ".join(("timestamp", "timestamp_nanos", *case.columns))
    query = f"SELECT {names} FROM read_parquet(?) WHERE {case.where} ORDER BY timestamp DESC, timestamp_nanos DESC"  # noqa: S608
    if case.limit is not None:
        query += f" LIMIT {case.limit}"
    reader = connection.sql(query, params=[list(paths)]).to_arrow_reader(100_000)
    return sum(batch.num_rows for batch in reader)


def floor(paths: Sequence[str], case: Case) -> int:
    for path in paths:
        pq.read_table(path, columns=list(case.floor), use_threads=False, partitioning=None)
    return 0


def measure(folder: Path, rows: int, runs: int, only: str) -> None:
    bucket = folder / "bucket"
    store = open_store(StoreConfig(bucket.as_uri()))
    segments, trace_id = write(store, rows)
    paths = [str(bucket / segment.key) for segment in segments]
    total_bytes = sum(segment.size_bytes for segment in segments)
    sys.stderr.write(f"{rows:,} rows in {len(segments)} segments, {total_bytes:,} bytes\n")
    connection = duckdb.connect()
    connection.execute("SET parquet_metadata_cache = true")
    connection.execute("SET late_materialization_max_rows = 1000")
    hot = ObjectCache(store, folder / "hot", 100 << 30)
    for segment in segments:
        hot.get(segment.key)
    for case in cases(trace_id):
        if only not in case.name:
            continue
        cold = RowsOpener(store, ObjectCache(store, folder / f"cold-{fresh_id()}", 100 << 30))
        tally = RowTally()
        found = count(cold, segments, case, tally)
        share = 100 * tally.read_bytes / total_bytes
        target = 100 * case.target if case.target is not None else 100.0
        tell(f"{case.name}, cold, bytes", share, "% of all", "target", target)
        opener = RowsOpener(store, hot)
        cpu, _ = best_ms(lambda case=case, opener=opener: count(opener, segments, case, RowTally()), runs)
        peer, theirs = best_ms(lambda case=case: by_duckdb(connection, paths, case), runs)
        assert found == theirs, f"{case.name}: {found} rows instead of {theirs}"
        least, _ = best_ms(lambda case=case: floor(paths, case), max(1, runs - 1))
        tell(f"{case.name}, hot, cpu", cpu, "ms", "DuckDB", peer)
        tell(f"{case.name}, hot, cpu", cpu, "ms", "pyarrow reads the columns of all segments", least)
        keeping = RowsOpener(store, hot, decoded=ByteLru(DECODED_BYTES))
        count(keeping, segments, case, RowTally())
        again, _ = best_ms(lambda case=case, keeping=keeping: count(keeping, segments, case, RowTally()), runs)
        tell(f"{case.name}, decoded before, cpu", again, "ms", "DuckDB", peer)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        peak_mib = pool.apply(peak_of_all, (folder, segments, trace_id))
    tell(
        "peak memory, all cases twice in one process", peak_mib, "MiB", "its decoded cache", SMALL_DECODED_BYTES / 2**20
    )


def peak_of_all(folder: Path, segments: Sequence[RowSegment], trace_id: str) -> float:
    """Resident MiB at the peak of a process of its own, above those before its first scan."""
    store = open_store(StoreConfig((folder / "bucket").as_uri()))
    opener = RowsOpener(store, ObjectCache(store, folder / "hot", 100 << 30), decoded=ByteLru(SMALL_DECODED_BYTES))
    before = psutil.Process().memory_info().rss
    for case in cases(trace_id) * 2:
        count(opener, segments, case, RowTally())
    return (peak_bytes() - before) / 2**20


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a million rows instead of ten")
    parser.add_argument("--runs", type=int, default=3, help="runs of each case; the best counts")
    parser.add_argument("--only", default="", help="only cases whose name has this text")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="lakerunner-bench-") as name:
        measure(Path(name), 1_000_000 if options.quick else 10_000_000, options.runs, options.only)


if __name__ == "__main__":
    main()
