"""The relay as a role: the one process that carries the outbox to the bus."""

from __future__ import annotations

import psycopg

from lakerunner.bus.relay import relay_once
from lakerunner.bus.role import BusRole
from lakerunner.index.database import Connection, told_as_ours
from lakerunner.index.leases import Lease
from lakerunner.index.outbox import CHANNEL
from lakerunner.index.singleton import SingletonRole
from lakerunner.runtime.stop import Stop

#: Also without a notification the outbox is looked at this often: one may be lost with its connection.
_LOOK_EVERY_S = 1.0


class Relay(BusRole, SingletonRole):
    name = "relay"
    sentence = "Publish what committed transactions left in the outbox. One leads; others stand by."

    def lead(self, lease: Lease, until: Stop) -> None:
        with self.database.connect() as listener:
            listener.execute(f"LISTEN {CHANNEL}")
            while not until:
                if relay_once(self.database, self.bus) == 0:
                    _await_notification(listener)


def _await_notification(listener: Connection) -> None:
    try:
        for _ in listener.notifies(timeout=_LOOK_EVERY_S, stop_after=1):
            pass
    except psycopg.Error as error:
        raise told_as_ours(error) from error
