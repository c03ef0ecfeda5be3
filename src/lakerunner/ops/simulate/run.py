"""Run a simulation: write the objects of each simulated hour, wait for stages that fall behind, count everything."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from lakerunner.index import backlog, ledger, outbox, work
from lakerunner.index.database import Database
from lakerunner.index.orgs import create_org
from lakerunner.model.errors import LimitHit
from lakerunner.ops.simulate import facts
from lakerunner.ops.simulate.deployment import Deployment, running_deployment, simulated_roles
from lakerunner.ops.simulate.saved import Saved
from lakerunner.ops.simulate.workload import RawPart, Workload, parts_of
from lakerunner.runtime.settings import Settings
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store

#: Asking the index more often costs more CPU time than the stages take for small objects.
_POLL_S = 0.5
#: Objects that may wait for ingest before the clock of the simulation pauses, and the hours that they may span: rows of
#: an item over more than two days would be cut by day.
_MAX_WAITING = 5_000
_MAX_WAITING_HOURS = 48
#: Hours that are sent before the ledger is asked whether to wait.
_HOURS_AT_ONCE = 6
#: Objects that are written at a time. Each waits for the disk.
_SENDERS = 16

#: Called with one line that says how far the simulation is.
Progress = Callable[[str], None]


class Paused(Exception):
    """The time of this run is over. What was sent is in the lake, and the next run goes on after it."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a run may take, in seconds."""

    #: After this, no further hours are sent, and the facts are about those that were.
    send_s: float | None
    #: After this, the run ends and can be continued.
    pause_s: float | None
    #: Without work for this long, the lake counts as settled.
    quiet_s: float
    #: After this, the simulation is given up.
    timeout_s: float


def simulate(
    settings: Settings, progress_so_far: Saved, patience: Patience, progress: Progress
) -> dict[str, Any] | Saved:  # fmt: skip
    """Return the facts; or how far the simulation is, if its time was over before."""
    before, workload = progress_so_far, progress_so_far.workload
    started = time.monotonic()
    found: dict[str, Any] = {}
    with running_deployment(settings) as deployment:
        if not before.hours:
            _create_orgs(deployment.database, workload)
        deployment.start(simulated_roles())
        run = _Run(deployment, before, started, patience, progress)
        try:
            run.send()
            run.await_ingested(0)
            ingested = time.monotonic()
            run.await_quiet(patience.quiet_s)
            settled = time.monotonic() - patience.quiet_s
            times = {
                "run_s": round(before.run_s + time.monotonic() - started, 1),
                "settle_s": round(max(0.0, settled - ingested), 1),
            }
            found = {**_facts(deployment, before, run), "times": times}
        except Paused:
            pass
    # Read after the roles have ended: until then they write.
    written = facts.bytes_by_stage() + before.written
    if not found:
        return Saved(workload, run.hours, before.run_s + time.monotonic() - started, written)
    amplification = facts.write_amplification(written)
    return {
        **found,
        "bytes_written_by_stage": dict(written),
        "write_amplification": None if amplification is None else round(amplification, 3),
    }


def _create_orgs(database: Database, workload: Workload) -> None:
    with database.transaction() as tx:
        for nth, org_id in enumerate(workload.org_ids()):
            create_org(tx, f"simulated {nth}", org_id)


