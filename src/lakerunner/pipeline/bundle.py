"""Making a work item of raw objects: one transaction that takes those still free, once."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Final

from lakerunner.bus import topics
from lakerunner.bus.messages import WorkReady, encode
from lakerunner.index import ledger, outbox
from lakerunner.index.database import Connection, Database
from lakerunner.index.outbox import Outgoing
from lakerunner.index.work import WorkItem, item_id, reopen_item
from lakerunner.model.signals import signal_named

STAGE: Final = "ingest"


def bundle_objects(
    database: Database, org_id: uuid.UUID, signal: str, objects: Sequence[uuid.UUID]
) -> uuid.UUID | None:
    """The item that these objects now belong to; None when each of them has one already."""
    with database.transaction() as tx:
        free = _lock_free(tx, objects)
        if not free:
            return None
        item = WorkItem(item_id(STAGE, free), STAGE, org_id, signal)
        # An item of exactly these objects may have ended with all of them in quarantine. Free again, they are
        # to be tried again.
        reopen_item(tx, item)
        ledger.bundle(tx, free, item.item_id)
        outbox.put(tx, [work_ready(item)])
    return item.item_id


def work_ready(item: WorkItem) -> Outgoing:
    """The message that sends an ingest item on its way."""
    message = WorkReady(item.item_id, item.org_id, item.signal, STAGE)
    return Outgoing(topics.work(signal_named(item.signal), STAGE).name, str(item.org_id), encode(message))


def _lock_free(tx: Connection, objects: Sequence[uuid.UUID]) -> list[uuid.UUID]:
    # In order of id, so that two boxers that were given the same objects wait for each other and do not lock up.
    rows = tx.execute(
        "SELECT object_id FROM raw_object WHERE object_id = ANY(%s) AND state = 'seen' ORDER BY object_id FOR UPDATE",
        [list(objects)],
    ).fetchall()
    return [row["object_id"] for row in rows]
