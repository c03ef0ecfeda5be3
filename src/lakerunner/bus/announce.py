"""The messages that announce raw objects and segments to the boxers that take them further."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from lakerunner.bus import topics
from lakerunner.bus.messages import WINDOW_STAGE, ObjectSeen, SegmentsMade, WindowsChanged, encode
from lakerunner.index import outbox
from lakerunner.index.database import Connection
from lakerunner.index.outbox import Outgoing
from lakerunner.model.raw_object import RawObject
from lakerunner.model.rollup_window import window_starts
from lakerunner.model.segment import RAW_TIER_S, Segment
from lakerunner.model.signals import METRICS, signal_named
from lakerunner.model.signals.tiers import ROLLED_TIERS_S


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
        messages += [
            Outgoing(topics.made(signal, stage).name, str(org_id), payload) for stage in takers if stage != WINDOW_STAGE
        ]
    if stages is None or WINDOW_STAGE in stages:
        messages += windows_changed(window for each in segments for window in _windows(each))
    return messages


def windows_changed(windows: Iterable[tuple[uuid.UUID, int, int]]) -> list[Outgoing]:
    """Announce windows, each as org, tier and start. One message per org."""
    by_org: defaultdict[uuid.UUID, set[tuple[int, int]]] = defaultdict(set)
    for org_id, tier_s, start_ns in windows:
        by_org[org_id].add((tier_s, start_ns))
    topic = topics.made(METRICS, WINDOW_STAGE).name
    return [
        Outgoing(topic, str(org_id), encode(WindowsChanged(org_id, tuple(sorted(found)))))
        for org_id, found in by_org.items()
    ]


def _windows(segment: Segment) -> Iterator[tuple[uuid.UUID, int, int]]:
    """The windows in which a segment has rows. Those of a wide segment are found in the index when they are due."""
    if segment.signal == METRICS.name and segment.tier_s == RAW_TIER_S and segment.is_dated:
        for tier_s in ROLLED_TIERS_S:
            for start_ns in window_starts(tier_s, segment.time_range):
                yield segment.org_id, tier_s, max(0, start_ns)
