"""The messages that announce raw objects and segments to the boxers that take them further."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Sequence

from lakerunner.bus import topics
from lakerunner.bus.messages import ObjectSeen, SegmentsMade, encode
from lakerunner.index import outbox
from lakerunner.index.database import Connection
from lakerunner.index.outbox import Outgoing
from lakerunner.model.raw_object import RawObject
from lakerunner.model.segment import Segment
from lakerunner.model.signals import signal_named


def announce(tx: Connection, objects: Sequence[RawObject]) -> None:
    """Announce objects to the boxer, through the outbox of the transaction that recorded them."""
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


def segments_made(segments: Sequence[Segment], stages: Sequence[str] | None = None) -> list[Outgoing]:
    """Announce segments to the boxers of those stages, by default of all that take segments of their signal.

    One message per day of the index, tier, level and stage.
    """
    groups: defaultdict[tuple[uuid.UUID, str, str, int, int, int], list[uuid.UUID]] = defaultdict(list)
    for each in segments:
        groups[each.org_id, each.collector, each.signal, each.index_day, each.tier_s, each.level].append(
            each.segment_id
        )
    messages = []
    for (org_id, collector, name, dateint, tier_s, level), ids in groups.items():
        signal = signal_named(name)
        payload = encode(SegmentsMade(org_id, collector, name, dateint, tier_s, level, tuple(ids)))
        takers = topics.segment_stages(signal) if stages is None else stages
        messages += [Outgoing(topics.made(signal, stage).name, str(org_id), payload) for stage in takers]
    return messages
