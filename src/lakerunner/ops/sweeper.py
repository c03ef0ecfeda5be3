"""The sweeper: the singleton that keeps the index tidy."""

from __future__ import annotations

from lakerunner.bus.open import open_bus
from lakerunner.index.leases import Lease
from lakerunner.index.singleton import SingletonRole
from lakerunner.index.upkeep import tidy
from lakerunner.runtime.stop import Stop
from lakerunner.runtime.telemetry import log


class Sweeper(SingletonRole):
    name = "sweeper"
    sentence = "Forget what the index and the bus no longer need. One leads; others stand by."

    def lead(self, lease: Lease, until: Stop) -> None:
        bus = open_bus(self.settings, self.database)
        try:
            while not until:
                removed = tidy(self.database, self.settings.upkeep, lease)
                removed["bus_message"] = bus.forget_passed()
                if any(removed.values()):
                    log().info("tidied", **removed)
                until.wait(self.settings.upkeep.interval_s)
        finally:
            bus.close()
