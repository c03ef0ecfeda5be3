"""The boxer of ingest: raw objects that were seen become work items of a good size, soon."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from time import monotonic

from lakerunner.bus.contract import Consumer, Delivery
from lakerunner.bus.messages import ObjectSeen, decode
from lakerunner.index.database import Database
from lakerunner.model.errors import BadInput, Conflict, LakeError
from lakerunner.model.signals import signal_named
from lakerunner.pipeline.bundle import STAGE, bundle_objects
from lakerunner.pipeline.packing import Bundle, Packer, PackLimits, estimated_bytes
from lakerunner.runtime.crash import crash_point
from lakerunner.runtime.metrics import BUS_HANDLED, SWALLOWED
from lakerunner.runtime.retry import Backoff
from lakerunner.runtime.settings import PipelineSettings
from lakerunner.runtime.stop import Stop
from lakerunner.runtime.telemetry import log

_POLL_MESSAGES = 500
#: The longest sleep, so that age is looked at even when nothing arrives.
_POLL_S = 0.25
#: Messages held unanswered: well below what a consumer may have out.
_MAX_HELD = 2_500
#: Open items at or above which ingest has enough to do, and bundles may grow.
_BUSY_ITEMS = 4
#: How long an answer to "is ingest busy" stays good.
_BUSY_FRESH_S = 0.5
_TROUBLE = Backoff(base_s=0.2, cap_s=5.0)


@dataclass(frozen=True, slots=True)
class Group:
    """Objects of one group may share a segment."""

    org_id: uuid.UUID
    collector: str
    signal: str


@dataclass(frozen=True, slots=True)
class Held:
    """An object in an open bundle, with the message that is answered when the bundle is durable."""

    seen: ObjectSeen
    delivery: Delivery


def pack_limits(settings: PipelineSettings) -> PackLimits:
    return PackLimits(settings.bundle_bytes, settings.bundle_objects, settings.bundle_idle_s, settings.bundle_age_s)


class Boxer:
    """One consumer's loop. A message is answered when its object has an item: a restart repeats, and never loses."""

    def __init__(self, database: Database, consumer: Consumer, settings: PipelineSettings) -> None:
        self._database = database
        self._consumer = consumer
        self._settings = settings
        self._packer: Packer[Held] = Packer(pack_limits(settings), _MAX_HELD)
        self._closed: list[Bundle[Held]] = []
        self._busy = False
        self._busy_known_until_s = 0.0

    def run(self, stop: Stop) -> None:
        """Until asked to stop. Open bundles are then dropped: their messages go back with the consumer."""
        failures = 0
        while not stop:
            try:
                self.step()
                failures = 0
            except Conflict as error:
                # The partition's messages went to another member, who finds what was bundled to be done.
                SWALLOWED.labels("bus_partition_lost").inc()
                log().info("partition lost", reason=str(error))
            except LakeError as error:
                if not error.retryable:
                    raise
                failures += 1
                log().warning("boxer waits", error=str(error), held=self._packer.held)
                stop.wait(_TROUBLE.delay_s(failures))

    def step(self) -> None:
        """Take what there is, close what is due."""
        for delivery in self._consumer.poll(_POLL_MESSAGES, self._patience_s()):
            self._take(delivery)
        self._closed += self._packer.due(monotonic(), idle=not self._ingest_is_busy())
        if self._closed:
            self._bundle_closed()
        crash_point("boxer_before_bus_commit")
        self._consumer.commit()

    def _take(self, delivery: Delivery) -> None:
        try:
            seen = decode(ObjectSeen, delivery.payload)
            signal_named(seen.signal)
        except BadInput as error:
            self._consumer.fail(delivery, error)
            BUS_HANDLED.labels(delivery.topic, self._consumer.group, error.code).inc()
            return
        weight = estimated_bytes(seen.key, seen.size_bytes, self._settings.expansion)
        group = Group(seen.org_id, seen.collector, seen.signal)
        self._closed += self._packer.add(group, Held(seen, delivery), weight, monotonic())

    def _bundle_closed(self) -> None:
        """Make items of the closed bundles. One that could not be made stays for the next try."""
        while self._closed:
            bundle = self._closed[0]
            group = bundle.group
            assert isinstance(group, Group)
            crash_point("boxer_before_bundle")
            made = bundle_objects(
                self._database, group.org_id, group.signal, [held.seen.object_id for held in bundle.things]
            )
            crash_point("boxer_after_bundle")
            for held in bundle.things:
                self._consumer.done(held.delivery)
                BUS_HANDLED.labels(held.delivery.topic, self._consumer.group, "done").inc()
            del self._closed[0]
            if made is not None:
                log().info(
                    "bundle closed", org=str(group.org_id), collector=group.collector, signal=group.signal,
                    item=str(made), objects=len(bundle.things), estimated_bytes=bundle.weight,
                )  # fmt: skip

    def _patience_s(self) -> float:
        due_s = self._packer.next_due_s(idle=not self._busy)
        return _POLL_S if due_s is None else min(_POLL_S, max(0.0, due_s - monotonic()))

    def _ingest_is_busy(self) -> bool:
        """Whether items wait already: then a larger bundle costs no freshness and saves segments."""
        if self._packer.held and monotonic() >= self._busy_known_until_s:
            with self._database.transaction() as tx:
                row = tx.execute(
                    "SELECT count(*) AS items FROM (SELECT 1 FROM work_item WHERE stage = %s AND state = 'open'"
                    " LIMIT %s) AS waiting",
                    [STAGE, _BUSY_ITEMS],
                ).fetchone()
            assert row is not None
            self._busy = row["items"] >= _BUSY_ITEMS
            self._busy_known_until_s = monotonic() + _BUSY_FRESH_S
        return self._busy
