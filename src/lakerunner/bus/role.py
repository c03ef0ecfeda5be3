"""The base class of roles that use index and bus: it creates missing topics, and is ready when both answer."""

from __future__ import annotations

from collections.abc import Mapping

from lakerunner.bus.contract import Bus
from lakerunner.bus.open import open_bus
from lakerunner.index.role import IndexedRole
from lakerunner.runtime.role import Probe
from lakerunner.runtime.settings import Settings


class BusRole(IndexedRole):
    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.bus: Bus = open_bus(settings, self.database)

    def start(self) -> None:
        super().start()
        self.bus.ensure_topics()

    def probes(self) -> Mapping[str, Probe]:
        return {**super().probes(), "bus": self.bus.ping}

    def close(self) -> None:
        self.bus.close()
        super().close()
