"""Ingest end to end with the default deployment, against its ceiling: the same work in plain processes.

    PYTHONPATH=src python -m bench.ingest [--full] [--growth] [--logs 1000000] [--metrics 2000000] [--traces 500000]

It prints one JSON line per figure. The ceiling reads, decodes, sorts and writes the same objects with the same code, in
one process per core, without Spark, index and bus.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil
from bench.otlp import objects

from lakerunner.bus import topics
from lakerunner.bus.messages import ObjectSeen, encode
from lakerunner.bus.relay import relay_once
from lakerunner.index import ledger, outbox
from lakerunner.index.embedded import EmbeddedPostgres
from lakerunner.index.migrate import migrate
from lakerunner.index.outbox import Outgoing
from lakerunner.intake.buckets import own_bucket
from lakerunner.model.errors import LakeError
from lakerunner.model.raw_object import RawObject
from lakerunner.model.signal import Signal
from lakerunner.model.signals import SIGNALS, signal_named
from lakerunner.pipeline.ingest.stage import INGEST, shares
from lakerunner.pipeline.ingest.task import IngestTask, run_task
from lakerunner.pipeline.stages import boxer_role, worker_role
from lakerunner.runtime.settings import DataSettings, HttpSettings, LogSettings, Settings
from lakerunner.runtime.stop import Stop
from lakerunner.runtime.telemetry import configure_telemetry
from lakerunner.store import keys
from lakerunner.store.bucket import version_of
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store

ORG = uuid.UUID(int=1)
CORES = os.cpu_count() or 1
ROWS = {"logs": 1_000_000, "metrics": 2_000_000, "traces": 500_000}
QUICK_ROWS = {"logs": 200_000, "metrics": 400_000, "traces": 100_000}
GROWTH = (250_000, 500_000, 1_000_000, 2_000_000)


def report(case: str, value: float, unit: str, better: str, peer: str = "", peer_value: float | None = None) -> None:
    ratio = None if not peer_value else round(value / peer_value, 3)
    line = {"bench": "ingest", "case": case, "value": round(value, 3), "unit": unit, "better": better}
    line |= {"peer": peer, "peer_value": None if peer_value is None else round(peer_value, 3), "ratio": ratio}
    print(json.dumps(line), flush=True)  # noqa: T201


class PeakMemory:
    """Samples the peak of the resident memory of this process and its descendants, without PostgreSQL."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._stop = Stop()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.request()
        self._thread.join()

    def _watch(self) -> None:
        me = psutil.Process()
        while not self._stop.wait(0.2):
            total = 0
            for process in [me, *me.children(recursive=True)]:
                try:
                    if "postgres" not in process.name():
                        total += process.memory_info().rss
                except psutil.Error:
                    continue
            self.peak_bytes = max(self.peak_bytes, total)


def cpu_seconds() -> float:
    """Return the CPU time of this process and its descendants, which other processes do not distort."""
    me = psutil.Process()
    total = 0.0
    for process in [me, *me.children(recursive=True)]:
        try:
            times = process.cpu_times()
            total += times.user + times.system
        except psutil.Error:
            continue
    return total


class Deployment:
    """The default deployment: embedded PostgreSQL, a folder as the bucket, and the ingest roles as threads."""

    def __init__(self, folder: Path) -> None:
        self.settings = Settings(
            data=DataSettings(dir=folder), http=HttpSettings(port=0), log=LogSettings(level="error")
        )
        configure_telemetry("bench", self.settings)
        self.store = open_store(StoreConfig.of(self.settings))
        self._postgres = EmbeddedPostgres(folder)
        self._process = self._postgres.spawn(folder / "postgres.log")
        self.ingest = worker_role(INGEST)(self.settings)
        self.boxer = boxer_role(INGEST)(self.settings)
        self.database = self.ingest.database
        self._migrate()
        self._stop = Stop()
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._relay, self._box, self._ingest)]

    def _migrate(self) -> None:
        end = time.monotonic() + 30
        while True:
            try:
                migrate(self.database)
                return
            except LakeError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)

    def start(self) -> None:
        self.boxer.start()
        self.ingest.start()
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._stop.request()
        for thread in self._threads:
            thread.join(60)
        self.ingest.close()
        self.boxer.close()
        self._postgres.stop()
        self._process.wait(30)

    def _relay(self) -> None:
        while not self._stop:
            if not relay_once(self.database, self.ingest.bus):
                self._stop.wait(0.02)

    def _box(self) -> None:
        self.boxer.run(self._stop)

    def _ingest(self) -> None:
        self.ingest.run(self._stop)

    def put(self, signal: Signal, paths: list[Path], run: str) -> list[RawObject]:
        raws = []
        for path in paths:
            key = f"{keys.raw_prefix(ORG)}{run}/{path.name}"
            meta = self.store.put(key, path.read_bytes())
            bucket = own_bucket(self.settings)
            raws.append(RawObject(ORG, run, signal.name, bucket, key, version_of(meta), meta.size_bytes))
        return raws

    def record(self, signal: Signal, raws: list[RawObject]) -> None:
        topic = topics.objects(signal).name
        messages = [
            Outgoing(topic, str(raw.org_id), encode(ObjectSeen(
                raw.object_id, raw.org_id, raw.collector, raw.signal, raw.bucket, raw.key, raw.version, raw.size_bytes
            )))
            for raw in raws
        ]  # fmt: skip
        with self.database.transaction() as tx:
            ledger.record_seen(tx, raws)
            outbox.put(tx, messages)

    def await_done(self, run: str) -> tuple[int, int, int]:
        """Wait until every object of the run has ended. Return rows, bytes and number of segments."""
        while True:
            with self.database.transaction() as tx:
                left = tx.execute(
                    "SELECT count(*) FILTER (WHERE state IN ('seen', 'bundled')) AS n,"
                    " count(*) FILTER (WHERE state = 'quarantined') AS bad FROM raw_object WHERE collector = %s",
                    [run],
                ).fetchone()
                assert left is not None and left["bad"] == 0
                if left["n"] == 0:
                    found = tx.execute(
                        "SELECT sum(row_count)::bigint AS rows, sum(size_bytes)::bigint AS bytes, count(*) AS n"
                        " FROM segment WHERE collector = %s",
                        [run],
                    ).fetchone()
                    assert found is not None
                    return found["rows"], found["bytes"], found["n"]
            time.sleep(0.01)


