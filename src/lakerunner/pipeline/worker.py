"""The worker of any stage: takes work items from the bus, runs batches in threads, answers every delivery."""

from __future__ import annotations

import traceback
import uuid
from collections.abc import Container, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from time import monotonic
from typing import Generic

from lakerunner.bus.contract import Consumer, Delivery, answer, run_steps
from lakerunner.bus.messages import WorkReady, decode
from lakerunner.index.commit import ItemResult, Outcome, commit_item
from lakerunner.index.database import Database, Unstorable
from lakerunner.model.errors import BadInput, Bug, LakeError, LimitHit, Missing, Unavailable
from lakerunner.pipeline.items import load_items, next_batch
from lakerunner.pipeline.narrowing import narrow
from lakerunner.pipeline.stage import Attempt, I, InputAtFault, Item, Runner, Stage
from lakerunner.runtime.crash import crash_point
from lakerunner.runtime.metrics import STAGE_BYTES, STAGE_ITEMS, STAGE_LAG, STAGE_ROWS, STAGE_SECONDS
from lakerunner.runtime.settings import PipelineSettings
from lakerunner.runtime.stop import Stop
from lakerunner.runtime.telemetry import log, span

#: The longest sleep while nothing arrives or finishes.
_POLL_S = 0.25
#: Items that wait in this process, in batches.
_WAITING_BATCHES = 8
#: How long batches may take to fail once they are abandoned.
_ABANDON_S = 3.0

#: How an item ended: None when it is over, else the error for which it comes again or goes to the dead letters.
Ends = Mapping[uuid.UUID, LakeError | None]


class Worker(Generic[I]):
    """For one thread. Batches run in threads of their own; only this one uses the consumer."""

    def __init__(
        self,
        stage: Stage[I],
        database: Database,
        consumer: Consumer,
        settings: PipelineSettings,
        runner: Runner[I],
        max_attempts: int,
    ) -> None:
        self._stage = stage
        self._database = database
        self._consumer = consumer
        self._settings = settings
        self._runner = runner
        self._max_attempts = max_attempts
        #: Polled, and not yet looked up in the index.
        self._arrived: list[tuple[Delivery, uuid.UUID]] = []
        self._waiting: list[Item[I]] = []
        self._batches: dict[Future[Ends], Sequence[Item[I]]] = {}
        #: For every item in hand, the messages that wait for its end.
        self._deliveries: dict[uuid.UUID, list[Delivery]] = {}

    def run(self, stop: Stop) -> None:
        """Until asked to stop; batches under way are then finished, and what waits goes back with the consumer."""
        pool = ThreadPoolExecutor(self._settings.jobs, thread_name_prefix="batch")
        try:
            run_steps(lambda: self.step(pool), stop, self._stage.name)
            self._drain(self._settings.finish_s)
            if self._batches:
                log().warning("batches abandoned", stage=self._stage.name, batches=len(self._batches))
                self._runner.abandon()
                self._drain(_ABANDON_S)
            self._consumer.commit()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _drain(self, timeout_s: float) -> None:
        """Answer for batches as they end. What has not ended then goes back with the consumer, and runs again."""
        end = monotonic() + timeout_s
        while self._batches and monotonic() < end:
            self._finish(_POLL_S)
            self._consumer.commit()

    def step(self, pool: ThreadPoolExecutor) -> None:
        """Take items while there is room, start batches, answer for those that ended."""
        paused = self._runner.is_paused()
        # More than a batch, so that orgs with little to do are found behind one with much. Only names wait here.
        most = _WAITING_BATCHES * self._settings.batch_items
        room = 0 if paused else max(0, most - len(self._waiting) - len(self._arrived))
        at_once = bool(self._batches) or (bool(self._waiting) and not paused)
        # Polled also without room: a bus takes a consumer that does not poll for dead.
        for delivery in self._consumer.poll(room, 0.0 if at_once else _POLL_S):
            self._receive(delivery)
        self._take_arrived()
        while self._waiting and not paused and len(self._batches) < self._settings.jobs:
            self._start(pool)
        if self._batches:
            self._finish(_POLL_S)
        if not paused:
            self._runner.upkeep()
        crash_point("worker_before_bus_commit")
        self._consumer.commit()
        crash_point("worker_after_bus_commit")

    def _receive(self, delivery: Delivery) -> None:
        try:
            self._arrived.append((delivery, decode(WorkReady, delivery.payload).item_id))
        except BadInput as error:
            answer(self._consumer, delivery, error)

    def _take_arrived(self) -> None:
        """Load the items that arrived. While the index is down they stay for the next try, and use up no attempt."""
        if not self._arrived:
            return
        with self._database.transaction() as tx:
            items, ended = load_items(tx, self._stage, [item_id for _, item_id in self._arrived], self._settings)
        arrived, self._arrived = self._arrived, []
        for delivery, item_id in arrived:
            if item_id in self._deliveries:
                # Delivered again while the item is in hand: answered together with the first delivery.
                self._deliveries[item_id].append(delivery)
            elif item_id in items:
                self._deliveries[item_id] = [delivery]
                self._waiting.append(items[item_id])
            else:
                state = ended.get(item_id)
                log().info("item passed over", item=str(item_id), state=state.value if state else "unknown")
                STAGE_ITEMS.labels(self._stage.name, "again").inc()
                answer(self._consumer, delivery)

    def _start(self, pool: ThreadPoolExecutor) -> None:
        settings = self._settings
        # Two rounds of tasks for every core or so: enough to keep all busy, little enough to commit soon.
        batch = next_batch(self._waiting, settings.batch_items, settings.task_bytes * settings.batch_items)
        chosen = {item.item_id for item in batch}
        self._waiting = [item for item in self._waiting if item.item_id not in chosen]
        attempts = {item.item_id: self._deliveries[item.item_id][0].attempt for item in batch}
        last = frozenset(item_id for item_id, attempt in attempts.items() if attempt >= self._max_attempts)
        running = pool.submit(run_batch, self._stage, self._database, self._runner, batch, attempts, last)
        self._batches[running] = batch

    def _finish(self, timeout_s: float | None) -> None:
        ready, _ = wait(self._batches, timeout_s, FIRST_COMPLETED)
        for future in ready:
            items = {item.item_id: item for item in self._batches.pop(future)}
            # Raises only what ends this worker. The consumer's closing then hands the deliveries back.
            for item_id, error in future.result().items():
                if error is not None and self._runner.is_blocked_by(error):
                    # Kept for the end of the pause: the item is not to blame, so it uses up no attempt.
                    self._waiting.append(items[item_id])
                    continue
                for delivery in self._deliveries.pop(item_id):
                    answer(self._consumer, delivery, error)


