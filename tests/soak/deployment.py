"""`serve --demo` under a soak: what it costs, who is killed, and how the tables of its index grow."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil

from lakerunner.index.database import Connection, Database
from lakerunner.index.embedded import EmbeddedPostgres
from lakerunner.model.errors import Unavailable
from tests.ops.serve_process import ServeProcess

T = TypeVar("T")

DEMO = "demo-shop"
POSTGRES = "postgres"
#: Rows that upkeep deletes are kept this long, so that a soak of minutes sees them go. Longer than the slowest role
#: takes to start: a message must wait for its first reader.
KEEP_S = 90
_SETTINGS = {
    "LAKERUNNER_UPKEEP_INTERVAL_S": "5",
    "LAKERUNNER_UPKEEP_OUTBOX_KEEP_S": str(KEEP_S),
    "LAKERUNNER_BUS_RETENTION_S": str(KEEP_S),
    # Longer than the life of a message.
    "LAKERUNNER_UPKEEP_WORK_KEEP_S": str(KEEP_S + 30),
    "LAKERUNNER_AUTH_REQUIRED": "false",
}
_DATABASE_BACK_S = 120.0


@dataclass(frozen=True)
class Kill:
    name: str
    at_s: float


@dataclass(frozen=True)
class TableSize:
    rows: int
    size_bytes: int


class Deployment:
    """One `serve --demo` with the defaults, except for what upkeep keeps."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.serve = ServeProcess(folder / "data", module="lakerunner", **_SETTINGS)
        for faster in ("LAKERUNNER_SERVE_RESTART_BASE_S", "LAKERUNNER_SERVE_RESTART_MAX_S"):
            del self.serve.env[faster]
        self.bucket = self.serve.data_dir / "bucket"
        self.kills: list[Kill] = []
        #: When roles began and ceased to be killed.
        self.soak_from_s, self.soak_until_s = 0.0, float("inf")
        self._choice = random.Random(seed)
        self._database: Database | None = None

    def start(self) -> float:
        """Return the seconds until every role is ready."""
        started = time.monotonic()
        self.serve.start("--demo").await_all_ready(240)
        self._database = self.serve.database()
        return time.monotonic() - started

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
        self.serve.close()

    # -- killing -----------------------------------------------------------------------------------------------

    def kill_any(self) -> str:
        """Kill a random role. One that is being restarted counts as killed: nothing of it is left to kill."""
        pids = {name: pid for name, pid in self.serve.pids().items() if name != POSTGRES}
        name = self._choice.choice(sorted(pids))
        self._kill(name, pids[name])
        return name

    def kill_postgres(self) -> None:
        if (pid := EmbeddedPostgres(self.serve.data_dir).pid()) is not None:
            self._kill(POSTGRES, pid)

    def _kill(self, name: str, pid: int) -> None:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.kills.append(Kill(name, time.time()))

    def stop_producing(self) -> None:
        """Suspend the shop: the supervisor would restart one that ended."""
        os.kill(self.serve.pids()[DEMO], signal.SIGSTOP)

    def produce(self) -> None:
        os.kill(self.serve.pids()[DEMO], signal.SIGCONT)

    # -- costs -------------------------------------------------------------------------------------------------

    def pss_bytes(self) -> int:
        """The memory of all processes together; what they share is counted once."""
        total = 0
        for process in self._processes():
            try:
                total += process.memory_full_info().pss
            except psutil.NoSuchProcess:
                continue
        return total

    def cpu_share(self, seconds: float) -> float:
        """The share of one core that all processes together use from now on."""
        before = self._cpu_s()
        time.sleep(seconds)
        after = self._cpu_s()
        return sum(used - before.get(pid, 0.0) for pid, used in after.items()) / seconds

    def _cpu_s(self) -> dict[int, float]:
        used = {}
        for process in self._processes():
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            used[process.pid] = times.user + times.system
        return used

    def _processes(self) -> list[psutil.Process]:
        assert self.serve.process is not None
        supervisor = psutil.Process(self.serve.process.pid)
        return [supervisor, *supervisor.children(recursive=True)]

    # -- the index ---------------------------------------------------------------------------------------------

    def read(self, call: Callable[[Connection], T]) -> T:
        """The result of a read, as soon as PostgreSQL answers."""
        assert self._database is not None
        end = time.monotonic() + _DATABASE_BACK_S
        while True:
            try:
                with self._database.transaction() as tx:
                    return call(tx)
            except Unavailable:
                if time.monotonic() > end:
                    raise
                time.sleep(0.5)

    def table_sizes(self) -> dict[str, TableSize]:
        return self.read(_table_sizes)


def _table_sizes(tx: Connection) -> dict[str, TableSize]:
    tables = tx.execute(
        "SELECT c.relname AS name, pg_total_relation_size(c.oid) AS bytes FROM pg_class c"
        " WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace ORDER BY c.relname"
    ).fetchall()
    sizes = {}
    for table in tables:
        counted = tx.execute(f'SELECT count(*) AS rows FROM "{table["name"]}"').fetchone()
        assert counted is not None
        sizes[table["name"]] = TableSize(counted["rows"], table["bytes"])
    return sizes