def _import_only(_: int) -> bool:
    import lakerunner.pipeline.ingest.task  # noqa: F401

    time.sleep(0.2)
    return True


def _do(task: IngestTask) -> int:
    result = run_task(task)
    assert result.error is None, result.error
    return sum(segment.row_count for segment in result.segments)


def ceiling(
    deployment: Deployment, signal: Signal, raws: list[RawObject], pool: ProcessPoolExecutor, scratch: Path
) -> float:
    """Return rows per second of plain processes over the same objects, written to another bucket."""
    settings = deployment.settings.pipeline
    source = StoreConfig.of(deployment.settings)
    target = StoreConfig(url=(scratch / f"ceiling-{uuid.uuid4().hex}").as_uri())
    tasks = [
        IngestTask(uuid.uuid4(), ORG, "c", signal.name, share, {raws[0].bucket: source}, target)
        for share in shares(raws, settings.task_bytes, settings.expansion)
    ]
    started = time.perf_counter()
    rows = sum(pool.map(_do, tasks))
    return rows / (time.perf_counter() - started)


def end_to_end(deployment: Deployment, signal: Signal, raws: list[RawObject], run: str) -> tuple[float, int, int, int]:
    started = time.perf_counter()
    deployment.record(signal, raws)
    rows, size_bytes, segments = deployment.await_done(run)
    return rows / (time.perf_counter() - started), rows, size_bytes, segments


def measure(
    deployment: Deployment, signal: Signal, rows: int, pool: ProcessPoolExecutor, folder: Path, rounds: int
) -> None:
    paths = objects(signal.name, rows, folder)
    raw_bytes = sum(path.stat().st_size for path in paths)
    ours, best, our_cpu, best_cpu = [], [], [], []
    # Both take turns, so that other load on the machine affects them equally.
    for _ in range(rounds):
        run = uuid.uuid4().hex
        raws = deployment.put(signal, paths, run)
        before = cpu_seconds()
        best.append(ceiling(deployment, signal, raws, pool, deployment.settings.data.dir))
        between = cpu_seconds()
        with PeakMemory() as memory:
            rate, landed, size_bytes, segments = end_to_end(deployment, signal, raws, run)
        ours.append(rate)
        best_cpu.append(between - before)
        our_cpu.append(cpu_seconds() - between)
    rate, peer = max(ours), max(best)
    report(f"{signal}_records_per_s", rate, "records/s", "higher", "plain processes", peer)
    costs = [1e6 * min(cpu) / landed for cpu in (our_cpu, best_cpu)]
    report(f"{signal}_cpu_us_per_record", costs[0], "us", "lower", "plain processes", costs[1])
    report(f"{signal}_records_per_s_per_core", rate / CORES, "records/s", "higher", "target", 60_000)
    report(f"{signal}_mb_per_s_per_core", rate * raw_bytes / landed / CORES / 1e6, "MB/s", "higher")
    report(f"{signal}_output_of_raw", size_bytes / raw_bytes, "ratio", "lower", "target", 0.2)
    report(f"{signal}_segments", segments, "segments", "lower")
    report(f"{signal}_peak_rss", memory.peak_bytes / (1 << 30), "GiB", "lower", "target", 4.0)


def growth(deployment: Deployment, folder: Path) -> None:
    """Report the cost per record for growing numbers of records; it must not grow."""
    signal = signal_named("logs")
    first = 0.0
    for rows in GROWTH:
        run = uuid.uuid4().hex
        raws = deployment.put(signal, objects(signal.name, rows, folder), run)
        rate, *_ = end_to_end(deployment, signal, raws, run)
        cost_us = 1e6 / rate
        first = first or cost_us
        report(f"logs_us_per_record_{rows // 1000}k", cost_us, "us", "lower", f"{GROWTH[0] // 1000}k", first)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="lakerunner-bench-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--full", action="store_true", help="use the sizes of the published figures")
    for name in ROWS:
        parser.add_argument(f"--{name}", type=int, help=f"number of records of {name}")
    parser.add_argument("--rounds", type=int, help="number of rounds, of which the best counts (default 2)")
    parser.add_argument("--growth", action="store_true", help="also measure 250k to 2M records, doubling")
    parser.add_argument("--objects", type=Path, default=Path(tempfile.gettempdir()) / "lakerunner-bench")
    chosen = parser.parse_args()
    rounds = chosen.rounds or (1 if chosen.quick else 2)
    sizes = ROWS if chosen.full else QUICK_ROWS
    # The pool is created before any thread starts.
    context = multiprocessing.get_context("spawn")
    with scratch_folder() as folder, ProcessPoolExecutor(CORES, mp_context=context) as pool:
        list(pool.map(_import_only, range(CORES * 2)))
        deployment = Deployment(folder)
        try:
            deployment.start()
            for signal in SIGNALS:
                rows = getattr(chosen, signal.name)
                rows = sizes[signal.name] if rows is None else rows
                if rows:
                    measure(deployment, signal, rows, pool, chosen.objects, rounds)
            if chosen.growth:
                growth(deployment, chosen.objects)
        finally:
            deployment.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
