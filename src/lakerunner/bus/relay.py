"""The relay: the one process that carries the outbox to the bus. Killed before it marks, it publishes again."""

from __future__ import annotations

import psycopg

from lakerunner.bus.contract import Bus
from lakerunner.bus.role import BusRole
from lakerunner.index import outbox
from lakerunner.index.database import Connection, Database, told_as_ours
from lakerunner.index.leases import Lease
from lakerunner.index.singleton import SingletonRole
from lakerunner.runtime.crash import crash_point
from lakerunner.runtime.stop import Stop

#: Also without a notification the outbox is looked at this often: one may be lost with its connection.
_LOOK_EVERY_S = 1.0


class Relay(BusRole, SingletonRole):
    name = "relay"
    sentence = "Publish what committed transactions left in the outbox. One leads; others stand by."

    def lead(self, lease: Lease, until: Stop) -> None:
        with self.database.connect() as listener:
            listener.execute(f"LISTEN {outbox.CHANNEL}")
            while not until:
                if relay_once(self.database, self.bus) == 0:
                    _await_notification(listener)


def relay_once(database: Database, bus: Bus, limit: int = 500) -> int:
    """Publish the oldest pending messages in order, then mark them, and return how many there were.

    For one relay at a time (a lease sees to that): two would publish everything twice, though lose nothing.
    """
    pending = outbox.pending(database, limit)
    if not pending:
        return 0
    bus.publish([each.message for each in pending])
    crash_point("relay_after_publish")
    outbox.mark_published(database, [each.outbox_id for each in pending])
    return len(pending)


def _await_notification(listener: Connection) -> None:
    try:
        for _ in listener.notifies(timeout=_LOOK_EVERY_S, stop_after=1):
            pass
    except psycopg.Error as error:
        raise told_as_ours(error) from error
