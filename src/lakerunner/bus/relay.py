"""The relay carries messages from the outbox to the bus: it publishes in order, then marks them as published.

A relay that is killed between the two steps publishes the same messages again.
"""

from __future__ import annotations

from lakerunner.bus.contract import Bus
from lakerunner.bus.role import BusRole
from lakerunner.index import outbox
from lakerunner.index.database import Connection, Database, lake_errors
from lakerunner.index.leases import Lease
from lakerunner.index.session import Session
from lakerunner.index.singleton import SingletonRole
from lakerunner.runtime.crash import crash_point
from lakerunner.runtime.stop import Stop

#: The outbox is polled this often even without a notification: one may be lost with its connection.
_POLL_S = 1.0


def relay_once(database: Database, bus: Bus, limit: int = 500) -> int:
    """Publish the oldest pending messages and return their number.

    Only one relay may run at a time, which a lease ensures. Two would publish everything twice, but lose nothing.
    """
    pending = outbox.pending(database, limit)
    if not pending:
        return 0
    bus.publish([each.message for each in pending])
    crash_point("relay_after_publish")
    outbox.mark_published(database, [each.outbox_id for each in pending])
    return len(pending)


class Relay(BusRole, SingletonRole):
    name = "relay"
    sentence = "Publish the messages that committed transactions left in the outbox. One leads; others stand by."

    def lead(self, lease: Lease, until: Stop) -> None:
        # PostgreSQL keeps notifications for a listener that vanished, and its store for them is finite: a session ends.
        with Session(self.database, self.settings.bus.session_timeout_s) as session:
            with lake_errors():
                session.connection.execute(f"LISTEN {outbox.CHANNEL}")
            while not until:
                if relay_once(self.database, self.bus) == 0:
                    _await_notification(session.connection)


def _await_notification(listener: Connection) -> None:
    with lake_errors():
        for _ in listener.notifies(timeout=_POLL_S, stop_after=1):
            pass
