"""The monitor role: the status API, gauges of the whole deployment, objectives, and alerts."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from starlette.routing import BaseRoute

from lakerunner.bus.role import BusRole
from lakerunner.index import leases
from lakerunner.index.objectives import measure_freshness, put_minute
from lakerunner.model.errors import LakeError
from lakerunner.ops.monitor.alerts import Alerts, State
from lakerunner.ops.monitor.gauges import ALERTS_FIRING, MONITOR_METRICS, export
from lakerunner.ops.monitor.receivers import receivers_of
from lakerunner.runtime.metrics import SWALLOWED
from lakerunner.runtime.settings import Settings
from lakerunner.runtime.stop import Stop
from lakerunner.runtime.telemetry import log
from lakerunner.serve.admin.conditions import Problem, problems
from lakerunner.serve.admin.observation import count_dead, observe
from lakerunner.serve.admin.status import status_routes
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store

#: Counting dead letters reads them.
_DEAD_EVERY_S = 60.0
#: The longest wait for calls that hang when the monitor is stopped. It has no unfinished work that could be lost.
_GRACE_S = 20.0
#: A minute is measured this long after its end, when its last commits are visible.
_SETTLE = timedelta(seconds=5)
#: Of several monitors, the one with this lease sends alerts.
_LEASE = "monitor-alerts"


class Monitor(BusRole):
    name = "monitor"
    sentence = "Serve the status API, export metrics of the whole deployment, and send alerts."
    registries = (MONITOR_METRICS,)

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._receivers = receivers_of(settings.monitor)
        self._store = open_store(StoreConfig.of(settings))
        self._alerts = Alerts()
        self._holder = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"
        self._dead: int | None = None
        self._dead_at_s = float("-inf")
        self._measured: datetime | None = None

    def run(self, stop: Stop) -> None:
        while not stop:
            self.look()
            stop.wait(self.settings.monitor.interval_s)

    def grace_s(self) -> float:
        return _GRACE_S

    def look(self, now: datetime | None = None) -> None:
        """Look once: export, measure the last whole minute, and send what is due."""
        now = now or datetime.now(UTC)
        self._count_dead()
        self._measure(now)
        seen = observe(self.database, self.bus, self._store, self._dead)
        export(seen, self.settings.monitor)
        if seen.index.degraded:
            log().warning("status degraded", parts=seen.index.degraded)
        self._alert(problems(seen, self.settings.monitor, self.settings.canary), now)

    def _count_dead(self) -> None:
        if time.monotonic() - self._dead_at_s > _DEAD_EVERY_S:
            self._dead = count_dead(self.bus)
            self._dead_at_s = time.monotonic()

    def _measure(self, now: datetime) -> None:
        """Measure the freshness of the last whole minute. Every monitor finds the same and writes the same rows."""
        minute = (now - _SETTLE).replace(second=0, microsecond=0) - timedelta(minutes=1)
        if minute == self._measured:
            return
        try:
            with self.database.transaction() as tx:
                for measured in measure_freshness(tx, minute, self.settings.monitor.freshness_target_s):
                    put_minute(tx, measured)
        except LakeError as error:
            if error.retryable:
                raise
            SWALLOWED.labels("measure_freshness").inc()
            log().warning("freshness not measured", error=str(error))
        self._measured = minute

    def _alert(self, found: Sequence[Problem], now: datetime) -> None:
        current = self._alerts.update(found, now)
        ALERTS_FIRING.clear()
        for each in current:
            if each.state is State.FIRING:
                ALERTS_FIRING.labels(each.problem.name).inc()
        if self._receivers and self._sends():
            for receiver in self._receivers:
                receiver.send(current, now)

    def _sends(self) -> bool:
        ttl_s = max(30.0, 3 * self.settings.monitor.interval_s)
        return leases.acquire(self.database, _LEASE, self._holder, ttl_s) is not None

    def routes(self) -> Sequence[BaseRoute]:
        return status_routes(self.settings, self.database, self.bus, self._store)
