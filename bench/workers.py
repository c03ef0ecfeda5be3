"""The scaling law with real processes: 1, 2 and 4 workers that have a fixed share of a core each, as JSON lines.

    python -m bench workers [--cores 0.1] [--rows 960000] [--quick]

The backlog of one org lies ready; N `lakerunner ingest` processes, each with a Spark of its own, share it. The peer is
the ideal law: 1/N of what one worker took; `cpu_s` has the CPU time of each. A control group of the kernel limits each
worker to its share, from when it is ready; PostgreSQL, boxer and relay are not limited. `bench scaling` simulates more
workers than fit here.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
from bench.cpu_share import CpuShare
from bench.ingest import scratch_folder
from bench.otlp import objects
from bench.served.index import postgres

from lakerunner.bus import topics
from lakerunner.bus.messages import ObjectSeen, encode
from lakerunner.index import ledger, outbox
from lakerunner.index.database import Database
from lakerunner.index.embedded import EmbeddedPostgres
from lakerunner.index.orgs import DEFAULT_ORG_ID
from lakerunner.index.outbox import Outgoing
from lakerunner.intake.buckets import own_bucket
from lakerunner.model.raw_object import RawObject
from lakerunner.model.signals.logs import LOGS
from lakerunner.ops.supervisor import RoleAddress, is_ready
from lakerunner.runtime.settings import DataSettings, Settings
from lakerunner.store import keys
from lakerunner.store.bucket import version_of
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store
from tests.components.process import RunningProcess, free_port

_WORKERS = (1, 2, 4)
_READY_S, _DONE_S = 180.0, 300.0
#: Small items and batches, as a backlog of many collectors has: what is measured is how they are shared.
_PIPELINE = {"pipeline.bundle_objects": "1", "pipeline.batch_items": "2", "pipeline.jobs": "1"}


class Machine:
    """An index, a bucket in a folder, and the processes that use them."""

    def __init__(self, folder: Path, database: Database, cores: float) -> None:
        self.folder, self.database, self.cores = folder, database, cores
        self.settings = Settings(data=DataSettings(dir=folder))
        self.store = open_store(StoreConfig.of(self.settings))

    @contextmanager
    def role(self, name: str, share: CpuShare | None = None, **settings: str) -> Iterator[tuple[RunningProcess, int]]:
        """A role that is ready, and its port; in a data folder of its own, so that caches are not shared."""
        port = free_port()
        own = {
            "data.dir": str(self.folder / f"{name}-{port}"), "http.port": str(port), "log.level": "warning",
            "index.url": EmbeddedPostgres(self.folder).url, "store.url": (self.folder / "bucket").as_uri(),
            "spark.master": "local[1]",
            **_PIPELINE, **{key.replace("__", "."): value for key, value in settings.items()},
        }  # fmt: skip
        env = {f"LAKERUNNER_{key.replace('.', '_').upper()}": value for key, value in own.items()}
        argv = [sys.executable, "-m", "lakerunner", name]
        with RunningProcess.start(argv, log_path=self.folder / f"{name}-{port}.log", env=env) as process:
            if share is not None:
                share.take(process.pid)
            end = time.monotonic() + _READY_S
            while not is_ready(RoleAddress(name, "127.0.0.1", port)):
                if process.returncode is not None or time.monotonic() > end:
                    raise SystemExit(f"{name} is not ready\n{process.tail()}")
                time.sleep(0.1)
            yield process, port

    def fill(self, rows: int, run: str, paths: list[Path]) -> None:
        """Put the objects of a run, and announce all of them in one transaction."""
        raws = []
        for path in paths[: -(-rows // 10_000)]:
            key = f"{keys.raw_prefix(DEFAULT_ORG_ID)}{run}/{path.name}"
            meta = self.store.put(key, path.read_bytes())
            bucket = own_bucket(self.settings)
            raws.append(RawObject(DEFAULT_ORG_ID, run, LOGS.name, bucket, key, version_of(meta), meta.size_bytes))
        messages = [
            Outgoing(topics.objects(LOGS).name, str(raw.org_id), encode(ObjectSeen(
                raw.object_id, raw.org_id, raw.collector, raw.signal, raw.bucket, raw.key, raw.version, raw.size_bytes
            )))
            for raw in raws
        ]  # fmt: skip
        with self.database.transaction() as tx:
            ledger.record_seen(tx, raws)
            outbox.put(tx, messages)

    def await_done(self, run: str) -> float:
        """Seconds from the first item of a run to the last that ended."""
        end = time.monotonic() + _DONE_S
        while time.monotonic() < end:
            with self.database.transaction() as tx:
                found = tx.execute(
                    "SELECT count(*) FILTER (WHERE o.state <> 'done') AS left, extract(epoch FROM max(i.ended_at) -"
                    " min(i.created_at))::float8 AS took_s FROM raw_object o LEFT JOIN work_item i USING (item_id)"
                    " WHERE o.collector = %s",
                    [run],
                ).fetchone()
            assert found is not None
            if not found["left"]:
                return float(found["took_s"])
            time.sleep(0.2)
        raise SystemExit(f"run {run} was not done in time; see {self.folder}")


@contextmanager
def shares(count: int) -> Iterator[list[CpuShare]]:
    with ExitStack() as stack:
        yield [stack.enter_context(CpuShare(str(nth))) for nth in range(count)]


def cpu_s(group: list[CpuShare]) -> list[float]:
    """What the processes of each worker have taken."""
    return [sum(map(_cpu_s, share.pids())) for share in group]


def _cpu_s(pid: int) -> float:
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return 0.0  # it ended meanwhile
    return float(times.user + times.system)


def ingest(machine: Machine, rows: int, paths: list[Path]) -> None:
    alone_s = 0.0
    with machine.role("relay"), machine.role("boxer-ingest"):
        for count in _WORKERS:
            with shares(count) as group, ExitStack() as stack:
                for share in group:
                    stack.enter_context(machine.role("ingest", share))
                # The first job of each starts Python and Java's threads; that is not what is shared.
                machine.fill(10_000 * 4 * count, f"first-{count}", paths)
                machine.await_done(f"first-{count}")
                for share in group:
                    share.limit(machine.cores)
                run, before_s = f"run-{count}", cpu_s(group)
                machine.fill(rows, run, paths)
                took_s = machine.await_done(run)
                spent_s = [after - before for before, after in zip(before_s, cpu_s(group), strict=True)]
                alone_s = alone_s or took_s
                _say(f"ingest, {count} workers", took_s, alone_s / count, machine.cores, spent_s)


def _say(case: str, value: float, ideal: float, cores: float, spent_s: list[float]) -> None:
    line = {
        "bench": "workers", "case": f"{case} of {cores:g} cores each", "value": round(value, 3), "unit": "s",
        "better": "lower", "peer": "1/N of one worker", "peer_value": round(ideal, 3),
        "ratio": round(value / ideal, 3), "cpu_s": [round(each, 2) for each in spent_s],
        "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench workers", description=__doc__)
    parser.add_argument("--cores", type=float, default=0.1, help="share of a core that each worker has")
    parser.add_argument("--rows", type=int, default=960_000, help="log records of the backlog")
    parser.add_argument("--quick", action="store_true", help="a quarter of the records")
    chosen = parser.parse_args()
    rows = chosen.rows // 4 if chosen.quick else chosen.rows
    # Whoever ends this run ends its processes.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with scratch_folder() as folder, postgres(folder) as (database, _):
        machine = Machine(folder, database, chosen.cores)
        paths = objects(LOGS.name, rows, folder / "objects")
        ingest(machine, rows, paths)
    return 0


if __name__ == "__main__":
    sys.exit(main())
