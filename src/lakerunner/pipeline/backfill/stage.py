"""Backfill: its description, and its worker: one Spark task per segment, a few at a time."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from time import monotonic
from typing import Final

from lakerunner.bus.announce import segments_made
from lakerunner.index.commit import ItemResult, Outcome
from lakerunner.index.database import Database
from lakerunner.index.derivation import Derivation, next_slots
from lakerunner.index.rule_versions import Evaluated
from lakerunner.index.segments import ref
from lakerunner.index.series_key import series_key
from lakerunner.model.errors import LakeError
from lakerunner.model.segment import Segment
from lakerunner.pipeline.backfill.inputs import UNEVALUATED
from lakerunner.pipeline.backfill.remake import NAME, Remaking
from lakerunner.pipeline.backfill.task import BackfillResult, BackfillTask, run_task
from lakerunner.pipeline.backfill.unseen import unseen_rules
from lakerunner.pipeline.bucket_runner import BucketRunner
from lakerunner.pipeline.derive.evaluate import SLOTS
from lakerunner.pipeline.packing import PackLimits
from lakerunner.pipeline.rule_registry import RuleRegistry, failed_holes, late_holes, rules_used
from lakerunner.pipeline.rule_report import report_rules
from lakerunner.pipeline.stage import Attempt, Item, Stage
from lakerunner.runtime.settings import PipelineSettings, Settings
from lakerunner.runtime.telemetry import log

#: Runs tasks somewhere and returns their results in order; Unavailable when one died.
RunTasks = Callable[[Sequence[BackfillTask]], list[BackfillResult]]
#: Segments per item: few, because a compaction of one makes the item stale.
_ITEM_SEGMENTS = 4
#: How often windows of derived metrics are looked for that are to be made again.
_REMAKE_POLL_S = 10.0


class BackfillRunner(BucketRunner[Segment, BackfillTask, BackfillResult]):
    """A Spark driver, which starts with the first segment. With `run_tasks`, it has no Spark."""

    def __init__(self, settings: Settings, database: Database, run_tasks: RunTasks | None = None) -> None:
        super().__init__(NAME, settings, run_task, run_tasks)
        self._database = database
        self._settings = settings
        self._rules = RuleRegistry(database, settings.derive)
        self._remaking = Remaking(database, self._rules, settings.derive, self._target, self._run_tasks)
        self._remake_at_s = 0.0
        self._remade: Future[Outcome | None] | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="remake")

    def upkeep(self) -> None:
        """Make derived metrics again whose rows were deleted on request: beside the batches, one window at a time."""
        if self._remade is not None:
            if not self._remade.done():
                return
            outcome = self._outcome(self._remade)
            self._remade = None
            if outcome is not Outcome.COMMITTED:
                self._remake_at_s = monotonic() + min(_REMAKE_POLL_S, self._settings.derive.remake_wait_s)
        if monotonic() >= self._remake_at_s:
            self._remade = self._pool.submit(self._remaking.one)

    def _outcome(self, remade: Future[Outcome | None]) -> Outcome | None:
        try:
            return remade.result()
        except LakeError as error:
            # The window is taken again after a pause.
            self._note(error)
            log().warning("derived metrics are not made again yet", error=str(error))
            return None

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        super().close()

    def run(self, items: Sequence[Item[Segment]], attempts: Mapping[uuid.UUID, int]) -> Iterator[Attempt]:
        tasks = self._tasks(items)
        results: defaultdict[uuid.UUID, list[BackfillResult]] = defaultdict(list)
        # This many at a time: the rest of the cluster is for those who wait for fresh rows.
        at_once = self._settings.derive.backfill_tasks
        for start in range(0, len(tasks), at_once):
            for result in self._run_tasks(tasks[start : start + at_once]):
                results[result.item_id].append(result)
        for item in items:
            yield self._attempt(item, results[item.item_id])

    def _tasks(self, items: Sequence[Item[Segment]]) -> list[BackfillTask]:
        missing = [
            (item.item_id, segment, rules)
            for item in items
            for segment in item.inputs
            if (rules := unseen_rules(self._rules, segment)) is not None
        ]
        if not missing:
            return []
        with self._database.transaction() as tx:
            slots = next_slots(tx, len(missing), SLOTS)
            key = series_key(tx)
        return [
            BackfillTask(item_id, segment, rules, slot, key, self._target)
            for (item_id, segment, rules), slot in zip(missing, slots, strict=True)
        ]

    def _attempt(self, item: Item[Segment], results: Sequence[BackfillResult]) -> Attempt:
        error = next((result.error for result in results if result.error is not None), None)
        if error is not None:
            return Attempt(item.item_id, error)
        made = [segment for result in results for segment in result.made]
        slots = [slot for result in results for slot in result.slots]
        evaluations = [result.evaluation for result in results]
        keep_s = self._settings.derive.slot_keep_s
        late = [
            hole
            for result in results
            for hole in late_holes(result.rules, [result.evaluation], [at for _, at in result.slots], keep_s)
        ]
        committed = ItemResult(
            item.item_id,
            made=made,
            follow_ups=segments_made(made),
            derivation=Derivation(slots=slots) if slots else None,
            rules=rules_used(item.signal, [(result.rules.version, result.evaluation) for result in results]),
            holes=[*late, *failed_holes(item.signal, evaluations)],
            evaluated=[
                Evaluated(ref(result.segment), result.segment.rules_version, result.rules.version) for result in results
            ],
            released=[ref(segment) for segment in item.inputs],
        )
        about = {"org": str(item.org_id), "signal": item.signal, "item": str(item.item_id)}
        return Attempt(item.item_id, committed, partial(report_rules, evaluations, about))


def _limits(settings: PipelineSettings) -> PackLimits:
    return PackLimits(settings.bundle_bytes, _ITEM_SEGMENTS, settings.bundle_idle_s, settings.bundle_age_s)


BACKFILL: Final = Stage(
    name=NAME,
    sentence="Evaluate rules over stored segments of all signals that have not seen them, on Spark.",
    inputs=UNEVALUATED,
    group=lambda segment: segment.collector,
    weigh=lambda segment, _: segment.size_bytes,
    limits=_limits,
    runner=BackfillRunner,
)
