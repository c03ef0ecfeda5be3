"""Freshness: the time from writing an object to its rows being visible in the index, under light load.

    python -m bench freshness [--objects 200] [--every 0.5]

It runs `lakerunner serve` as users do. The peer is the sum of the configured waits: until a file counts as complete,
until the next poll of the folder (on average half of the interval), and until an idle bundle is closed.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import orjson

from lakerunner.demo.produce import batches
from lakerunner.index.database import Database
from lakerunner.model.time import NS_PER_S
from lakerunner.runtime.settings import DataSettings, Settings
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store
from tests.ops.serve_process import ServeProcess

_TIMEOUT_S = 120.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the objects")
    parser.add_argument("--objects", type=int, help="objects to write (default 200)")
    parser.add_argument("--every", type=float, default=0.5, help="seconds between two of them")
    args = parser.parse_args()
    objects = args.objects or (20 if args.quick else 200)
    folder = Path(tempfile.mkdtemp(prefix="lakerunner-bench-"))
    serve = ServeProcess(folder, module="lakerunner")
    try:
        serve.start().await_all_ready()
        took = measure(serve, Settings(data=DataSettings(dir=folder)), objects, args.every)
    finally:
        serve.close()
        shutil.rmtree(folder, ignore_errors=True)
    settings = Settings()
    waits_s = settings.intake.folder_settle_s + settings.intake.folder_poll_s / 2 + settings.pipeline.bundle_idle_s
    for name, value in (("p50", statistics.median(took)), ("p99", sorted(took)[int(len(took) * 0.99) - 1])):
        line = {
            "bench": "freshness", "case": name, "value": round(value, 3), "unit": "s", "better": "lower",
            "peer": "configured waits", "peer_value": waits_s, "ratio": round(value / waits_s, 3),
            "objects": len(took),
        }  # fmt: skip
        sys.stdout.write(orjson.dumps(line).decode() + "\n")
    return 0


def measure(serve: ServeProcess, settings: Settings, count: int, every_s: float) -> list[float]:
    """Return the seconds from put to done for each object. Everything runs on this machine, with one clock."""
    store = open_store(StoreConfig.of(settings))
    # An object covers at most a minute of the shop's time, so a minute per object is enough.
    start_ns = time.time_ns() // NS_PER_S * NS_PER_S - count * 60 * NS_PER_S
    payloads = batches("logs", 0, start_ns, start_ns + count * 60 * NS_PER_S, 100.0)
    created: dict[str, float] = {}
    for nth in range(count):
        key = f"otel-raw/year=2026/month=01/day=01/hour=00/minute=00/logs_{nth}.binpb"
        store.put(key, next(payloads))
        created[key] = time.time()
        time.sleep(every_s)
    database = serve.database()
    try:
        done = _await_done(database, count)
    finally:
        database.close()
    return [done[key] - created[key] for key in created]


def _await_done(database: Database, count: int) -> dict[str, float]:
    end = time.monotonic() + _TIMEOUT_S
    while True:
        with database.transaction() as tx:
            rows = tx.execute(
                "SELECT key, extract(epoch FROM ended_at)::float8 AS done_at FROM raw_object WHERE state = 'done'"
            ).fetchall()
        if len(rows) == count:
            return {row["key"]: row["done_at"] for row in rows}
        if time.monotonic() > end:
            raise SystemExit(f"only {len(rows)} of {count} objects became visible in time")
        time.sleep(0.5)


if __name__ == "__main__":
    sys.exit(main())
