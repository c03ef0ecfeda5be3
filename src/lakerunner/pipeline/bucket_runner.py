"""The base of runners whose tasks read and write the lake's bucket on Spark, and which pause while it is in trouble."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Generic, TypeVar

from lakerunner.model.errors import LakeError
from lakerunner.pipeline.spark.job import SparkJobs
from lakerunner.pipeline.spark.session import SparkLost
from lakerunner.pipeline.stage import I, Runner
from lakerunner.runtime.role import Probe
from lakerunner.runtime.settings import Settings
from lakerunner.store.config import StoreConfig
from lakerunner.store.errors import StoreUnavailable
from lakerunner.store.open import open_store

Task = TypeVar("Task")
Result = TypeVar("Result")


class BucketRunner(Runner[I], Generic[I, Task, Result]):
    """A Spark driver, whose session starts with the first task. With `run_tasks`, tasks run there instead."""

    def __init__(
        self,
        name: str,
        settings: Settings,
        run_task: Callable[[Task], Result],
        run_tasks: Callable[[Sequence[Task]], list[Result]] | None,
    ) -> None:
        self._target = StoreConfig.of(settings)
        self._store = open_store(self._target)
        self._spark: SparkJobs[Task, Result] | None = None
        if run_tasks is None:
            self._spark = SparkJobs(name, settings.spark, run_task, settings.pipeline.jobs)
            run_tasks = self._spark.run
        self._run_tasks = run_tasks
        #: Why tasks could not use the bucket, until one could; and until when no further task tries.
        self._trouble: LakeError | None = None
        self._retry_at_s = 0.0

    def probes(self) -> Mapping[str, Probe]:
        return {"store": self._probe} | ({} if self._spark is None else {"spark": self._spark.probe})

    def is_paused(self) -> bool:
        """While the bucket is down. The readiness probe asks the store every second, which opens and closes this.

        A bucket may answer the probe and still refuse to be read or written; then tasks try again after each pause.
        Also while a lost Spark session is being replaced.
        """
        is_lost = self._spark is not None and self._spark.is_paused()
        return is_lost or self._store.is_paused or monotonic() < self._retry_at_s

    def is_blocked_by(self, error: LakeError) -> bool:
        return isinstance(error, SparkLost) or self._is_trouble_of_bucket(error)

    def abandon(self) -> None:
        if self._spark is not None:
            self._spark.abandon()

    def close(self) -> None:
        if self._spark is not None:
            self._spark.close()

    def _is_trouble_of_bucket(self, error: LakeError) -> bool:
        return isinstance(error, StoreUnavailable)

    def _probe(self) -> None:
        self._store.ping()
        if self._trouble is not None:
            raise self._trouble

    def _note(self, error: LakeError | None) -> None:
        """Remember whether the tasks of an item could use the bucket."""
        if error is None:
            self._trouble = None
        elif self._is_trouble_of_bucket(error):
            self._trouble = error
            self._retry_at_s = monotonic() + self._target.circuit_pause_s