class _Run:
    def __init__(
        self, deployment: Deployment, before: Saved, started_s: float, patience: Patience, progress: Progress
    ) -> None:
        self._deployment = deployment
        self._workload = before.workload
        self._started_s = started_s
        self._patience = patience
        self._progress = progress
        self._store = open_store(StoreConfig.of(deployment.settings))
        #: Simulated hours that were sent.
        self.hours = before.hours
        self.sent: Counter[str] = Counter()
        self._objects = 0

    def send(self) -> None:
        """Write the hours in order, pausing while too much waits; no more of them when the time for that is over."""
        workload = self._workload
        each_hour = max(1, workload.objects // (workload.days * 24))
        allowed = min(_MAX_WAITING, each_hour * _MAX_WAITING_HOURS)
        with ThreadPoolExecutor(_SENDERS, thread_name_prefix="send") as pool:
            for hour in range(workload.days * 24):
                parts = list(parts_of(workload, hour))
                for part in parts:
                    self.sent[part.signal] += part.rows
                self._objects += len(parts)
                if hour < self.hours:
                    # Of an earlier run: only counted.
                    continue
                for _ in pool.map(self._put, parts):
                    pass
                self.hours = hour + 1
                if self.hours % _HOURS_AT_ONCE == 0:
                    self.await_ingested(allowed)
                if self._is_over(self._patience.send_s):
                    return

    def _put(self, part: RawPart) -> None:
        self._store.put(part.key, part.body())

    def _is_over(self, allowed_s: float | None) -> bool:
        return allowed_s is not None and time.monotonic() - self._started_s > allowed_s

    def await_ingested(self, allowed: int) -> None:
        """Wait until at most this many of the written objects are not ingested yet."""
        while True:
            with self._deployment.database.transaction() as tx:
                states = ledger.count_by_state(tx)
            ended = states["done"] + states["quarantined"]
            self._progress(f"{self._objects:,} of {self._workload.objects:,} objects sent, {ended:,} ingested")
            if self._objects - ended <= allowed:
                return
            self._pause("ingest the objects")

    def await_quiet(self, quiet_s: float) -> None:
        """Wait until no stage has had anything to do for this long, and no wait for more inputs can be left."""
        pipeline = self._deployment.settings.pipeline
        quiet_s = max(quiet_s, pipeline.compact_wait_s + _POLL_S, pipeline.rollup_pause_s + _POLL_S)
        quiet_since, items = time.monotonic(), -1
        while time.monotonic() - quiet_since < quiet_s:
            waiting, known = self._waiting()
            # Messages alone are no work: windows that have nothing to merge are looked at again and again.
            if waiting or known != items:
                quiet_since, items = time.monotonic(), known
            self._progress(f"all ingested; {waiting:,} items, messages and tier windows wait")
            self._pause("settle")

    def _waiting(self) -> tuple[int, int]:
        """What waits, and how many items there have been."""
        with self._deployment.database.transaction() as tx:
            states = work.count_by_state(tx)
            messages = outbox.backlog(tx).count
            windows = sum(tier.windows for tier in backlog.tier_lag(tx))
        return states["open"] + messages + windows, sum(states.values())

    def _pause(self, what: str) -> None:
        self._deployment.check()
        if self._is_over(self._patience.pause_s):
            raise Paused
        if self._is_over(self._patience.timeout_s):
            raise LimitHit(f"cannot {what} in time", hint="raise --timeout, or simulate fewer objects")
        time.sleep(_POLL_S)


def _facts(deployment: Deployment, before: Saved, run: _Run) -> dict[str, Any]:
    database, workload = deployment.database, before.workload
    counts = facts.count_rows(database, open_store(StoreConfig.of(deployment.settings)), workload, run.sent)
    with database.transaction() as tx:
        states = ledger.count_by_state(tx)
        items = work.count_by_state(tx)
        per_day, most, sizes = facts.segments_per_org_day(tx), facts.most_per_org_day(tx), facts.index_sizes(tx)
    return {
        "workload": {**asdict(workload), "objects": workload.objects, "rows": workload.rows},
        "sent_days": round(run.hours / 24, 2),
        "objects": states,
        "items": items,
        "rows": {signal: asdict(count) for signal, count in counts.items()},
        "exact": all(count.exact for count in counts.values()) and not states["quarantined"],
        "segments_per_org_day": [asdict(each) for each in per_day],
        "most_segments_per_org_day": most,
        "index_bytes": sizes,
        "lookup_ms": facts.lookup_ms(database, workload),
    }
