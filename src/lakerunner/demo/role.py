"""The demo role: under `serve --demo` it writes the telemetry of a small shop, live."""

from __future__ import annotations

from collections.abc import Mapping

from lakerunner.demo.produce import live
from lakerunner.runtime.role import Probe, Role
from lakerunner.runtime.settings import Settings
from lakerunner.runtime.stop import Stop
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store


class Demo(Role):
    name = "demo-shop"
    sentence = "Write the telemetry of a small shop into the raw bucket, live."

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._store = open_store(StoreConfig.of(settings))

    def start(self) -> None:
        self._store.ping()

    def run(self, stop: Stop) -> None:
        # With the default of short slots, users see data arrive within seconds.
        live(self._store, self.settings.demo.rate, stop, seed=self.settings.demo.seed)

    def probes(self) -> Mapping[str, Probe]:
        return {"store": self._store.ping}
