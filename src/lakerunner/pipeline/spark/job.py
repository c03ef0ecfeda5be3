"""Running tasks as one Spark job: each task is a partition of its own, and its result the only element.

An RDD of tasks rather than a data frame of their descriptions: no query is planned and no code generated, which costs
0.06 CPU seconds per job instead of 0.17, and each executor is sent its own task only (measured 2026-11).
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Generic, TypeVar

from lakerunner.model.errors import LakeError, Unavailable
from lakerunner.pipeline.spark.options import session_options
from lakerunner.pipeline.spark.session import (
    SparkLost,
    first_line,
    kill_java,
    kill_session,
    spark_session,
    stop_session,
)
from lakerunner.pipeline.spark.watch import SessionWatch
from lakerunner.runtime.java import find_java
from lakerunner.runtime.retry import Backoff
from lakerunner.runtime.settings import SparkSettings
from lakerunner.runtime.telemetry import log
from lakerunner.store.requests import Requests, add_requests, take_requests

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Task = TypeVar("Task")
Result = TypeVar("Result")

#: Waits between attempts to start a session in place of a lost one.
_REBUILD = Backoff(base_s=1.0, cap_s=20.0)
#: How long calls of a killed Java may take to fail.
_UNWIND_S = 5.0


class SparkJobs(Generic[Task, Result]):
    """Runs one function over tasks, with the session of this process. Safe for several threads.

    A session that is lost is replaced in the background. Until then every call raises SparkLost at once.
    """

    def __init__(self, name: str, settings: SparkSettings, run: Callable[[Task], Result], pools: int) -> None:
        self._name = name
        self._settings = settings
        self._run = run
        self._pools = pools
        self._watch: SessionWatch | None = None
        self._spark: SparkSession | None = None
        self._starting = threading.Lock()
        self._job_numbers, self._group_numbers = itertools.count(), itertools.count()
        #: Why there is no session that works; None if there is one, or none was needed yet.
        self._trouble: SparkLost | None = None
        self._is_kept_warm = False
        self._closing = threading.Event()
        #: Calls that somebody waits for.
        self._calls = 0

    def start(self, nothing: Task) -> None:
        """Begin to start the session, and to run a task without work on every core.

        That lets the Python workers import what they need (about 3 s). It goes on in the background, because it takes
        longer than the rest of the process: until then work is taken already, and the first job waits.
        """
        # What waiting cannot solve is raised here.
        find_java()
        session_options(self._settings)
        self._is_kept_warm = True
        threading.Thread(target=self._begin, args=(nothing,), name="spark-start", daemon=True).start()

    def run(self, tasks: Sequence[Task]) -> list[Result]:
        """One job over the tasks. A stage that was not started starts its session now.

        Stages that are seldom busy leave it at that: an idle session takes memory.
        """
        if not tasks:
            return []
        # Pools take turns, and concurrent jobs have different ones: a small job does not wait behind a large one.
        pool = f"{self._name}-{next(self._job_numbers) % self._pools}"
        return self._watched(pool, lambda _: tasks)

    def probe(self) -> None:
        """Raise why there is no session that works, if one is needed."""
        if self._trouble is not None:
            raise self._trouble

    def is_paused(self) -> bool:
        """Whether a job could only fail now."""
        return self._trouble is not None

    def abandon(self) -> None:
        """End everything under way at once: this process is going to stop, and does not wait for Spark."""
        self._closing.set()
        kill_java()
        end = monotonic() + _UNWIND_S
        while self._calls and monotonic() < end:
            # A session that is just being started may get its Java only now.
            threading.Event().wait(0.1)
            kill_java()

    def _begin(self, nothing: Task) -> None:
        began_s = monotonic()
        try:
            self._watched("warm-up", lambda spark: [nothing] * spark.sparkContext.defaultParallelism)
        except LakeError as error:
            with self._starting:
                # A session that was lost is being replaced already.
                if self._closing.is_set() or self._trouble is not None or self._spark is not None:
                    return
                self._trouble = SparkLost(error.message, hint=error.hint)
            log().error("spark does not start", reason=str(error))
            threading.Thread(target=self._rebuild, name="spark-rebuild", daemon=True).start()
        else:
            log().info("spark started", seconds=round(monotonic() - began_s, 1))

    def close(self) -> None:
        self._closing.set()
        if self._watch is not None:
            self._watch.end()
            stop_session()
        self.abandon()

    def _watched(self, pool: str, tasks: Callable[[SparkSession], Sequence[Task]]) -> list[Result]:
        spark: SparkSession | None = None
        self._calls += 1
        try:
            spark, watch = self._session()
            group = f"{pool}-{next(self._group_numbers)}"
            with watch.job(group):
                counted = run_tasks(spark, pool, Counted(self._run), tasks(spark), group)
            for _, requests in counted:
                add_requests(requests)
            return [result for result, _ in counted]
        except SparkLost as error:
            if spark is not None:
                self._lose(spark, error.message)
            raise
        finally:
            self._calls -= 1

    def _session(self) -> tuple[SparkSession, SessionWatch]:
        # Asked before the lock too: whoever replaces the session holds it for long.
        self.probe()
        with self._starting:
            self.probe()
            return self._open()

    def _open(self) -> tuple[SparkSession, SessionWatch]:
        if self._closing.is_set():
            raise SparkLost("cannot run a Spark job: the process is stopping")
        if self._spark is None or self._watch is None:
            # Spark may wait for its master forever.
            impatient = threading.Timer(self._settings.start_s, kill_java)
            impatient.daemon = True
            impatient.start()
            try:
                self._spark = spark_session(self._settings, self._is_kept_warm, self._run.__module__)
            finally:
                impatient.cancel()
            self._watch = SessionWatch(self._spark, self._settings, partial(self._lose, self._spark))
        return self._spark, self._watch

    def _lose(self, spark: SparkSession, reason: str) -> None:
        """End a session by force, which fails its jobs, and replace it in the background."""
        with self._starting:
            if self._closing.is_set() or self._spark is not spark:
                return
            if self._trouble is None:
                self._trouble = SparkLost(f"cannot use Spark at {self._settings.master}: {reason}")
                threading.Thread(target=self._rebuild, name="spark-rebuild", daemon=True).start()
            log().error("spark session lost", reason=reason)
            self._drop()

    def _drop(self) -> None:
        if self._watch is not None:
            self._watch.end()
        self._spark = self._watch = None
        kill_session()

    def _rebuild(self) -> None:
        began_s = monotonic()
        for failures in itertools.count(1):
            if self._closing.wait(_REBUILD.ceiling_s(failures)):
                return
            try:
                with self._starting:
                    spark, watch = self._open()
                # A master takes a session also when it has no worker that could do anything for it.
                with watch.job("probe"):
                    run_tasks(spark, "probe", describe_executor, [None], "probe")
            except LakeError as error:
                log().warning("spark does not start", reason=str(error), tries=failures)
                with self._starting:
                    self._drop()
                continue
            self._trouble = None
            log().info("spark session replaced", seconds=round(monotonic() - began_s, 1), tries=failures)
            return


class Counted(Generic[Task, Result]):
    """A function over tasks that also returns the requests to buckets which executors made, for the driver to count."""

    def __init__(self, run: Callable[[Task], Result]) -> None:
        self._run = run

    def __call__(self, task: Task) -> tuple[Result, list[Requests]]:
        return self._run(task), take_requests()


def run_tasks(
    spark: SparkSession, pool: str, run: Callable[[Task], Result], tasks: Sequence[Task], group: str = ""
) -> list[Result]:
    """The results in the order of the tasks. Unavailable when a task died; SparkLost when the session did.

    `run` must be a function of a module that executors can import, and results must be small: they come to the driver.
    """
    # Imported here: roles that are forked from one process import it, and few of them need it at their start.
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    if not tasks:
        return []
    context = spark.sparkContext
    try:
        context.setLocalProperty("spark.scheduler.pool", pool)
        if group:
            context.setJobGroup(group, pool)
        return context.parallelize(list(tasks), len(tasks)).map(run).collect()
    except Exception as error:
        # A Java that was killed shows in many ways.
        if not is_alive(spark):
            raise SparkLost("cannot run a Spark job: the session is gone") from None
        if not isinstance(error, PySparkException | Py4JError | OSError):
            raise
        reason = first_line(error)
        log().warning("spark job failed", tasks=len(tasks), reason=reason)
        raise Unavailable(f"cannot finish a Spark job: {reason}") from None


def describe_executor(_: object) -> dict[str, str]:
    """A task without work, which says where it ran: what an executor must be able to do at least."""
    import os
    import platform
    import socket

    import pyarrow

    import lakerunner

    return {
        "host": socket.gethostname(),
        "python": platform.python_version(),
        "lakerunner": lakerunner.__version__,
        "pyarrow": pyarrow.__version__,
        "pid": str(os.getpid()),
    }


def is_alive(spark: SparkSession) -> bool:
    """Whether Java answers and its context is not stopped."""
    from py4j.protocol import Py4JError

    try:
        return not spark.sparkContext._jsc.sc().isStopped()
    except (Py4JError, OSError, AttributeError):
        return False
