"""The monitor role: the status API, and gauges of the whole deployment for Prometheus."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import BaseRoute

from lakerunner.bus.role import BusRole
from lakerunner.index import outbox
from lakerunner.runtime.metrics import OUTBOX_OLDEST_SECONDS, OUTBOX_PENDING
from lakerunner.runtime.stop import Stop
from lakerunner.serve.admin.status import status_routes

_GAUGE_INTERVAL_S = 5.0


class Monitor(BusRole):
    name = "monitor"
    sentence = "Serve the status API, and export metrics of the whole deployment."

    def run(self, stop: Stop) -> None:
        while not stop:
            with self.database.transaction() as tx:
                backlog = outbox.backlog(tx)
            OUTBOX_PENDING.set(backlog.count)
            OUTBOX_OLDEST_SECONDS.set(backlog.oldest_s)
            stop.wait(_GAUGE_INTERVAL_S)

    def routes(self) -> Sequence[BaseRoute]:
        return status_routes(self.settings, self.database, self.bus)
