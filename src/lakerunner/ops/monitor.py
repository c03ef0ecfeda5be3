"""The monitor role: the status API, and gauges of the whole deployment for Prometheus."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import BaseRoute

from lakerunner.bus.role import BusRole
from lakerunner.index.status import IndexStatus, index_status
from lakerunner.runtime.metrics import ITEMS, OBJECTS, OUTBOX_OLDEST_SECONDS, OUTBOX_PENDING, STATUS_DEGRADED
from lakerunner.runtime.stop import Stop
from lakerunner.runtime.telemetry import log
from lakerunner.serve.admin.status import status_routes

_GAUGE_INTERVAL_S = 5.0


class Monitor(BusRole):
    name = "monitor"
    sentence = "Serve the status API, and export metrics of the whole deployment."

    def run(self, stop: Stop) -> None:
        while not stop:
            self._set_gauges(index_status(self.database))
            stop.wait(_GAUGE_INTERVAL_S)

    def _set_gauges(self, status: IndexStatus) -> None:
        """Export the parts that were read in time. The others keep their last values."""
        STATUS_DEGRADED.set(len(status.degraded))
        if status.degraded:
            log().warning("status degraded", parts=status.degraded)
        if status.outbox is not None:
            OUTBOX_PENDING.set(status.outbox.count)
            OUTBOX_OLDEST_SECONDS.set(status.outbox.oldest_s)
        for gauge, counts in ((OBJECTS, status.objects), (ITEMS, status.items)):
            for state, count in (counts or {}).items():
                gauge.labels(state).set(count)

    def routes(self) -> Sequence[BaseRoute]:
        return status_routes(self.settings, self.database, self.bus)
