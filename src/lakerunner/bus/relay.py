"""From the outbox to the bus: publish in order, then mark. Killed in between, it publishes again."""

from __future__ import annotations

from lakerunner.bus.contract import Bus
from lakerunner.index import outbox
from lakerunner.index.database import Database
from lakerunner.runtime.crash import crash_point


def relay_once(database: Database, bus: Bus, limit: int = 500) -> int:
    """Publish the oldest pending messages and return how many there were.

    For one relay at a time (a lease sees to that): two would publish everything twice, though lose nothing.
    """
    pending = outbox.pending(database, limit)
    if not pending:
        return 0
    bus.publish([each.message for each in pending])
    crash_point("relay_after_publish")
    outbox.mark_published(database, [each.outbox_id for each in pending])
    return len(pending)