def run_batch(
    stage: Stage[I],
    database: Database,
    runner: Runner[I],
    items: Sequence[Item[I]],
    attempts: Mapping[uuid.UUID, int],
    last: Container[uuid.UUID] = (),
) -> Ends:
    """Run the items and commit each result as it comes. Every item ends, whatever the runner does.

    An error that the runner raises concerns the items that have no result yet. When trying again cannot help, or when
    nobody expected the error, each of them is run alone, so that one item does not fail its neighbours. Only a Bug is
    raised: the process is broken (Spark's Java is gone) and must be started again.

    An item that fails because of an input is narrowed down to it; for an error that nobody expected, at its `last`
    attempt.
    """
    ends: dict[uuid.UUID, LakeError | None] = {}
    by_id = {item.item_id: item for item in items}
    started = monotonic()
    failure: LakeError = Missing("cannot end the item: its stage reported no result")
    run_alone = True
    try:
        with span(stage.name, items=len(items)):
            for attempt in runner.run(items, attempts):
                ends[attempt.item_id] = _end(stage, database, by_id[attempt.item_id], attempt)
                STAGE_SECONDS.labels(stage.name).observe((monotonic() - started) / len(items))
    except Bug:
        raise
    except LakeError as error:
        failure, run_alone = error, not error.retryable
    except Exception as error:  # noqa: BLE001  (no way out of a batch may leave a delivery unanswered)
        # The machine may be at fault (memory, file handles), so the item is tried again until attempts run out.
        log().error(
            "batch failed", stage=stage.name, items=len(items), trace="".join(traceback.format_exception(error))
        )
        reason = f"cannot run the batch: {type(error).__name__}: {error}"
        is_last = len(items) == 1 and items[0].item_id in last
        failure = InputAtFault(reason) if is_last else Unavailable(reason)
    for item in items:
        if item.item_id not in ends:
            if run_alone and len(items) > 1:
                ends |= run_batch(stage, database, runner, [item], attempts, last)
            else:
                ends[item.item_id] = _failed(stage, database, item, failure)
    return ends


def _end(stage: Stage[I], database: Database, item: Item[I], attempt: Attempt) -> LakeError | None:
    if isinstance(attempt.result, LakeError):
        return _failed(stage, database, item, attempt.result)
    try:
        outcome = commit_item(database, attempt.result)
    except LimitHit as error:
        # The index is too slow now, which is not the item's fault.
        return _failed(stage, database, item, Unavailable(error.message, hint=error.hint))
    except LakeError as error:
        return _failed(stage, database, item, error)
    STAGE_ITEMS.labels(stage.name, outcome.value).inc()
    if outcome is Outcome.COMMITTED:
        _report(stage.name, item, attempt.result)
        attempt.on_commit()
    else:
        log().info("item had ended already", stage=stage.name, item=str(item.item_id), outcome=outcome.value)
    return None


def _failed(stage: Stage[I], database: Database, item: Item[I], error: LakeError) -> LakeError | None:
    STAGE_ITEMS.labels(stage.name, error.code).inc()
    log().warning("item failed", stage=stage.name, org=str(item.org_id), item=str(item.item_id), error=str(error))
    return narrow(database, stage, item, error) if isinstance(error, InputAtFault | Unstorable) else error


def _report(stage: str, item: Item[I], result: ItemResult) -> None:
    rows = sum(segment.row_count for segment in result.made)
    size_bytes = sum(segment.size_bytes for segment in result.made)
    STAGE_ROWS.labels(stage).inc(rows)
    STAGE_BYTES.labels(stage).inc(size_bytes)
    STAGE_LAG.labels(stage).set(item.waited_s)
    log().info(
        "item committed", stage=stage, org=str(item.org_id), signal=item.signal, item=str(item.item_id),
        inputs=len(item.inputs), segments=len(result.made), superseded=len(result.superseded), rows=rows,
        bytes=size_bytes,
    )  # fmt: skip
