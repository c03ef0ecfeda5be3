"""The sweeper: the singleton that announces again what nobody ended, and deletes what is no longer needed."""

from __future__ import annotations

import time

from lakerunner.bus.postgres import forget_expired
from lakerunner.index import sweep_ledger
from lakerunner.index.leases import Lease
from lakerunner.index.overdue import Overdue
from lakerunner.index.singleton import SingletonRole
from lakerunner.index.upkeep import Job, create_partitions, derivation_jobs, index_jobs, run_jobs
from lakerunner.intake.rejections import forget_excess
from lakerunner.model.errors import LimitHit
from lakerunner.ops.sweeping.raw_objects import delete_raw_objects
from lakerunner.ops.sweeping.round import sweep_round
from lakerunner.pipeline.delete.request import begin_due
from lakerunner.pipeline.reconcile import reconcile
from lakerunner.pipeline.stages import STAGES
from lakerunner.runtime.metrics import SWALLOWED
from lakerunner.runtime.settings import Settings
from lakerunner.runtime.stop import Stop
from lakerunner.runtime.telemetry import log
from lakerunner.store.config import StoreConfig
from lakerunner.store.errors import StoreUnavailable
from lakerunner.store.open import open_store


class Sweeper(SingletonRole):
    name = "sweeper"
    sentence = "Announce again what nobody ended, and delete what is no longer needed. One leads; others stand by."

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._reconciled_at_s = float("-inf")
        self._store = open_store(StoreConfig.of(settings))
        #: The first comparison of bucket and index follows an interval after the start: it is not urgent.
        self._listed_at_s = time.monotonic()

    def lead(self, lease: Lease, until: Stop) -> None:
        # What another leader announced is not known here, so everything overdue is announced once.
        self._reconciled_at_s = float("-inf")
        while not until:
            try:
                self.sweep(lease, until)
            except LimitHit as error:
                # A slow statement must not end the role. Until a reconciliation succeeds, nothing is deleted.
                SWALLOWED.labels("sweeper").inc()
                log().warning("round not finished", error=str(error))
            until.wait(self.settings.upkeep.interval_s)

    def sweep(self, lease: Lease, until: Stop | None = None) -> None:
        """Run one round. Reconciliation comes first: recovery must not depend on the deletions, nor come after them."""
        create_partitions(self.database)
        now_s = time.monotonic()
        due = Overdue(self.settings.pipeline.reconcile_after_s, now_s - self._reconciled_at_s)
        again = reconcile(self.database, STAGES, due, lease)
        self._reconciled_at_s = now_s
        late = again.inputs - again.on_time
        if late or again.items:
            log().warning("announced again", inputs=late, items=again.items)
        if again.on_time:
            log().debug("windows looked at", windows=again.on_time)
        handled = run_jobs(self.database, self._jobs(), lease)
        if any(handled.values()):
            log().info("tidied", **{name: rows for name, rows in handled.items() if rows})
        begun = begin_due(self.database, lease)
        if begun:
            log().info("deletions begun", segments=begun)
        self._sweep_segments(lease, until)
        deleted = delete_raw_objects(self.settings, self.database, lease)
        if deleted:
            log().info("raw objects deleted", objects=deleted)

    def _sweep_segments(self, lease: Lease, until: Stop | None) -> None:
        """Delete expired and superseded segments. A bucket that is down is tried again in the next round."""
        listing = time.monotonic() - self._listed_at_s >= self.settings.sweep.listing_interval_s
        try:
            swept = sweep_round(self.settings, self.database, self._store, listing=listing, lease=lease, stop=until)
        except StoreUnavailable as error:
            SWALLOWED.labels("sweep").inc()
            log().warning("objects not swept", error=str(error))
            return
        if listing:
            self._listed_at_s = time.monotonic()
        if swept.things:
            log().info("swept", **swept.things)

    def _jobs(self) -> dict[str, Job]:
        upkeep, bus = self.settings.upkeep, self.settings.bus
        jobs: dict[str, Job] = {
            **index_jobs(upkeep),
            **derivation_jobs(self.settings.derive),
            "sweep_ledger": lambda tx, limit: sweep_ledger.forget(tx, self.settings.sweep.ledger_keep_s, limit),
            "intake_rejected": lambda tx, limit: forget_excess(
                tx, upkeep.rejected_keep_s, upkeep.rejected_keep_rows, limit
            ),
        }
        # Kafka deletes by itself.
        if bus.kind == "postgres":
            jobs["bus_message"] = lambda tx, limit: forget_expired(tx, bus, limit)
        return jobs
