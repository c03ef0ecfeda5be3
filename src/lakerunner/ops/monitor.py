"""The monitor: the status API, and the house's gauges for Prometheus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.routing import BaseRoute

from lakerunner.bus.contract import Bus
from lakerunner.bus.open import open_bus
from lakerunner.index.indexed import IndexedRole
from lakerunner.index.status import index_status
from lakerunner.runtime.metrics import OUTBOX_OLDEST_SECONDS, OUTBOX_PENDING
from lakerunner.runtime.role import Probe
from lakerunner.runtime.settings import Settings
from lakerunner.runtime.stop import Stop
from lakerunner.serve.status import status_routes

_GAUGE_INTERVAL_S = 5.0


class Monitor(IndexedRole):
    name = "monitor"
    sentence = "Serve the status API, and export how the whole house is doing."

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._bus: Bus = open_bus(settings, self.database)

    def run(self, stop: Stop) -> None:
        while not stop:
            backlog = index_status(self.database).outbox
            OUTBOX_PENDING.set(backlog.count)
            OUTBOX_OLDEST_SECONDS.set(backlog.oldest_s)
            stop.wait(_GAUGE_INTERVAL_S)

    def probes(self) -> Mapping[str, Probe]:
        return {**super().probes(), "bus": self._bus.ping}

    def routes(self) -> Sequence[BaseRoute]:
        return status_routes(self.settings, self.database, lambda: self._bus)

    def close(self) -> None:
        self._bus.close()
        super().close()
