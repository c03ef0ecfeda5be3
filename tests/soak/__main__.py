"""Kill a random role of `serve --demo` every few seconds and PostgreSQL now and then, then count every row.

    python -m tests.soak [--minutes 20] [--kill-every 5] [--postgres 2] [--seed N] [--keep DIR]

One JSON line per fact; a fact that must be true has a verdict, "held" or "broken". Exits with 1 if any is broken.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import orjson

from lakerunner.index.database import Connection
from tests.soak import counting
from tests.soak.deployment import KEEP_S, Deployment, TableSize

_IDLE_S = 10.0
_DRAIN_S = 900.0
_SAMPLES = 5
#: Tables with a row per object or segment; the lake grows with what is sent.
_PER_INPUT = ("raw_object", "segment", "segment_input")
#: Tables that upkeep empties once everything has ended and is older than it is kept.
_EMPTIED = ("outbox", "bus_message", "work_item")
#: No other table may have more rows than this, nor be larger: their rows are settings, or updated in place.
_CONSTANT_ROWS, _CONSTANT_BYTES = 1_000, 32 * 1024 * 1024


class Facts:
    """Prints facts and remembers whether all hold."""

    def __init__(self) -> None:
        self.broken: list[str] = []

    def tell(self, fact: str, **values: object) -> None:
        sys.stdout.write(orjson.dumps({"fact": fact, **values}).decode() + "\n")
        sys.stdout.flush()

    def must(self, fact: str, holds: bool, **values: object) -> None:
        if not holds:
            self.broken.append(fact)
        self.tell(fact, verdict="held" if holds else "broken", **values)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0, help="how long roles are killed")
    parser.add_argument("--kill-every", type=float, default=5.0, help="seconds between two kills of a role")
    parser.add_argument("--postgres", type=int, default=2, help="how often PostgreSQL is killed")
    parser.add_argument("--seed", type=int, default=0, help="chooses the roles")
    parser.add_argument("--keep", type=Path, help="folder in which data and logs stay; without it they are deleted")
    chosen = parser.parse_args()
    facts = Facts()
    with tempfile.TemporaryDirectory(prefix="lakerunner-soak-", ignore_cleanup_errors=True) as folder:
        if chosen.keep is not None:
            chosen.keep.mkdir(parents=True, exist_ok=True)
        deployment = Deployment(chosen.keep or Path(folder), chosen.seed)
        try:
            _soak(deployment, facts, chosen.minutes * 60, chosen.kill_every, chosen.postgres)
            _check(deployment, facts)
        finally:
            deployment.close()
    facts.tell("soak", verdict="broken" if facts.broken else "held", broken=facts.broken, seed=chosen.seed)
    return 1 if facts.broken else 0


def _soak(deployment: Deployment, facts: Facts, seconds: float, kill_every_s: float, postgres_kills: int) -> None:
    facts.tell("seconds to ready", value=round(deployment.start(), 1))
    deployment.stop_producing()
    _await_ingested(deployment)
    facts.tell("pss", megabytes=deployment.pss_bytes() // 1024**2)
    facts.tell("idle cpu", percent_of_a_core=round(100 * deployment.cpu_share(_IDLE_S), 1))
    deployment.produce()
    deployment.soak_from_s, started = time.time(), time.monotonic()
    postgres_at = [seconds * (nth + 1) / (postgres_kills + 1) for nth in range(postgres_kills)]
    samples_at = [seconds * (nth + 1) / _SAMPLES for nth in range(_SAMPLES)]
    kill_at = kill_every_s
    while (now := time.monotonic() - started) < seconds:
        if now >= kill_at:
            deployment.kill_any()
            kill_at += kill_every_s
        if postgres_at and now >= postgres_at[0]:
            deployment.kill_postgres()
            del postgres_at[0]
        if now >= samples_at[0]:
            _sample(deployment, facts, now)
            del samples_at[0]
        time.sleep(0.1)
    deployment.soak_until_s = time.time()
    facts.tell("kills", **Counter(kill.name for kill in deployment.kills))


def _sample(deployment: Deployment, facts: Facts, at_s: float) -> None:
    sizes = deployment.table_sizes()
    facts.tell("tables", at_s=round(at_s), **{name: [size.rows, size.size_bytes] for name, size in sizes.items()})
    _tell_freshness(deployment, facts, round(at_s))


def _tell_freshness(deployment: Deployment, facts: Facts, at_s: int | None = None) -> None:
    between = deployment.soak_from_s, deployment.soak_until_s
    took = deployment.read(lambda tx: counting.freshness(tx, deployment.bucket, *between))
    waiting = len(counting.raw_files(deployment.bucket)) - deployment.read(_states)["done"]
    if took:
        p50, p99 = (round(took[int((len(took) - 1) * share)], 1) for share in (0.5, 0.99))
        facts.tell(
            "freshness", at_s=at_s, p50_s=p50, p99_s=p99, max_s=round(took[-1], 1), done=len(took), waiting=waiting
        )


def _await_ingested(deployment: Deployment) -> dict[str, int]:
    """Wait until every raw file has ended and nothing is on its way; return the objects by state."""
    end = time.monotonic() + _DRAIN_S
    while True:
        states = deployment.read(_states)
        files = len(counting.raw_files(deployment.bucket))
        ended = states["done"] + states["quarantined"] == files and not states["unsent"]
        if ended or time.monotonic() > end:
            return dict(states)
        time.sleep(0.5)


def _states(tx: Connection) -> Counter[str]:
    rows = tx.execute(
        "SELECT state, count(*) AS n FROM raw_object GROUP BY state"
        " UNION ALL SELECT 'unsent', count(*) FROM outbox WHERE published_at IS NULL"
    ).fetchall()
    return Counter({row["state"]: row["n"] for row in rows})


def _check(deployment: Deployment, facts: Facts) -> None:
    deployment.serve.await_all_ready(240)
    deployment.stop_producing()
    started = time.monotonic()
    states = _await_ingested(deployment)
    files = counting.raw_files(deployment.bucket)
    facts.tell("drained", seconds=round(time.monotonic() - started, 1))
    _tell_freshness(deployment, facts)
    facts.must("all raw files are ingested", states.get("done", 0) == len(files), files=len(files), **states)
    segments = deployment.read(counting.live_segments)
    sent = counting.sent_rows(files)
    indexed, stored = counting.index_rows(segments), counting.file_rows(deployment.bucket, segments)
    for signal, rows in sent.items():
        equal = rows == indexed[signal] == stored[signal]
        facts.must(f"rows of {signal}", equal, sent=rows, in_index=indexed[signal], in_files=stored[signal])
    left = counting.orphans(deployment.bucket, segments)
    strange = counting.unaccounted(left, deployment.kills)
    facts.must("orphan files are of killed attempts", not strange, orphans=len(left), unaccounted=strange[:20])
    _check_tables(deployment, facts, len(files), len(segments))
    facts.must("serve stops in order", _stops(deployment))


def _check_tables(deployment: Deployment, facts: Facts, objects: int, segments: int) -> None:
    sizes = deployment.table_sizes()
    end = time.monotonic() + KEEP_S + 90
    while any(sizes[name].rows for name in _EMPTIED) and time.monotonic() < end:
        time.sleep(1.0)
        sizes = deployment.table_sizes()
    facts.tell("tables", **{name: [size.rows, size.size_bytes] for name, size in sizes.items()})
    unbounded = sorted(name for name, size in sizes.items() if not _is_bounded(name, size, objects, segments))
    facts.must("tables are bounded", not unbounded, unbounded=unbounded)


def _is_bounded(name: str, size: TableSize, objects: int, segments: int) -> bool:
    if name in _EMPTIED:
        return size.rows == 0
    if name.startswith(_PER_INPUT):
        return size.rows <= objects + segments
    return size.rows <= _CONSTANT_ROWS and size.size_bytes <= _CONSTANT_BYTES


def _stops(deployment: Deployment) -> bool:
    deployment.produce()
    return deployment.serve.terminate(60) == 0


if __name__ == "__main__":
    sys.exit(main())
