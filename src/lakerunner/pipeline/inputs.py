"""The kinds of inputs: raw objects from the ledger, live segments, and windows whose rows changed."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from lakerunner.bus import topics
from lakerunner.bus.announce import object_seen, segments_made, windows_changed
from lakerunner.bus.messages import ObjectSeen, SegmentsMade, WindowsChanged, decode
from lakerunner.bus.topics import Topic
from lakerunner.index import ledger, overdue, rollup_windows, segment_inputs
from lakerunner.index.commit import ItemResult
from lakerunner.index.database import Connection, Database
from lakerunner.index.lookup import load_segments
from lakerunner.index.outbox import Outgoing
from lakerunner.index.overdue import Overdue, Position
from lakerunner.index.segments import SegmentRef, ref
from lakerunner.model.errors import LakeError
from lakerunner.model.raw_object import RawObject, quarantined
from lakerunner.model.rollup_window import Window, is_closed, width_ns
from lakerunner.model.segment import Segment
from lakerunner.model.signal import Signal
from lakerunner.model.signals import signal_named


class RawObjects:
    """Raw objects, announced by intake. The ledger row says which item has one, so only one stage can take them."""

    noun = "raw objects"
    due_by_time = False

    def topic(self, stage: str, signal: Signal) -> Topic:
        return topics.objects(signal)

    def announced(self, database: Database, payloads: Sequence[bytes]) -> list[list[RawObject] | LakeError]:
        return [_raw_object(payload) for payload in payloads]

    def input_id(self, each: RawObject) -> uuid.UUID:
        return each.object_id

    def lock_free(self, tx: Connection, stage: str, inputs: Sequence[RawObject]) -> list[RawObject]:
        by_id = {each.object_id: each for each in inputs}
        free = ledger.lock_seen(tx, list(by_id))
        return [each for object_id, each in by_id.items() if object_id in free]

    def bind(self, tx: Connection, stage: str, inputs: Sequence[RawObject], item_id: uuid.UUID) -> None:
        ledger.bundle(tx, [each.object_id for each in inputs], item_id)

    def release(self, tx: Connection, item_id: uuid.UUID) -> None:
        ledger.release(tx, item_id)

    def given_up(self, item_id: uuid.UUID, each: RawObject, reason: str) -> ItemResult | None:
        return ItemResult(item_id, objects=[quarantined(each, reason)])

    def of_items(self, tx: Connection, item_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, list[tuple[RawObject, float]]]:
        return ledger.objects_of_items(tx, item_ids)

    def overdue(
        self, tx: Connection, stage: str, signals: Sequence[Signal], due: Overdue, after: Position
    ) -> tuple[list[Outgoing], Position | None]:
        page = overdue.seen_objects(tx, due, after)
        return [object_seen(each) for each in page.found], page.end


RAW_OBJECTS: Final = RawObjects()


@dataclass(frozen=True, slots=True)
class Segments:
    """Live segments, announced by the stage that made them. Each stage takes a segment once."""

    #: Which segments the stage wants: of which tier and level, say. The boxer passes over the others.
    wanted: Callable[[Segment], bool] = lambda _: True
    noun: str = "segments"
    due_by_time: ClassVar[bool] = False

    def topic(self, stage: str, signal: Signal) -> Topic:
        return topics.made(signal, stage)

    def announced(self, database: Database, payloads: Sequence[bytes]) -> list[list[Segment] | LakeError]:
        messages = [_segments_made(payload) for payload in payloads]
        refs = {each: None for message in messages if isinstance(message, SegmentsMade) for each in _refs(message)}
        with database.transaction() as tx:
            known = {ref(segment): segment for segment in load_segments(tx, list(refs)) if self.wanted(segment)}
        return [
            [known[each] for each in _refs(message) if each in known] if isinstance(message, SegmentsMade) else message
            for message in messages
        ]

    def input_id(self, each: Segment) -> uuid.UUID:
        return each.segment_id

    def lock_free(self, tx: Connection, stage: str, inputs: Sequence[Segment]) -> list[Segment]:
        by_ref = {ref(each): each for each in inputs}
        free = segment_inputs.lock_untaken(tx, stage, list(by_ref))
        return [each for name, each in by_ref.items() if name in free]

    def bind(self, tx: Connection, stage: str, inputs: Sequence[Segment], item_id: uuid.UUID) -> None:
        segment_inputs.bind_segments(tx, stage, [ref(each) for each in inputs], item_id)

    def release(self, tx: Connection, item_id: uuid.UUID) -> None:
        segment_inputs.release_segments(tx, item_id)

    def given_up(self, item_id: uuid.UUID, each: Segment, reason: str) -> ItemResult | None:
        return None

    def of_items(self, tx: Connection, item_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, list[tuple[Segment, float]]]:
        return segment_inputs.segments_of_items(tx, item_ids)

    def overdue(
        self, tx: Connection, stage: str, signals: Sequence[Signal], due: Overdue, after: Position
    ) -> tuple[list[Outgoing], Position | None]:
        page = overdue.untaken_segments(tx, stage, [signal.name for signal in signals], due, after)
        return segments_made([each for each in page.found if self.wanted(each)], [stage]), page.end


class Windows:
    """Windows of rollups. Announced by the segments that changed them and, when they are over, by reconciliation."""

    noun = "windows"
    due_by_time = True

    def topic(self, stage: str, signal: Signal) -> Topic:
        return topics.made(signal, stage)

    def announced(self, database: Database, payloads: Sequence[bytes]) -> list[list[Window] | LakeError]:
        messages = [_windows(payload) for payload in payloads]
        asked = {window: None for message in messages if not isinstance(message, LakeError) for window in message}
        with database.transaction() as tx:
            ready = rollup_windows.ready_windows(tx, list(asked))
        return [
            message
            if isinstance(message, LakeError)
            else list(dict.fromkeys(ready[key] for each in message if (key := _key(each)) in ready))
            for message in messages
        ]

    def input_id(self, each: Window) -> uuid.UUID:
        return each.window_id

    def lock_free(self, tx: Connection, stage: str, inputs: Sequence[Window]) -> list[Window]:
        return rollup_windows.lock_free(tx, inputs)

    def bind(self, tx: Connection, stage: str, inputs: Sequence[Window], item_id: uuid.UUID) -> None:
        rollup_windows.bind_windows(tx, inputs, item_id)

    def release(self, tx: Connection, item_id: uuid.UUID) -> None:
        rollup_windows.release_windows(tx, item_id)

    def given_up(self, item_id: uuid.UUID, each: Window, reason: str) -> ItemResult | None:
        return None

    def of_items(self, tx: Connection, item_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, list[tuple[Window, float]]]:
        return rollup_windows.windows_of_items(tx, item_ids)

    def overdue(
        self, tx: Connection, stage: str, signals: Sequence[Signal], due: Overdue, after: Position
    ) -> tuple[list[Outgoing], Position | None]:
        """All that are due, in one page, whatever their age: most windows become due by the mere passing of time.

        One for each closed day: it makes the boxer look at the whole day.
        """
        now_ns = time.time_ns()
        windows: dict[Hashable, Window] = {}
        for each in (*rollup_windows.due_windows(tx, 0.0), *rollup_windows.joinable_days(tx)):
            windows.setdefault((each.org_id, each.day) if is_closed(each.day, now_ns) else _key(each), each)
        return windows_changed(map(_key, windows.values())), None


WINDOWS: Final = Windows()


def _key(window: Window) -> tuple[uuid.UUID, int, int]:
    return window.org_id, window.tier_s, window.start_ns


def _windows(payload: bytes) -> list[Window] | LakeError:
    try:
        message = decode(WindowsChanged, payload)
    except LakeError as error:
        return error
    return [
        Window(message.org_id, tier_s, start_ns, start_ns + width_ns(tier_s)) for tier_s, start_ns in message.windows
    ]


def _raw_object(payload: bytes) -> list[RawObject] | LakeError:
    try:
        seen = decode(ObjectSeen, payload)
        signal_named(seen.signal)
    except LakeError as error:
        return error
    return [
        RawObject(seen.org_id, seen.collector, seen.signal, seen.bucket, seen.key, seen.version, seen.size_bytes)
    ]  # fmt: skip


def _segments_made(payload: bytes) -> SegmentsMade | LakeError:
    try:
        return decode(SegmentsMade, payload)
    except LakeError as error:
        return error


def _refs(message: SegmentsMade) -> list[SegmentRef]:
    return [SegmentRef(message.dateint, segment_id) for segment_id in message.segment_ids]
