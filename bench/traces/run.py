"""Run the benchmark: write the lake, serve it, compare answers, measure, report."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import bench.traces
from bench.served.folder import is_filled, kept_folder, note_filled
from bench.served.index import postgres
from bench.served.options import read_options
from bench.served.report import Figure, Report, say
from bench.served.server import Lake, env_without_lakerunner
from bench.traces.by_id import measure_lookups
from bench.traces.cases import Case, cases, loaded
from bench.traces.ingest import measure_ingest
from bench.traces.lake import load
from bench.traces.peers import Peer, chdb_over, duckdb_over, floor_over
from bench.traces.spans import PER_SEGMENT
from bench.traces.streams import measure_stream

from lakerunner.index.database import Database

#: Increase it when the generator's output changes, so that old data is not reused.
_VERSION = 1
_SEGMENTS, _QUICK_SEGMENTS = 200, 4
_MAX_SAMPLES = 400_000_000
_figure = partial(Figure, "traces")


def main() -> int:
    options = read_options("traces", bench.traces.__doc__, "use a fiftieth of the spans")
    env_without_lakerunner()
    # SIGTERM must stop the servers too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    segments = _QUICK_SEGMENTS if options.quick else _SEGMENTS
    with kept_folder(options.keep) as folder, postgres(folder / "lake") as (database, index_pid):
        own = Lake(folder / "lake", index_pid, _MAX_SAMPLES, **dict(options.settings))
        try:
            _fill(database, own.folder, segments)
            own.start()
            return _bench(own, database, segments, options)
        finally:
            own.stop()


def _fill(database: Database, folder: Path, segments: int) -> None:
    contents = f"{_VERSION} {segments}"
    if is_filled(folder, contents):
        return
    if (folder / "bucket").exists():
        raise SystemExit(f"cannot load into {folder}: it holds the spans of another run; remove it")
    began = time.monotonic()
    load(database, folder, segments)
    note_filled(folder, contents)
    say(f"{segments * PER_SEGMENT:,} spans written in {time.monotonic() - began:.0f} s")


def _bench(own: Lake, database: Database, segments: int, options: argparse.Namespace) -> int:
    report, wrong = Report(), 0
    bucket = own.folder / "bucket"
    paths = sorted(map(str, bucket.rglob("*.parquet")))
    peers: dict[str, Peer] = {"DuckDB": duckdb_over(paths)}
    if (chdb := chdb_over(bucket)) is not None:
        peers = {"chDB": chdb, **peers}
    else:
        say("chDB is not installed: no figures of ClickHouse (pip install -e '.[bench]')")
    floor = floor_over(paths)

    def is_wanted(name: str) -> bool:
        return not options.only or any(each in name for each in options.only)

    if is_wanted("by id"):
        measure_lookups(own, report, paths, segments, peers, options.rounds)
    cpu_of: dict[str, float] = {}
    for case in cases(segments):
        if not is_wanted(case.name):
            continue
        answer = case.ours(loaded(_ask(own, case)))
        for name, peer in peers.items():
            theirs = case.theirs(peer(case.sql))
            if theirs != answer:
                wrong += 1
                say(f"DIFFERENT ANSWER: {case.name}: {name} has {_shown(theirs)}, ours is {_shown(answer)}")
        wall, cpu = _best(partial(_ask, own, case), own.cpu_s, options.rounds)
        cpu_of[case.name] = cpu
        for name, peer in peers.items():
            their_wall, their_cpu = _best(partial(peer, case.sql), time.process_time, options.rounds)
            report.tell(_figure(f"{case.name}, wall", wall, "ms", name, their_wall))
            most = case.most if name == "chDB" else None
            report.tell(_figure(f"{case.name}, cpu", cpu, "ms", name, their_cpu, most))
        _, floor_cpu = _best(partial(floor, case), time.process_time, 2)
        report.tell(_figure(f"{case.name}, cpu", cpu, "ms", "decoding its columns", floor_cpu))
        if case.beside in cpu_of:
            report.tell(_figure(f"{case.name}, cpu", cpu, "ms", "the flat search", cpu_of[case.beside], 3.0))
    if is_wanted("stream"):
        measure_stream(own, report, segments)
    if is_wanted("ingest"):
        own.stop()
        folder = own.folder.parent / "ingested"
        folder.mkdir(exist_ok=True)
        # Only the index is left of the servers.
        measure_ingest(database, own.cpu_s, report, folder, 60_000 if options.quick else 200_000, options.rounds)
    report.conclude(
        "hot: asked before; cold: after a restart with empty caches; the best of the rounds; "
        f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    return 1 if wrong else 0


def _ask(own: Lake, case: Case) -> bytes:
    response = own.send("GET", case.target)
    body = response.read()
    if response.status != 200:
        raise SystemExit(f"{case.name}: {response.status} {body[:500]!r}")
    return body


def _best(call: Callable[[], Any], clock: Callable[[], float], rounds: int) -> tuple[float, float]:
    """Elapsed and CPU milliseconds, the best of some rounds after two to warm up."""
    walls, cpus = [], []
    for number in range(rounds + 2):
        cpu, began = clock(), time.perf_counter()
        call()
        if number > 1:
            walls.append((time.perf_counter() - began) * 1e3)
            cpus.append((clock() - cpu) * 1e3)
    return min(walls), min(cpus)


def _shown(answer: Any) -> str:
    size: Sequence[Any] = answer
    return f"{len(size):,} of {str(answer)[:200]}"


if __name__ == "__main__":
    sys.exit(main())
