"""The stages that there are, and the roles made from them. Adding a stage is a folder and one line here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, TypeVar

from lakerunner.bus import topics
from lakerunner.bus.role import BusRole
from lakerunner.model.signal import Signal
from lakerunner.pipeline.backfill.stage import BACKFILL
from lakerunner.pipeline.boxer import Boxer
from lakerunner.pipeline.compact.stage import COMPACT
from lakerunner.pipeline.delete.stage import DELETE
from lakerunner.pipeline.ingest.stage import INGEST
from lakerunner.pipeline.rollup.stage import ROLLUP
from lakerunner.pipeline.stage import AnyStage
from lakerunner.pipeline.worker import Worker
from lakerunner.runtime.kernels import Share
from lakerunner.runtime.role import Probe, Role
from lakerunner.runtime.settings import Settings
from lakerunner.runtime.stop import Stop

STAGES: tuple[AnyStage, ...] = (INGEST, COMPACT, ROLLUP, DELETE, BACKFILL)


#: How long a worker may take to abandon what it could not finish, and to close.
_CLOSE_S = 12.0


class StageRole(BusRole):
    """A role of one stage, for all its signals or for some."""

    stage: ClassVar[AnyStage]
    signals: ClassVar[tuple[Signal, ...]]
    #: The same for all signals, so that a role of all and a role of one share the work.
    group: ClassVar[str]


class BoxerRole(StageRole):
    def run(self, stop: Stop) -> None:
        names = [self.stage.inputs.topic(self.stage.name, signal).name for signal in self.signals]
        consumer = self.bus.consumer(self.group, names)
        try:
            Boxer(self.stage, self.database, consumer, self.settings.pipeline).run(stop)
        finally:
            consumer.close()


class WorkerRole(StageRole):
    @classmethod
    def kernels(cls) -> Sequence[Share]:
        return cls.stage.kernels

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.runner = self.stage.runner(settings, self.database)

    def start(self) -> None:
        super().start()
        self.runner.start()

    def run(self, stop: Stop) -> None:
        consumer = self.bus.consumer(self.group, [topics.work(each, self.stage.name).name for each in self.signals])
        try:
            attempts = self.settings.bus.max_attempts
            Worker(self.stage, self.database, consumer, self.settings.pipeline, self.runner, attempts).run(stop)
        finally:
            consumer.close()

    def probes(self) -> Mapping[str, Probe]:
        return {**super().probes(), **self.runner.probes()}

    def hurry(self) -> None:
        self.runner.abandon()

    def grace_s(self) -> float:
        return self.settings.pipeline.finish_s + _CLOSE_S

    def close(self) -> None:
        self.runner.close()
        super().close()


def worker_role(stage: AnyStage, signal: Signal | None = None) -> type[WorkerRole]:
    """The role that does a stage's items, of all its signals or of one."""
    return _role(WorkerRole, stage, stage.name, stage.sentence, signal)


def boxer_role(stage: AnyStage, signal: Signal | None = None) -> type[BoxerRole]:
    """The role that gathers a stage's inputs into items, of all its signals or of one."""
    sentence = f"Gather {stage.inputs.noun} of all signals into work items for {stage.name}."
    return _role(BoxerRole, stage, f"boxer-{stage.name}", sentence, signal)


R = TypeVar("R", bound=StageRole)


def _role(base: type[R], stage: AnyStage, name: str, sentence: str, signal: Signal | None) -> type[R]:
    members = {"stage": stage, "group": name, "name": name, "sentence": sentence, "signals": stage.signals}
    if signal is not None:
        only = {"name": f"{name}-{signal}", "sentence": sentence.replace("all signals", signal.name)}
        members |= {**only, "signals": (signal,)}
    return type(f"{base.__name__}:{members['name']}", (base,), members)


def stage_roles() -> tuple[type[Role], ...]:
    """Two roles per stage, for all its signals."""
    return tuple(role(stage) for stage in STAGES for role in (worker_role, boxer_role))


def stage_roles_by_signal() -> tuple[type[Role], ...]:
    """The same work cut by signal, for installations of many machines."""
    return tuple(
        role(stage, signal) for stage in STAGES for role in (boxer_role, worker_role) for signal in stage.signals
    )
