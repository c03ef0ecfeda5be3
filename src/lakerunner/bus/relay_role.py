"""The relay as a role: the one process that carries the outbox to the bus."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg

from lakerunner.bus.contract import Bus
from lakerunner.bus.open import open_bus
from lakerunner.bus.relay import relay_once
from lakerunner.index.database import Connection, told_as_ours
from lakerunner.index.leases import Lease
from lakerunner.index.outbox import CHANNEL
from lakerunner.index.singleton import SingletonRole
from lakerunner.runtime.role import Probe
from lakerunner.runtime.settings import Settings
from lakerunner.runtime.stop import Stop

#: Also without a notification the outbox is looked at this often: one may be lost with its connection.
_LOOK_EVERY_S = 1.0


class Relay(SingletonRole):
    name = "relay"
    sentence = "Publish what committed transactions left in the outbox. One leads; others stand by."

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._bus: Bus = open_bus(settings, self.database)

    def start(self) -> None:
        super().start()
        self._bus.ensure_topics()

    def lead(self, lease: Lease, until: Stop) -> None:
        with self.database.connect() as listener:
            listener.execute(f"LISTEN {CHANNEL}")
            while not until:
                if relay_once(self.database, self._bus) == 0:
                    _await_notification(listener)

    def probes(self) -> Mapping[str, Probe]:
        return {**super().probes(), "bus": self._bus.ping}

    def close(self) -> None:
        self._bus.close()
        super().close()


def _await_notification(listener: Connection) -> None:
    try:
        for _ in listener.notifies(timeout=_LOOK_EVERY_S, stop_after=1):
            pass
    except psycopg.Error as error:
        raise told_as_ours(error) from error
