"""Run a simulation: write the objects of each simulated hour, wait for stages that fall behind, count everything."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from lakerunner.bus.open import open_bus
from lakerunner.index import backlog, ledger, outbox, work
from lakerunner.index.database import Database
from lakerunner.index.orgs import create_org
from lakerunner.model.errors import LimitHit
from lakerunner.ops.simulate import facts
from lakerunner.ops.simulate.deployment import Deployment, running_deployment, simulated_roles
from lakerunner.ops.simulate.workload import Workload, hours_of
from lakerunner.runtime.settings import Settings
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store

_POLL_S = 0.1
#: Objects that may wait for ingest before the clock of the simulation pauses, and the hours that they may span: rows of
#: an item over more than two days would be cut by day.
_MAX_WAITING = 2_000
_MAX_WAITING_HOURS = 24

#: Called with one line that says how far the simulation is.
Progress = Callable[[str], None]


def simulate(
    settings: Settings,
    workload: Workload,
    *,
    send_s: float | None,
    quiet_s: float,
    timeout_s: float,
    progress: Progress,
) -> dict[str, Any]:
    """Return the facts. `quiet_s` is how long nothing must wait before the lake counts as settled.

    After `send_s`, no further hours are sent, and the facts are about those that were.
    """
    started = time.monotonic()
    with running_deployment(settings) as deployment:
        _create_orgs(deployment.database, workload)
        deployment.start(simulated_roles())
        ready = time.monotonic()
        run = _Run(deployment, workload, ready + timeout_s, progress)
        run.send(None if send_s is None else ready + send_s)
        run.await_ingested(0)
        ingested = time.monotonic()
        run.await_quiet(quiet_s)
        settled = time.monotonic() - quiet_s
        times = {
            "start_s": round(ready - started, 1),
            "ingest_s": round(ingested - ready, 1),
            "settle_s": round(max(0.0, settled - ingested), 1),
        }
        return {**_facts(deployment, workload, run.sent, run.hours), "times": times}


def _create_orgs(database: Database, workload: Workload) -> None:
    with database.transaction() as tx:
        for nth, org_id in enumerate(workload.org_ids()):
            create_org(tx, f"simulated {nth}", org_id)


class _Run:
    def __init__(self, deployment: Deployment, workload: Workload, end_s: float, progress: Progress) -> None:
        self.sent: Counter[str] = Counter()
        self._deployment = deployment
        self._workload = workload
        self._end_s = end_s
        self._progress = progress
        self._store = open_store(StoreConfig.of(deployment.settings))
        self._bus = open_bus(deployment.settings, deployment.database)
        self._objects = 0
        #: Simulated hours that were sent.
        self.hours = 0

    def send(self, until_s: float | None) -> None:
        """Write the hours in order, pausing while too much waits; no more of them after that time."""
        each_hour = max(1, self._workload.objects // (self._workload.days * 24))
        allowed = min(_MAX_WAITING, each_hour * _MAX_WAITING_HOURS)
        for _, parts in hours_of(self._workload):
            for part in parts:
                self._store.put(part.key, part.body)
                self.sent[part.signal] += part.rows
                self._objects += 1
            self.hours += 1
            self.await_ingested(allowed)
            if until_s is not None and time.monotonic() > until_s:
                return

    def await_ingested(self, allowed: int) -> None:
        """Wait until at most so many of the written objects are not ingested yet."""
        while True:
            with self._deployment.database.transaction() as tx:
                states = ledger.count_by_state(tx)
            ended = states["done"] + states["quarantined"]
            self._progress(f"{self._objects:,} of {self._workload.objects:,} objects sent, {ended:,} ingested")
            if self._objects - ended <= allowed:
                return
            self._pause("ingest the objects")

    def await_quiet(self, quiet_s: float) -> None:
        """Wait until no stage has had anything to do for so long."""
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < quiet_s:
            waiting = self._waiting()
            if waiting:
                quiet_since = time.monotonic()
            self._progress(f"all ingested; {waiting:,} items, messages and tier windows wait")
            self._pause("settle")

    def _waiting(self) -> int:
        with self._deployment.database.transaction() as tx:
            items, messages = work.count_by_state(tx)["open"], outbox.backlog(tx).count
            windows = sum(tier.windows for tier in backlog.tier_lag(tx))
        return items + messages + windows + sum(lag.behind for lag in self._bus.lag())

    def _pause(self, what: str) -> None:
        self._deployment.check()
        if time.monotonic() > self._end_s:
            raise LimitHit(f"cannot {what} in time", hint="raise --timeout, or simulate fewer objects")
        time.sleep(_POLL_S)


def _facts(deployment: Deployment, workload: Workload, sent: Counter[str], hours: int) -> dict[str, Any]:
    database = deployment.database
    counts = facts.count_rows(database, open_store(StoreConfig.of(deployment.settings)), workload, sent)
    written = facts.bytes_by_stage()
    amplification = facts.write_amplification(written)
    with database.transaction() as tx:
        states = ledger.count_by_state(tx)
        items = work.count_by_state(tx)
        per_day, most, sizes = facts.segments_per_org_day(tx), facts.most_per_org_day(tx), facts.index_sizes(tx)
    return {
        "workload": {**asdict(workload), "objects": workload.objects, "rows": workload.rows},
        "sent_days": round(hours / 24, 2),
        "objects": states,
        "items": items,
        "rows": {signal: asdict(count) for signal, count in counts.items()},
        "exact": all(count.exact for count in counts.values()) and not states["quarantined"],
        "segments_per_org_day": [asdict(each) for each in per_day],
        "most_segments_per_org_day": most,
        "bytes_written_by_stage": dict(written),
        "write_amplification": None if amplification is None else round(amplification, 3),
        "index_bytes": sizes,
        "lookup_ms": facts.lookup_ms(database, workload),
    }
