"""The loop of an ingest worker: several jobs under way, one thread that answers the bus."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from lakerunner.bus.contract import Consumer, Delivery
from lakerunner.bus.messages import WorkReady, decode
from lakerunner.index.database import Database
from lakerunner.model.errors import BadInput, Conflict, LakeError
from lakerunner.pipeline.ingest import STAGE, Ended
from lakerunner.pipeline.items import IngestItem, load_items, next_batch
from lakerunner.runtime.crash import crash_point
from lakerunner.runtime.metrics import BUS_HANDLED, STAGE_ITEMS, SWALLOWED
from lakerunner.runtime.retry import Backoff
from lakerunner.runtime.settings import PipelineSettings
from lakerunner.runtime.stop import Stop
from lakerunner.runtime.telemetry import log

#: The longest sleep while nothing arrives or finishes.
_POLL_S = 0.25
_TROUBLE = Backoff(base_s=0.2, cap_s=5.0)


#: Does a batch, wherever; told for each item the how manyth attempt this is.
DoBatch = Callable[[Sequence[IngestItem], Mapping[uuid.UUID, int]], Sequence[Ended]]


class IngestWorker:
    """For one thread. Jobs run in threads of their own; only this one talks to the consumer."""

    def __init__(
        self,
        database: Database,
        consumer: Consumer,
        settings: PipelineSettings,
        do_batch: DoBatch,
        is_paused: Callable[[], bool] = lambda: False,
    ) -> None:
        self._database = database
        self._consumer = consumer
        self._settings = settings
        self._do_batch = do_batch
        #: While the bucket is down nothing is begun: an item that must fail would only use up its attempts.
        self._is_paused = is_paused
        self._waiting: list[IngestItem] = []
        self._jobs: set[Future[Sequence[Ended]]] = set()
        #: Of every item in hand, the messages that wait for its end.
        self._deliveries: dict[uuid.UUID, list[Delivery]] = {}

    def run(self, stop: Stop) -> None:
        """Until asked to stop; jobs under way are then finished, and what waits goes back with the consumer."""
        failures = 0
        with ThreadPoolExecutor(self._settings.jobs, thread_name_prefix="job") as pool:
            while not stop:
                try:
                    self.step(pool)
                    failures = 0
                except Conflict as error:
                    # The partition's messages went to another member; a commit of ours that is first still counts.
                    SWALLOWED.labels("bus_partition_lost").inc()
                    log().info("partition lost", reason=str(error))
                except LakeError as error:
                    if not error.retryable:
                        raise
                    failures += 1
                    log().warning("ingest waits", error=str(error), jobs=len(self._jobs))
                    stop.wait(_TROUBLE.delay_s(failures))
            while self._jobs:
                self._finish(None)
            self._consumer.commit()

    def step(self, pool: ThreadPoolExecutor) -> None:
        """Take items while there is room, start jobs, answer for those that ended."""
        paused = self._is_paused()
        room = 0 if paused else max(0, self._settings.batch_items - len(self._waiting))
        at_once = bool(self._jobs) or (bool(self._waiting) and not paused)
        # Also with no room: a bus takes a consumer that does not poll for dead.
        self._take(self._consumer.poll(room, 0.0 if at_once else _POLL_S))
        while self._waiting and not paused and len(self._jobs) < self._settings.jobs:
            self._start(pool)
        if self._jobs:
            self._finish(_POLL_S)
        crash_point("ingest_before_bus_commit")
        self._consumer.commit()
        crash_point("ingest_after_bus_commit")

    def _take(self, deliveries: Sequence[Delivery]) -> None:
        wanted = [(delivery, item_id) for delivery in deliveries if (item_id := self._item_id(delivery)) is not None]
        if not wanted:
            return
        with self._database.transaction() as tx:
            items, ended = load_items(tx, [item_id for _, item_id in wanted], self._settings.expansion)
        for delivery, item_id in wanted:
            if item_id in self._deliveries:
                # Delivered again while it is in hand: answered with the first, since it has not ended yet.
                self._deliveries[item_id].append(delivery)
            elif item_id in items:
                self._deliveries[item_id] = [delivery]
                self._waiting.append(items[item_id])
            else:
                state = ended.get(item_id)
                log().info("item passed over", item=str(item_id), state=state.value if state else "unknown")
                STAGE_ITEMS.labels(STAGE, "again").inc()
                self._answer(delivery, None)

    def _item_id(self, delivery: Delivery) -> uuid.UUID | None:
        try:
            return decode(WorkReady, delivery.payload).item_id
        except BadInput as error:
            self._answer(delivery, error)
            return None

    def _start(self, pool: ThreadPoolExecutor) -> None:
        settings = self._settings
        # Two rounds of tasks for every core or so: enough to keep all busy, little enough to commit soon.
        max_bytes = settings.task_bytes * settings.batch_items
        batch = next_batch(self._waiting, settings.batch_items, max_bytes)
        del self._waiting[: len(batch)]
        attempts = {item.item_id: self._deliveries[item.item_id][0].attempt for item in batch}
        self._jobs.add(pool.submit(self._do_batch, batch, attempts))

    def _finish(self, timeout_s: float | None) -> None:
        ready, _ = wait(self._jobs, timeout_s, FIRST_COMPLETED)
        for future in ready:
            self._jobs.remove(future)
            for ended in future.result():
                for delivery in self._deliveries.pop(ended.item_id):
                    self._answer(delivery, ended.error)

    def _answer(self, delivery: Delivery, error: LakeError | None) -> None:
        if error is None:
            self._consumer.done(delivery)
        else:
            self._consumer.fail(delivery, error)
        BUS_HANDLED.labels(delivery.topic, self._consumer.group, "done" if error is None else error.code).inc()
