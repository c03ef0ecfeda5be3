"""Watches a session while jobs run: is Java alive, are there executors, does every job make progress.

Spark waits without end: for a master that came back without knowing this application, for executors that nobody will
start, for a task that hangs. Nothing in a job tells; so it is looked at from outside, and a session that is lost is
ended by force.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

from lakerunner.pipeline.spark.options import is_cluster
from lakerunner.pipeline.spark.session import is_java_gone
from lakerunner.runtime.settings import SparkSettings
from lakerunner.runtime.telemetry import log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_S = 1.0
#: A Java that does not say how many executors it has is as good as dead.
_FROZEN_S = 30.0
#: How long a cancelled job may take to end.
_CANCEL_S = 30.0


@dataclass
class Watched:
    """A job under way."""

    group: str
    began_s: float = field(default_factory=monotonic)
    #: How many of its tasks have ended, and when that last changed.
    ended: int = 0
    progress_s: float = field(default_factory=monotonic)
    cancelled_s: float | None = None


class SessionWatch:
    """One per session. `on_lost` is called once, with the reason, from a thread of its own."""

    def __init__(self, spark: SparkSession, settings: SparkSettings, on_lost: Callable[[str], None]) -> None:
        self._context = spark.sparkContext
        self._settings = settings
        self._on_lost = on_lost
        self._has_executors = is_cluster(settings)
        self._jobs: dict[str, Watched] = {}
        self._over = threading.Event()
        #: What was last seen, and when.
        self.executors = 0
        self._had_executors = False
        self._without_since_s = monotonic()
        self._looked_s = monotonic()
        self._is_stopped = False
        for name, loop in (("spark-look", self._look), ("spark-watch", self._judge)):
            threading.Thread(target=loop, name=name, daemon=True).start()

    @contextlib.contextmanager
    def job(self, group: str) -> Iterator[Watched]:
        """Watch a job while it runs."""
        if not self._jobs:
            # While nothing runs, executors may all have been given back.
            self._without_since_s = monotonic()
        self._jobs[group] = watched = Watched(group)
        try:
            yield watched
        finally:
            del self._jobs[group]

    def end(self) -> None:
        self._over.set()

    def _look(self) -> None:
        """Ask Java. It may not answer; then only this thread waits."""
        while not self._over.wait(_LOOK_S):
            with contextlib.suppress(Exception):
                # Whatever fails here fails for the jobs too, or is seen from the time of the last answer.
                self._ask()

    def _ask(self) -> None:
        if not self._jobs and not self._has_executors:
            self._looked_s = monotonic()
            return
        context = self._context._jsc.sc()
        self._is_stopped = bool(context.isStopped())
        if self._has_executors:
            # One of them is the driver.
            self.executors = len(context.statusTracker().getExecutorInfos()) - 1
            if self.executors:
                self._had_executors = True
                self._without_since_s = monotonic()
        for job in list(self._jobs.values()):
            self._ask_for(job)
        self._looked_s = monotonic()

    def _ask_for(self, job: Watched) -> None:
        tracker = self._context.statusTracker()
        ended = 0
        for job_id in tracker.getJobIdsForGroup(job.group):
            info = tracker.getJobInfo(job_id)
            stages = [tracker.getStageInfo(each) for each in info.stageIds] if info is not None else []
            ended += sum(stage.numCompletedTasks + stage.numFailedTasks for stage in stages if stage is not None)
        if ended != job.ended:
            job.ended, job.progress_s = ended, monotonic()
        elif job.cancelled_s is None and monotonic() - job.progress_s > self._settings.stall_s:
            log().error("spark job stalled", group=job.group, seconds=round(monotonic() - job.progress_s))
            job.cancelled_s = monotonic()
            self._context.cancelJobGroup(job.group)

    def _judge(self) -> None:
        while not self._over.wait(_LOOK_S):
            if reason := self._reason():
                self._over.set()
                self._on_lost(reason)

    def _reason(self) -> str:
        """Why the session is lost; empty if it is not, as far as is known."""
        now_s = monotonic()
        if is_java_gone():
            return "its Java process is gone"
        if self._is_stopped:
            return "its cluster has ended it"
        jobs = list(self._jobs.values())
        if not jobs:
            return ""
        if now_s - self._looked_s > _FROZEN_S:
            return f"its Java process has not answered for {_FROZEN_S:.0f} s"
        if self._has_executors:
            patience_s = self._settings.lost_s if self._had_executors else self._settings.start_s
            if now_s - self._without_since_s > patience_s:
                return f"it has had no executor for {patience_s:g} s"
        stuck = [job for job in jobs if job.cancelled_s is not None and now_s - job.cancelled_s > _CANCEL_S]
        return "a cancelled job did not end" if stuck else ""
