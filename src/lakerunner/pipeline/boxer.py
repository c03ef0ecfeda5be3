"""The boxer of any stage: gathers announced inputs into work items of a good size, soon."""

from __future__ import annotations

import uuid
from collections.abc import Hashable
from dataclasses import dataclass
from time import monotonic
from typing import Generic

from lakerunner.bus.contract import Consumer, Delivery, answer, run_steps
from lakerunner.index.database import Database
from lakerunner.index.work import count_open
from lakerunner.model.errors import LakeError
from lakerunner.pipeline.items import make_items
from lakerunner.pipeline.packing import Bundle, Packer
from lakerunner.pipeline.stage import I, Stage
from lakerunner.runtime.crash import crash_point
from lakerunner.runtime.settings import PipelineSettings
from lakerunner.runtime.stop import Stop
from lakerunner.runtime.telemetry import log

_POLL_MESSAGES = 500
#: The longest sleep, so that age is looked at even when nothing arrives.
_POLL_S = 0.25
#: Inputs held unanswered. Each stands for at most one message, and a consumer may have more messages out than this.
_MAX_HELD = 2_500
#: Open items at or above which the stage has enough to do, and bundles may grow.
_BUSY_ITEMS = 4
#: How long the answer to "is the stage busy" stays good.
_BUSY_FRESH_S = 0.5


@dataclass(frozen=True, slots=True)
class Group:
    """Inputs of one group may share an item."""

    org_id: uuid.UUID
    signal: str
    of_stage: Hashable


@dataclass(slots=True)
class Announcement:
    """A delivery, and how many of its inputs have no item yet. It is answered when none is left."""

    delivery: Delivery
    left: int


@dataclass(frozen=True, slots=True)
class Held(Generic[I]):
    """An input in an open bundle, with the message that announced it."""

    input: I
    announcement: Announcement


class Boxer(Generic[I]):
    """One consumer's loop. A message is answered when its inputs have items: a restart repeats, and never loses."""

    def __init__(self, stage: Stage[I], database: Database, consumer: Consumer, settings: PipelineSettings) -> None:
        self._stage = stage
        self._database = database
        self._consumer = consumer
        self._settings = settings
        self._packer: Packer[Held[I]] = Packer(stage.limits(settings), _MAX_HELD)
        #: Polled, and not yet looked up in the index.
        self._arrived: list[Delivery] = []
        self._closed: list[Bundle[Held[I]]] = []
        self._holds_suspect = False
        self._busy = False
        self._busy_known_until_s = 0.0

    @property
    def held(self) -> int:
        return self._packer.held

    def run(self, stop: Stop) -> None:
        """Until asked to stop. Open bundles are then dropped: their messages go back with the consumer."""
        run_steps(self.step, stop, f"boxer-{self._stage.name}")

    def step(self) -> None:
        """Take what there is, close what is due."""
        self._arrived += self._consumer.poll(_POLL_MESSAGES, self._patience_s())
        self._take_arrived()
        idle = not self._stage_is_busy()
        # No message follows a suspect before it is answered, so its bundle has nothing to wait for.
        self._closed += self._packer.due(monotonic(), idle=idle, at_once=self._holds_suspect)
        self._make_items()
        crash_point("boxer_before_bus_commit")
        self._consumer.commit()

    def _take_arrived(self) -> None:
        """Put the announced inputs into bundles. While the index is down, what arrived stays for the next try."""
        if not self._arrived:
            return
        found = self._stage.inputs.announced(self._database, [delivery.payload for delivery in self._arrived])
        arrived, self._arrived = self._arrived, []
        self._holds_suspect = any(delivery.suspect for delivery in arrived)
        for delivery, inputs in zip(arrived, found, strict=True):
            if isinstance(inputs, LakeError):
                answer(self._consumer, delivery, inputs)
                continue
            if not inputs:
                answer(self._consumer, delivery)
                continue
            announcement = Announcement(delivery, len(inputs))
            for each in inputs:
                group = Group(each.org_id, each.signal, self._stage.group(each))
                weight = self._stage.weigh(each, self._settings)
                held = Held(each, announcement)
                # Counted from the announcement, so that a boxer that was killed does not make its inputs wait again.
                self._closed += self._packer.add(group, held, weight, monotonic(), delivery.age_s())

    def _make_items(self) -> None:
        """Make items of the closed bundles. A bundle whose item could not be made stays for the next try."""
        while self._closed:
            bundle = self._closed[0]
            crash_point("boxer_before_bundle")
            inputs = [held.input for held in bundle.things]
            made = make_items(self._database, self._stage, inputs, self._settings)
            crash_point("boxer_after_bundle")
            for held in bundle.things:
                held.announcement.left -= 1
                if not held.announcement.left:
                    answer(self._consumer, held.announcement.delivery)
            del self._closed[0]
            for item_id in made:
                first = bundle.things[0].input
                log().info(
                    "bundle closed", stage=self._stage.name, org=str(first.org_id), collector=first.collector,
                    signal=first.signal, item=str(item_id), inputs=len(bundle.things), weight=bundle.weight,
                )  # fmt: skip

    def _patience_s(self) -> float:
        due_s = self._packer.next_due_s(idle=not self._busy)
        return _POLL_S if due_s is None else min(_POLL_S, max(0.0, due_s - monotonic()))

    def _stage_is_busy(self) -> bool:
        """Whether items wait already: then a larger bundle costs no freshness and saves segments."""
        if self._packer.held and monotonic() >= self._busy_known_until_s:
            with self._database.transaction() as tx:
                self._busy = count_open(tx, self._stage.name, _BUSY_ITEMS) >= _BUSY_ITEMS
            self._busy_known_until_s = monotonic() + _BUSY_FRESH_S
        return self._busy
