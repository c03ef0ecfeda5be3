"""What a stage is: a description that the boxer, the worker and the reconciliation read.

A stage takes inputs (raw objects or segments), a boxer gathers them into work items, and a worker hands batches of
items to the stage's runner and commits what the runner made. Everything but the runner is the same for all stages.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from lakerunner.bus.topics import Topic
from lakerunner.index.commit import ItemResult
from lakerunner.index.database import Connection, Database
from lakerunner.index.outbox import Outgoing
from lakerunner.index.overdue import Overdue, Position
from lakerunner.model.errors import LakeError
from lakerunner.model.signal import Signal
from lakerunner.model.signals import SIGNALS
from lakerunner.pipeline.packing import PackLimits
from lakerunner.runtime.kernels import Share
from lakerunner.runtime.role import Probe
from lakerunner.runtime.settings import PipelineSettings, Settings


class Input(Protocol):
    """What every input says of itself. Inputs of two orgs or signals never share a work item."""

    @property
    def org_id(self) -> uuid.UUID: ...
    @property
    def collector(self) -> str: ...
    @property
    def signal(self) -> str: ...


I = TypeVar("I", bound=Input)  # noqa: E741  I as in input


class Inputs(Protocol[I]):
    """One kind of input: how it is announced on the bus, and how the index gives it to a work item, once."""

    @property
    def noun(self) -> str:
        """In the plural, for help texts."""

    @property
    def due_by_time(self) -> bool:
        """Whether inputs become due by the passing of time, so that announcing them late means no trouble."""

    def topic(self, stage: str, signal: Signal) -> Topic:
        """Where inputs of that signal are announced to the stage's boxer."""

    def announced(self, database: Database, payloads: Sequence[bytes]) -> list[list[I] | LakeError]:
        """The inputs that each message announces, or why the message cannot be read. Raises when the index is down."""

    def input_id(self, each: I) -> uuid.UUID: ...

    def lock_free(self, tx: Connection, stage: str, inputs: Sequence[I]) -> list[I]:
        """Those that no item of the stage has taken, locked until the transaction ends."""

    def bind(self, tx: Connection, stage: str, inputs: Sequence[I], item_id: uuid.UUID) -> None:
        """Give locked inputs to an item."""

    def release(self, tx: Connection, item_id: uuid.UUID) -> None:
        """Set the inputs of an item free for another item."""

    def given_up(self, item_id: uuid.UUID, each: I, reason: str) -> ItemResult | None:
        """The result that ends an item whose only input can never be done; None when inputs cannot be given up."""

    def of_items(self, tx: Connection, item_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, list[tuple[I, float]]]:
        """The inputs of each item, each with the seconds since it arrived."""

    def overdue(
        self, tx: Connection, stage: str, signals: Sequence[Signal], overdue: Overdue, after: Position
    ) -> tuple[list[Outgoing], Position | None]:
        """Messages for a page of inputs that no item has taken, and where the next page begins, if any."""


@dataclass(frozen=True, slots=True)
class Item(Generic[I]):
    """A work item as a worker holds it: open when it was loaded, with its inputs."""

    item_id: uuid.UUID
    org_id: uuid.UUID
    signal: str
    inputs: tuple[I, ...]
    #: The sum of what the stage says its inputs weigh.
    weight: int
    #: How long ago the first input arrived.
    waited_s: float

    @property
    def collector(self) -> str:
        return self.inputs[0].collector


class InputAtFault(LakeError):
    """An input of the item makes it fail, whatever is tried again. The item is narrowed down to that input."""

    code = "input_at_fault"


def _nothing() -> None: ...


@dataclass(frozen=True, slots=True)
class Attempt:
    """How an attempt at an item ended: with a result to commit (segments made, segments superseded, outcomes of raw
    objects, follow-up messages), or with an error whose class decides whether the item comes again, is narrowed down
    (InputAtFault) or goes to the dead letters."""

    item_id: uuid.UUID
    result: ItemResult | LakeError
    #: Called once the result is visible: for metrics and logs beyond those of every stage.
    on_commit: Callable[[], None] = _nothing


class Runner(ABC, Generic[I]):
    """What one worker process of a stage holds. Called in this order: constructor, `start`, `run`s, `close`."""

    def start(self) -> None:
        """Open what is slow to open. Called again after a retryable error."""

    @abstractmethod
    def run(self, items: Sequence[Item[I]], attempts: Mapping[uuid.UUID, int]) -> Iterable[Attempt]:
        """Do the items, given each item's attempt number; the worker commits each result as it is yielded.

        Several threads call this at once. An error raised concerns all items without a result: a retryable one is
        tried again, a Bug ends the process.
        """

    def is_paused(self) -> bool:
        """Whether nothing should be begun now, because it could only fail and use up attempts."""
        return False

    def is_blocked_by(self, error: LakeError) -> bool:
        """Whether the error stops every item, so that those it met are kept until the pause ends."""
        return False

    def upkeep(self) -> None:
        """Do what time asks for, if it is due. Called often, by one thread, also while nothing arrives."""

    def probes(self) -> Mapping[str, Probe]:
        """Dependencies beyond index and bus."""
        return {}

    def abandon(self) -> None:
        """Make everything under way fail at once, from another thread: the process stops, others do the work."""

    def close(self) -> None:
        """Called once, whatever happened."""


class Gather(Protocol[I]):
    """Chooses the inputs of items. It must lock them, so that they are still free when the item is made."""

    def __call__(
        self, tx: Connection, inputs: Sequence[I], settings: PipelineSettings
    ) -> Sequence[Sequence[I]]: ...  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stage(Generic[I]):
    """A stage's whole description. `{name}` is its worker role and `boxer-{name}` its boxer's."""

    #: Topics are made of it: `bus/messages.py` has the names that there are.
    name: str
    #: For `--help`. Speaks of "all signals", for which a role of one signal puts its own.
    sentence: str
    inputs: Inputs[I]
    #: Inputs of one org, signal and group may share an item.
    group: Callable[[I], Hashable]
    weigh: Callable[[I, PipelineSettings], int]
    #: When a bundle is full, or old enough to be closed anyway.
    limits: Callable[[PipelineSettings], PackLimits]
    runner: Callable[[Settings, Database], Runner[I]]
    #: Chooses the inputs of items once a bundle is closed: among all that the index has, perhaps none yet. Without it,
    #: a bundle is an item.
    gather: Gather[I] | None = None
    #: The compiled kernels of the stage's tasks.
    kernels: tuple[Share, ...] = ()
    signals: tuple[Signal, ...] = SIGNALS


#: A stage whatever its inputs are.
AnyStage = Stage[Any]
