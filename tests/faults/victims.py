"""Processes that are made to die: a role armed with a crash point, by itself or with a Spark of its own.

Most victims are forked from one process that has imported everything, and do the tasks of ingest themselves: what they
test is the promise of driver, boxer, relay and intake, and a tenth of a second instead of ten starts one. The others
are the ingest role as it is run, with its Java and its Python workers.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import psutil

from lakerunner.bus.relay import Relay
from lakerunner.index.role import IndexedRole
from lakerunner.intake.loop import SourceLoop
from lakerunner.intake.record import Recorder
from lakerunner.model.time import TimeRange
from lakerunner.ops.sweeper import Sweeper
from lakerunner.pipeline.backfill.request import announce, wanted_versions
from lakerunner.pipeline.backfill.stage import BACKFILL, BackfillRunner
from lakerunner.pipeline.backfill.task import run_task as run_backfill_task
from lakerunner.pipeline.compact.stage import COMPACT, CompactRunner
from lakerunner.pipeline.compact.task import run_task as run_compact_task
from lakerunner.pipeline.delete.stage import DELETE, DeleteRunner
from lakerunner.pipeline.delete.task import run_task as run_delete_task
from lakerunner.pipeline.ingest.stage import INGEST, IngestRunner
from lakerunner.pipeline.ingest.task import IngestTask, TaskResult, run_task
from lakerunner.pipeline.rollup.stage import ROLLUP, RollupRunner
from lakerunner.pipeline.rollup.task import run_rollup
from lakerunner.pipeline.stages import boxer_role, worker_role
from lakerunner.ruler.role import Ruler
from lakerunner.runtime import crash
from lakerunner.runtime.role import Role
from lakerunner.runtime.run import run_role
from lakerunner.runtime.settings.load import load_settings
from lakerunner.runtime.stop import Stop
from tests.components.moto import CREDENTIALS
from tests.faults.clean_roles import until
from tests.faults.event_folder import EventFolder
from tests.pipeline.delete import deleting
from tests.pipeline.lake import ORG, Lake

ROOT = Path(__file__).parents[2]
EVENTS_VARIABLE = "LAKERUNNER_TEST_EVENTS"
REQUEST_VARIABLE = "LAKERUNNER_TEST_REQUEST"
#: On a busy machine, Java and the first Python workers take this long to start.
_SPARK_START_S = 300.0


class EventIntake(IndexedRole):
    """Intake with the queue of these tests."""

    name = "pubsub"
    sentence = "Record what an event folder tells of."

    def run(self, stop: Stop) -> None:
        recorder = Recorder(self.settings, self.database)
        source = EventFolder(Path(os.environ[EVENTS_VARIABLE]))
        SourceLoop(source, recorder, self.settings.intake.batch).run(stop)


class DeletionRequester(IndexedRole):
    """Asks for one deletion: org, signal, selector, first and last time, and how long it waits."""

    name = "requester"
    sentence = "Request a deletion."

    def run(self, stop: Stop) -> None:
        org_id, *rest = json.loads(os.environ[REQUEST_VARIABLE])
        deleting.request(self.database, uuid.UUID(org_id), *rest)


class BackfillRequester(IndexedRole):
    """Announces what rules have not seen, as `lakerunner rules backfill` does."""

    name = "backfill-requester"
    sentence = "Request a backfill."

    def run(self, stop: Stop) -> None:
        announce(self.database, ORG, wanted_versions(self.database, ORG, None), TimeRange(0, 1 << 62))


def run_here(tasks: Sequence[IngestTask]) -> list[TaskResult]:
    return [run_task(task) for task in tasks]


#: Ingest whose tasks run in the worker's own process: a death within a task is the death of all.
WITHOUT_SPARK = replace(INGEST, runner=lambda settings, database: IngestRunner(settings, database, run_here))
COMPACT_WITHOUT_SPARK = replace(
    COMPACT,
    runner=lambda settings, database: CompactRunner(
        settings, database, lambda tasks: [run_compact_task(task) for task in tasks]
    ),
)

#: Likewise the rollup.
ROLLUP_WITHOUT_SPARK = replace(
    ROLLUP,
    runner=lambda settings, database: RollupRunner(
        settings, database, lambda tasks: [run_rollup(task) for task in tasks]
    ),
)

DELETE_WITHOUT_SPARK = replace(
    DELETE,
    runner=lambda settings, database: DeleteRunner(
        settings, database, lambda tasks: [run_delete_task(task) for task in tasks]
    ),
)

BACKFILL_WITHOUT_SPARK = replace(
    BACKFILL,
    runner=lambda settings, database: BackfillRunner(
        settings, database, lambda tasks: [run_backfill_task(task) for task in tasks]
    ),
)

ROLES: dict[str, type[Role]] = {
    "intake": EventIntake,
    "relay": Relay,
    "boxer": boxer_role(INGEST),
    "ingest": worker_role(WITHOUT_SPARK),
    "boxer-rollup": boxer_role(ROLLUP),
    "rollup": worker_role(ROLLUP_WITHOUT_SPARK),
    "boxer-compact": boxer_role(COMPACT),
    "compact": worker_role(COMPACT_WITHOUT_SPARK),
    "boxer-delete": boxer_role(DELETE),
    "delete": worker_role(DELETE_WITHOUT_SPARK),
    "boxer-backfill": boxer_role(BACKFILL),
    "backfill": worker_role(BACKFILL_WITHOUT_SPARK),
    "backfill-requester": BackfillRequester,
    "ruler": Ruler,
    "requester": DeletionRequester,
    "sweeper": Sweeper,
}
#: Points of tasks, which die in a Python worker of Spark where there is one.
TASK_POINTS = frozenset(
    {
        "compact_after_fetch",
        "compact_after_merge",
        "compact_after_upload",
        "rollup_after_read",
        "rollup_after_write",
        "delete_after_read",
        "delete_after_write",
        "ingest_after_read",
        "ingest_after_write",
        "derive_after_write",
        "backfill_after_read",
        "backfill_after_write",
    }
)


class Victim:
    """What both kinds share: a log, a death, and the certainty that nothing of it is left."""

    def __init__(self, lake: Lake, name: str) -> None:
        self.log_path = Path(tempfile.mkstemp(prefix=f"{name}-", suffix=".log", dir=lake.settings.data.dir)[1])

    def __enter__(self) -> Victim:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.log_path.unlink(missing_ok=True)

    @property
    def returncode(self) -> int | None:
        raise NotImplementedError

    @property
    def died_by_itself(self) -> bool:
        """At its crash point; any other end is an error."""
        code = self.returncode
        assert code in (None, -signal.SIGKILL), f"ended with {code}: {self.last_words()}"
        return code is not None

    def said(self, text: str) -> bool:
        return self.said_times(text) > 0

    def said_times(self, text: str) -> int:
        return self.log_path.read_text(errors="replace").count(text)

    def last_words(self) -> str:
        return self.log_path.read_text(errors="replace")[-2_000:]

    def kill(self) -> None:
        raise NotImplementedError


def _run_forked(name: str, env: Mapping[str, str], log_path: str, at_point: signal.Signals) -> None:
    log = os.open(log_path, os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(log, stream)
    for variable in [each for each in os.environ if each.startswith("LAKERUNNER_")]:
        del os.environ[variable]
    os.environ.update(env)
    # Read when the module was imported, which was before this process existed.
    crash._NAME, crash._LEFT = crash._armed()
    crash._SIGNAL = at_point
    sys.exit(run_role(ROLES[name], load_settings(env=os.environ)))


class ForkedVictim(Victim):
    at_point = signal.SIGKILL
    _context = multiprocessing.get_context("forkserver")

    def __init__(self, lake: Lake, name: str, crash_point: str, **env: str) -> None:
        super().__init__(lake, name)
        # The server that forks may be older than the first cell at S3, and have an environment without credentials.
        variables = CREDENTIALS | lake.env() | {crash.VARIABLE: crash_point} | env
        self._context.set_forkserver_preload([__name__])
        os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        self._process = self._context.Process(
            target=_run_forked, args=(name, variables, str(self.log_path), self.at_point), daemon=True
        )
        self._process.start()

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()
        self._process.join(20)


class SilentVictim(ForkedVictim):
    """A role whose host goes silent at the point, with its connections open, and comes back when others took over."""

    at_point = signal.SIGSTOP

    def __exit__(self, *_: object) -> None:
        """Stay: `come_back` ends it."""

    @property
    def died_by_itself(self) -> bool:
        assert self.returncode is None, f"ended with {self.returncode}: {self.last_words()}"
        return psutil.Process(self._process.pid).status() == psutil.STATUS_STOPPED

    def come_back(self) -> str:
        """Go on where it stopped, try to finish what it had in hand, and stop. Returns what it logged."""
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGCONT)
        os.kill(self._process.pid, signal.SIGTERM)
        self._process.join(30)
        assert self.returncode is not None, f"did not stop: {self.last_words()}"
        logged = self.log_path.read_text(errors="replace")
        self.log_path.unlink(missing_ok=True)
        return logged


class SparkVictim(Victim):
    """The worker of a stage with a Spark session of its own."""

    def __init__(self, lake: Lake, crash_point: str, name: str = "ingest") -> None:
        super().__init__(lake, name)
        env = {key: value for key, value in os.environ.items() if not key.startswith("LAKERUNNER_")}
        env |= lake.env() | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
        # A point in a task kills every attempt: the message must live until the driver is killed too.
        env |= {"LAKERUNNER_BUS_MAX_ATTEMPTS": "1000", crash.VARIABLE: crash_point}
        with self.log_path.open("wb") as log:
            command = [sys.executable, "-m", "tests.pipeline.run_role", name]
            self._process = subprocess.Popen(command, env=env, cwd=ROOT, stdout=log, stderr=log)

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    def kill(self) -> None:
        """As a power cut would end it. Java and its workers must notice by themselves."""
        alive = self._process.poll() is None
        children = psutil.Process(self._process.pid).children(recursive=True) if alive else []
        self._process.kill()
        self._process.wait(20)
        _, left = psutil.wait_procs(children, timeout=20)
        assert not left, f"outlived their driver: {left}"


def kill_role(lake: Lake, name: str, point: str, passing: int, *, on_spark: bool = False, **env: str) -> None:
    """Run the role until it dies at that passing of the point.

    On Spark, a point of a task kills Python workers: the job fails, the driver lives, and is killed in the middle of
    the next attempt.
    """
    if on_spark and point in TASK_POINTS:
        with SparkVictim(lake, point, name) as victim:
            until(lambda: victim.said("spark job failed"), "a task dies", _SPARK_START_S)
            assert not victim.died_by_itself
        return
    with ForkedVictim(lake, name, f"{point}:{passing}", **env) as victim:
        try:
            until(lambda: victim.died_by_itself, f"{name} dies")
        except AssertionError as error:
            raise AssertionError(f"{error}; it said: {victim.last_words()}") from None
