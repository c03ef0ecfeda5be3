"""The sweeper: the singleton that keeps index and bus tidy."""

from __future__ import annotations

from lakerunner.bus.postgres import forget_passed
from lakerunner.index.leases import Lease, require_held
from lakerunner.index.singleton import SingletonRole
from lakerunner.index.upkeep import tidy
from lakerunner.runtime.stop import Stop
from lakerunner.runtime.telemetry import log


class Sweeper(SingletonRole):
    name = "sweeper"
    sentence = "Forget what the index and the bus no longer need. One leads; others stand by."

    def lead(self, lease: Lease, until: Stop) -> None:
        while not until:
            removed = tidy(self.database, self.settings.upkeep, lease)
            # Kafka forgets by itself; the bus in PostgreSQL is ours to sweep.
            if self.settings.bus.kind == "postgres":
                with self.database.transaction() as tx:
                    require_held(tx, lease)
                    removed["bus_message"] = forget_passed(tx, self.settings.bus.retention_s)
            if any(removed.values()):
                log().info("tidied", **removed)
            until.wait(self.settings.upkeep.interval_s)
