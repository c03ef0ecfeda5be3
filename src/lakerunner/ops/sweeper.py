"""The sweeper: the singleton that keeps index and bus run_upkeep, and announces again what nobody ended."""

from __future__ import annotations

import time

from lakerunner.bus.postgres import forget_passed
from lakerunner.index.leases import Lease, require_held
from lakerunner.index.overdue import Overdue
from lakerunner.index.singleton import SingletonRole
from lakerunner.index.upkeep import run_upkeep
from lakerunner.intake.rejections import forget_excess
from lakerunner.pipeline.reconcile import reconcile
from lakerunner.pipeline.stages import STAGES
from lakerunner.runtime.stop import Stop
from lakerunner.runtime.telemetry import log


class Sweeper(SingletonRole):
    name = "sweeper"
    sentence = "Forget what is no longer needed, and announce again what nobody ended. One leads; others stand by."

    def lead(self, lease: Lease, until: Stop) -> None:
        reconciled_at = float("-inf")
        while not until:
            removed = run_upkeep(self.database, self.settings.upkeep, lease)
            with self.database.transaction() as tx:
                require_held(tx, lease)
                removed["intake_rejected"] = forget_excess(tx)
                # Kafka forgets by itself; the bus in PostgreSQL is ours to sweep.
                if self.settings.bus.kind == "postgres":
                    removed["bus_message"] = forget_passed(tx, self.settings.bus.retention_s, self.settings.bus.prefix)
            if any(removed.values()):
                log().info("tidied", **removed)
            now = time.monotonic()
            due = Overdue(self.settings.pipeline.reconcile_after_s, now - reconciled_at)
            again = reconcile(self.database, STAGES, due, lease)
            reconciled_at = now
            if again.inputs or again.items:
                log().warning("announced again", inputs=again.inputs, items=again.items)
            until.wait(self.settings.upkeep.interval_s)
