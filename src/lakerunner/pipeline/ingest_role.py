"""The role of ingest: a Spark driver."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lakerunner.bus import topics
from lakerunner.bus.contract import Consumer
from lakerunner.formats.limits import limits_of
from lakerunner.formats.options import options_of
from lakerunner.index.profiles import list_profiles
from lakerunner.intake.buckets import config_of
from lakerunner.model.errors import LakeError
from lakerunner.pipeline.by_signal import SignalsRole
from lakerunner.pipeline.ingest import Ended, Reading, ingest_batch
from lakerunner.pipeline.ingest_task import IngestTask, TaskResult, run_task
from lakerunner.pipeline.ingest_worker import IngestWorker
from lakerunner.pipeline.items import IngestItem
from lakerunner.pipeline.job import run_tasks
from lakerunner.pipeline.session import spark_session, stop_session
from lakerunner.runtime.role import Probe
from lakerunner.runtime.settings import Settings
from lakerunner.runtime.stop import Stop
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUP = "ingest"


class Ingest(SignalsRole):
    name = "ingest"
    sentence = "Turn raw objects of all signals into segments, on Spark."

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.target = StoreConfig.of(settings)
        self.store = open_store(self.target)
        self._limits, self._options = limits_of(settings.formats), options_of(settings.formats)
        self._spark: SparkSession | None = None
        self._job_numbers = itertools.count()

    def start(self) -> None:
        super().start()
        self._spark = spark_session(self.settings.spark)
        self._warm_up(self._spark)

    def probes(self) -> Mapping[str, Probe]:
        return {**super().probes(), "store": self.store.ping}

    def run(self, stop: Stop) -> None:
        consumer = self._consumer()
        try:
            IngestWorker(self.database, consumer, self.settings.pipeline, self.do_batch, self._store_is_down).run(stop)
        finally:
            consumer.close()

    def _store_is_down(self) -> bool:
        # The readiness probe asks the store every second: its circuit opens and closes by that.
        return self.store.is_paused

    def close(self) -> None:
        stop_session()
        super().close()

    def do_batch(self, items: Sequence[IngestItem], attempts: Mapping[uuid.UUID, int]) -> Sequence[Ended]:
        """One Spark job over the items whose buckets are known; the others fail with the reason."""
        sources, unknown = self._sources(items)
        known = [item for item in items if not any(ref.bucket in unknown for ref in item.objects)]
        failed = [
            Ended(item.item_id, next(unknown[ref.bucket] for ref in item.objects if ref.bucket in unknown))
            for item in items
            if item not in known
        ]
        last = frozenset(each for each, attempt in attempts.items() if attempt >= self.settings.bus.max_attempts)
        reading = Reading(sources, self.target, self._limits, self._options)
        return [*failed, *ingest_batch(self.database, known, reading, self.settings.pipeline, self._run_tasks, last)]

    def _warm_up(self, spark: SparkSession) -> None:
        """Start the Python workers and let them import what they need, so that ready means ready (about 3 s)."""
        cores = spark.sparkContext.defaultParallelism
        nothing = IngestTask(uuid.UUID(int=0), uuid.UUID(int=0), "", self.signals[0].name, (), {}, self.target)
        run_tasks(spark, "warm-up", run_task, [nothing] * cores)

    def _sources(self, items: Sequence[IngestItem]) -> tuple[dict[str, StoreConfig], dict[str, LakeError]]:
        with self.database.transaction() as tx:
            profiles = list_profiles(tx)
        sources: dict[str, StoreConfig] = {}
        unknown: dict[str, LakeError] = {}
        for bucket in {ref.bucket for item in items for ref in item.objects}:
            try:
                sources[bucket] = config_of(self.settings, bucket, profiles)
            except LakeError as error:
                unknown[bucket] = error
        return sources, unknown

    def _run_tasks(self, tasks: Sequence[IngestTask]) -> list[TaskResult]:
        assert self._spark is not None
        # Pools take turns, and a job has one of its own: a small job does not wait behind a large one.
        pool = f"ingest-{next(self._job_numbers) % self.settings.pipeline.jobs}"
        return run_tasks(self._spark, pool, run_task, tasks)

    def _consumer(self) -> Consumer:
        return self.bus.consumer(GROUP, [topics.work(signal, "ingest").name for signal in self.signals])
