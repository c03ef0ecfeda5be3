"""How long a query takes to find its segments, as the index grows to millions of segments.

The rows are those of `bench/index.py`: 20 orgs, three signals, 360 segments an hour. Half of those in the last tenth
are superseded, as compaction leaves them within the grace. Each case is asked many times for random orgs and hours. The
peer is the target of 20 ms, or the same case over the smaller index. `cpu` is the mean CPU time of client and server,
which other work on the machine disturbs less than a percentile.
"""

from __future__ import annotations

import random
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import orjson
import psutil
import psycopg
from bench.index import END_NS, ORGS, days_of, fill

from lakerunner.index.database import Database
from lakerunner.index.lookup import Want, find, load_segments
from lakerunner.index.segments import ensure_partitions
from lakerunner.model.time import NS_PER_DAY, NS_PER_HOUR, TimeRange
from tests.components.postgres import PostgresServer

_RUNS = 300
_TARGET_MS = 20.0


def measure(quick: bool) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="lakerunner-bench-", ignore_cleanup_errors=True) as folder:
        server = PostgresServer(Path(folder))
        server.start()
        try:
            before: dict[str, float] = {}
            for segments in (50_000,) if quick else (1_000_000, 10_000_000):
                found = _percentiles(server.new_database(), segments)
                for case, value in found.items():
                    yield _line(case, value, segments, before.get(case))
                before = found
        finally:
            server.stop()


def _percentiles(url: str, segments: int) -> dict[str, float]:
    """The milliseconds of each case over an index of so many segments."""
    database = Database(url, statement_timeout_s=600)
    ensure_partitions(database, days_of(segments))
    with psycopg.connect(url, autocommit=True) as connection:
        fill(connection, {"segment": segments}, waiting=0)
        connection.execute("SET session_replication_role = replica")
        connection.execute(
            "UPDATE segment SET state = 'superseded', superseded_at = now() WHERE start_ns > %s AND hashtext("
            "segment_id::text) %% 2 = 0",
            [END_NS - segments // (10 * 360) * NS_PER_HOUR],
        )
        connection.execute("ANALYZE segment")
    chance = random.Random(1)
    hours = segments // 360

    def lookup(width_ns: int, signal: str = "logs", newest: bool = False) -> bool:
        org_id = uuid.UUID(int=1 + chance.randrange(ORGS))
        end_ns = END_NS if newest else END_NS - chance.randrange(max(1, hours - width_ns // NS_PER_HOUR)) * NS_PER_HOUR
        want = Want(signal, TimeRange(end_ns - width_ns, end_ns))
        return bool(database.read(lambda tx: find(tx, org_id, [want])).refs)

    def load() -> bool:
        org_id = uuid.UUID(int=1 + chance.randrange(ORGS))
        end_ns = END_NS - chance.randrange(1, hours) * NS_PER_HOUR
        refs = database.read(lambda tx: find(tx, org_id, [Want("logs", TimeRange(end_ns - NS_PER_HOUR, end_ns))])).refs
        return bool(database.read(lambda tx: load_segments(tx, refs)))

    cases: dict[str, Callable[[], bool]] = {
        "find, last hour": lambda: lookup(NS_PER_HOUR, newest=True),
        "find, any hour": lambda: lookup(NS_PER_HOUR),
        "find, any hour of metrics": lambda: lookup(NS_PER_HOUR, "metrics"),
        "find, any day": lambda: lookup(NS_PER_DAY),
        "find and load, any hour": load,
    }
    found = {f"{case}, {name}": value for case, call in cases.items() for name, value in _percentiles_ms(call).items()}
    database.close()
    return found


def _percentiles_ms(call: Callable[[], bool]) -> dict[str, float]:
    for _ in range(10):
        call()
    took, found = [], 0
    cpu_s = _cpu_s()
    for _ in range(_RUNS):
        started = time.perf_counter()
        found += call()
        took.append((time.perf_counter() - started) * 1000)
    cpu_ms = (_cpu_s() - cpu_s) * 1000 / _RUNS
    # All segments of an hour may be superseded, but not of many.
    assert found > 0.9 * _RUNS
    return {"p50": float(np.percentile(took, 50)), "p99": float(np.percentile(took, 99)), "cpu": cpu_ms}


def _cpu_s() -> float:
    """CPU time of this process and of the server's, which are its children."""
    me = psutil.Process()
    return sum(sum(process.cpu_times()[:2]) for process in (me, *me.children(recursive=True)))


def _line(case: str, value: float, segments: int, smaller: float | None) -> str:
    peer, peer_value = ("target", _TARGET_MS) if smaller is None else ("the same over the smaller index", smaller)
    line = {
        "bench": "lifecycle", "case": f"{case}, {segments:,} segments", "value": round(value, 3),
        "unit": "ms", "better": "lower", "peer": peer, "peer_value": round(peer_value, 3),
        "ratio": round(value / peer_value, 3),
    }  # fmt: skip
    return orjson.dumps(line).decode()
