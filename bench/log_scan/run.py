"""Runs the cases: `python -m bench log_scan` prints one JSON line per figure, `--quick` over a million records alone.

Times are CPU milliseconds of this process, all threads, and elapsed ones: the best of several runs. Cold means
that no column was decoded before; hot, that the same was asked before. Bytes are those that a fresh process asks of the
store, as a share of the columns that a full scan would read.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
from bench.log_scan.cases import Case, cases
from bench.log_scan.lines import Lake, lake
from bench.log_scan.peers import clickhouse_over, duckdb_over, floor_over
from bench.log_scan.source import Segments

from lakerunner.query.scan.object_cache import ObjectCache
from lakerunner.query.scan.rows.opened import RowsOpener
from lakerunner.query.scan.rows.request import RowScan, RowTally
from lakerunner.query.scan.rows.warm import warm
from lakerunner.runtime.byte_lru import ByteLru
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store

QUICK, FULL = (1_000_000,), (1_000_000, 5_000_000, 20_000_000)
DECODED_BYTES = 8 << 30
_THREADS = 8


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a million records, fewer runs")
    parser.add_argument("--rows", type=int, help="so many records instead")
    parser.add_argument("--runs", type=int, default=3, help="runs of each case; the best counts")
    parser.add_argument("--only", default="", help="only cases whose name has this text")
    parser.add_argument("--keep", help="folder for the records, to find them again in the next run")
    options = parser.parse_args(arguments)
    warm()
    for rows in [options.rows] if options.rows else QUICK if options.quick else FULL:
        with _folder(options.keep, rows) as folder:
            measure(lake(folder, rows), folder, rows, 2 if options.quick else options.runs, options.only)


@contextlib.contextmanager
def _folder(keep: str | None, rows: int) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="lakerunner-bench-") as name:
            yield Path(name)
    else:
        folder = Path(keep) / str(rows)
        folder.mkdir(parents=True, exist_ok=True)
        yield folder


def measure(records: Lake, folder: Path, rows: int, runs: int, only: str) -> None:
    sys.stderr.write(f"{rows:,} records in {len(records.segments)} segments, {records.size_bytes:,} bytes\n")
    peers = {"DuckDB": duckdb_over(records.paths), "floor": floor_over(records.paths)}
    clickhouse = clickhouse_over(records.paths)
    if clickhouse is None:
        sys.stderr.write("chDB is not installed: no figures of ClickHouse\n")
    else:
        peers["chDB"] = clickhouse
    store = open_store(StoreConfig(records.bucket.as_uri()))
    cache = ObjectCache(store, folder / "cache", 100 << 30)
    for segment in records.segments:
        cache.get(segment.key)
    with ThreadPoolExecutor(_THREADS) as pool, tempfile.TemporaryDirectory() as empty:

        def ask(case: Case, opener: RowsOpener, tally: RowTally) -> int:
            source = Segments(opener, records.segments, tally, pool)
            asked = case.asked
            return sum(batch.num_rows for batch in source.rows(asked)) if isinstance(asked, RowScan) else asked(source)

        for case in cases(records):
            if only not in case.name:
                continue
            fresh = RowTally()
            answer = ask(case, RowsOpener(store, ObjectCache(store, Path(empty), 1)), fresh)
            cold_opener = RowsOpener(store, cache)
            hot_opener = RowsOpener(store, cache, decoded=ByteLru(DECODED_BYTES))
            cold = best(lambda case=case, opener=cold_opener: ask(case, opener, RowTally()), runs, 1)
            hot = best(lambda case=case, opener=hot_opener: ask(case, opener, RowTally()), runs, 2)
            line = {
                "bench": "log_scan",
                "rows": rows,
                "case": case.name,
                "answer": answer,
                "hot_cpu_ms": hot[0],
                "hot_ms": hot[1],
                "cold_cpu_ms": cold[0],
                "cold_ms": cold[1],
                "bytes_percent": round(100 * fresh.read_bytes / _full_scan_bytes(records, case), 3),
                "bytes_percent_target": None if case.most_bytes is None else 100 * case.most_bytes,
            }
            for name, peer in peers.items():
                theirs = peer(case)
                assert name == "floor" or theirs == answer, f"{case.name}: {answer}, but {name} says {theirs}"
                line[f"{name}_cpu_ms"], line[f"{name}_ms"] = best(lambda case=case, peer=peer: peer(case), runs, 0)
                line[f"ratio_to_{name}"] = round(hot[0] / line[f"{name}_cpu_ms"], 3)
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()


def best(call: Callable[[], int], runs: int, warming: int) -> tuple[float, float]:
    """CPU and elapsed milliseconds, the best of the runs after some to warm up."""
    for _ in range(warming):
        call()
    spent, elapsed = [], []
    for _ in range(runs):
        cpu, began = time.process_time(), time.perf_counter()
        call()
        spent.append(time.process_time() - cpu)
        elapsed.append(time.perf_counter() - began)
    return round(min(spent) * 1e3, 2), round(min(elapsed) * 1e3, 2)


def _full_scan_bytes(records: Lake, case: Case) -> int:
    """The bytes of the columns that a scan without filters reads."""
    total = 0
    for path in records.paths:
        metadata = pq.read_metadata(path)
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            chunks = [group.column(leaf) for leaf in range(metadata.num_columns)]
            total += sum(chunk.total_compressed_size for chunk in chunks if chunk.path_in_schema in case.needs)
    return total


if __name__ == "__main__":
    main()
