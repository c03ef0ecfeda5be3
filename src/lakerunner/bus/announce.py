"""Announce raw objects on the bus, through the outbox of the transaction that recorded them."""

from __future__ import annotations

from collections.abc import Sequence

from lakerunner.bus import topics
from lakerunner.bus.messages import ObjectSeen, encode
from lakerunner.index import outbox
from lakerunner.index.database import Connection
from lakerunner.index.ledger import RawObject
from lakerunner.index.outbox import Outgoing
from lakerunner.model.signals import signal_named


def announce(tx: Connection, objects: Sequence[RawObject]) -> None:
    """Put one message per object into the outbox, for the boxer."""
    outbox.put(tx, [object_seen(obj) for obj in objects])


def object_seen(obj: RawObject) -> Outgoing:
    """Build the message of an object. The key is the org: its objects stay in order and no org waits for all others."""
    message = ObjectSeen(
        object_id=obj.object_id,
        org_id=obj.org_id,
        collector=obj.collector,
        signal=obj.signal,
        bucket=obj.bucket,
        key=obj.key,
        version=obj.version,
        size_bytes=obj.size_bytes,
    )
    return Outgoing(topics.objects(signal_named(obj.signal)).name, str(obj.org_id), encode(message))
