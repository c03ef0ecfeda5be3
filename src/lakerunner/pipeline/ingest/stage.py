"""Ingest: its description, and its worker: one Spark job over a batch of items, and one result per item."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Final

from lakerunner.bus.announce import segments_made
from lakerunner.formats import fingerprints, levels
from lakerunner.formats.limits import limits_of
from lakerunner.formats.options import options_of
from lakerunner.index.call_halves import orgs_of_external
from lakerunner.index.commit import ItemResult
from lakerunner.index.database import Database
from lakerunner.index.derivation import next_slots
from lakerunner.index.profiles import list_profiles
from lakerunner.index.rule_holes import Hole
from lakerunner.index.series_key import series_key
from lakerunner.intake.buckets import config_of
from lakerunner.model.errors import Bug, LakeError, LimitHit, Unavailable
from lakerunner.model.raw_object import RawObject, quarantined
from lakerunner.model.signals import LOGS, TRACES
from lakerunner.pipeline.bucket_runner import BucketRunner
from lakerunner.pipeline.derive.evaluate import SLOTS
from lakerunner.pipeline.derive.rule_set import RuleSet
from lakerunner.pipeline.derive.spans import DeriveOptions, dimensions_of, peer_columns
from lakerunner.pipeline.grouped_tasks import run_grouped
from lakerunner.pipeline.ingest.complete import Completion, complete, settle
from lakerunner.pipeline.ingest.report import report
from lakerunner.pipeline.ingest.task import IngestTask, TaskResult, run_task
from lakerunner.pipeline.ingest.type_registry import TypeRegistry
from lakerunner.pipeline.inputs import RAW_OBJECTS
from lakerunner.pipeline.packing import PackLimits, estimated_bytes
from lakerunner.pipeline.rule_registry import RuleRegistry, failed_holes, late_holes, rules_used
from lakerunner.pipeline.spark.session import SparkLost
from lakerunner.pipeline.stage import Attempt, InputAtFault, Item, Stage
from lakerunner.runtime.crash import crash_point
from lakerunner.runtime.settings import PipelineSettings, Settings
from lakerunner.runtime.telemetry import log
from lakerunner.store import needles
from lakerunner.store.config import StoreConfig
from lakerunner.store.errors import StoreUnavailable

#: Runs tasks somewhere and returns their results in order; Unavailable when one died.
RunTasks = Callable[[Sequence[IngestTask]], list[TaskResult]]
#: What became of an item's tasks.
Found = list[TaskResult] | LakeError
#: The first round finds new columns, the second writes their types as recorded. A third covers columns that appear only
#: because others went to the overflow.
_TYPE_ROUNDS = 3
#: How often calls to services without spans are looked for, within these bounds; and in how many orgs at a time.
_LEAST_SETTLE_S, _MOST_SETTLE_S, _ORGS_AT_ONCE = 5.0, 60.0, 100


class IngestRunner(BucketRunner[RawObject, IngestTask, TaskResult]):
    """A Spark driver. With `run_tasks`, tasks run there instead, and no Spark is started."""

    def __init__(self, settings: Settings, database: Database, run_tasks: RunTasks | None = None) -> None:
        super().__init__("ingest", settings, run_task, run_tasks)
        self._settings = settings
        self._database = database
        self._limits, self._options = limits_of(settings.formats), options_of(settings.formats)
        self._types = TypeRegistry(database)
        self._rules = RuleRegistry(database, settings.derive)
        self._settle_at_s = 0.0

    def start(self) -> None:
        if self._spark is not None:
            nil = uuid.UUID(int=0)
            self._spark.start(IngestTask(nil, nil, "", LOGS.name, (), {}, self._target))

    def upkeep(self) -> None:
        """Count calls to services that send no spans, also when no further spans come."""
        derive = self._settings.derive
        if not derive.service_graph or monotonic() < self._settle_at_s:
            return
        self._settle_at_s = monotonic() + min(max(derive.peer_wait_s / 4, _LEAST_SETTLE_S), _MOST_SETTLE_S)
        try:
            with self._database.transaction() as tx:
                orgs = orgs_of_external(tx, derive.peer_wait_s, _ORGS_AT_ONCE)
            for org_id, slot in zip(orgs, self._slots(len(orgs)) if orgs else (), strict=True):
                settle(self._database, self._store, org_id, slot, derive.peer_wait_s)
        except LakeError as error:
            # Another worker was faster, or something is down: the next turn goes on.
            log().info("calls to services without spans wait on", reason=error.message)

    def _is_trouble_of_bucket(self, error: LakeError) -> bool:
        """Trouble of the lake's own bucket. That of another bucket concerns only the items with objects in it."""
        return isinstance(error, StoreUnavailable) and error.where == self._target.url

    def run(self, items: Sequence[Item[RawObject]], attempts: Mapping[uuid.UUID, int]) -> Iterator[Attempt]:
        """One job over all items. An item that cannot be done does not hold up the others."""
        sources = self._sources({raw.bucket for item in items for raw in item.inputs})
        tasks: dict[uuid.UUID, list[IngestTask]] = {}
        for item in items:
            unknown = [error for raw in item.inputs if isinstance(error := sources[raw.bucket], LakeError)]
            if unknown:
                is_mixed = len(unknown) < len(item.inputs)
                yield Attempt(item.item_id, InputAtFault(unknown[0].message) if is_mixed else unknown[0])
            else:
                tasks[item.item_id] = self._tasks_of(item, sources)
        found = run_grouped(tasks, self._run_tasks)
        for item in items:
            if item.item_id in tasks:
                is_last = attempts[item.item_id] >= self._settings.bus.max_attempts
                results = self._typed(item, tasks[item.item_id], found[item.item_id], is_last)
                self._note(results if isinstance(results, LakeError) else None)
                yield self._completed(item, results)

    def _completed(self, item: Item[RawObject], found: Found) -> Attempt:
        """The attempt at an item, with the calls that its spans complete."""
        if isinstance(found, LakeError) or not any(result.halves or result.slots for result in found):
            return _attempt(item, found)
        try:
            # Calls of clients that wait in the index may be completed by any item of spans.
            graphed = item.signal == TRACES.name and self._settings.derive.service_graph
            slot = self._slots(1)[0] if graphed else None
            key, wait_s = self._options.metrics.series_key, self._settings.derive.peer_wait_s
            completion = complete(self._database, self._store, item, found, slot, key, wait_s)
        except LakeError as error:
            return Attempt(item.item_id, error)
        crash_point("derive_after_complete")
        rules = self._rules.of(item.org_id, item.signal)
        intervals = [interval for result in found for _, interval in result.slots]
        keep_s = self._settings.derive.slot_keep_s
        return _attempt(
            item, found, completion, late_holes(rules, [each.evaluation for each in found], intervals, keep_s)
        )

    def _slots(self, count: int) -> list[int]:
        with self._database.transaction() as tx:
            return next_slots(tx, count, SLOTS)

    def _derive_options(self, item: Item[RawObject], count: int, rules: RuleSet) -> list[DeriveOptions]:
        """What each of this many tasks of the item derives."""
        settings = self._settings.derive
        from_spans = item.signal == TRACES.name and (settings.span_metrics or settings.service_graph)
        if not from_spans and not rules.rules:
            return [DeriveOptions()] * count
        dimensions, peers = dimensions_of(settings), peer_columns(settings)
        return [
            DeriveOptions(slot, settings.span_metrics, dimensions, settings.service_graph, peers)
            for slot in self._slots(count)
        ]

    def _typed(self, item: Item[RawObject], tasks: list[IngestTask], found: Found, is_last: bool) -> Found:
        """The results once all their columns have the recorded types. Tasks that wrote another type run again."""
        for _ in range(_TYPE_ROUNDS):
            died = isinstance(found, Unavailable) and not isinstance(found, StoreUnavailable | SparkLost)
            if died and is_last:
                found = _object_by_object(self._apart(item, tasks), self._run_tasks)
            if isinstance(found, LakeError):
                return found
            if self._types.agrees(item.org_id, item.signal, [result.added_types for result in found]):
                return found
            types = self._types.types_of(item.org_id, item.signal)
            tasks = [replace(task, types=types) for task in tasks]
            found = run_grouped({item.item_id: tasks}, self._run_tasks)[item.item_id]
        return Unavailable(f"cannot commit item {item.item_id}: its attribute columns keep changing their types")

    def _apart(self, item: Item[RawObject], tasks: Sequence[IngestTask]) -> list[IngestTask]:
        """A task for each object. Each has a slot of its own, so that no two derived samples have the same time."""
        alone = [replace(task, objects=(raw,)) for task in tasks for raw in task.objects]
        options = self._derive_options(item, len(alone), self._rules.of(item.org_id, item.signal))
        return [replace(task, derive=derive) for task, derive in zip(alone, options, strict=True)]

    def _sources(self, buckets: set[str]) -> dict[str, StoreConfig | LakeError]:
        """How to reach each bucket, or why it cannot be reached. Reads the series key in the same transaction."""
        with self._database.transaction() as tx:
            profiles = list_profiles(tx)
            metrics = replace(self._options.metrics, series_key=series_key(tx))
        self._options = replace(self._options, metrics=metrics)
        sources: dict[str, StoreConfig | LakeError] = {}
        for bucket in buckets:
            try:
                sources[bucket] = config_of(self._settings, bucket, profiles)
            except LakeError as error:
                sources[bucket] = error
        return sources

    def _tasks_of(self, item: Item[RawObject], sources: Mapping[str, StoreConfig | LakeError]) -> list[IngestTask]:
        settings = self._settings.pipeline
        types = self._types.types_of(item.org_id, item.signal)
        runs = shares(item.inputs, settings.task_bytes, settings.expansion)
        rules = self._rules.latest(item.org_id, item.signal)
        return [
            IngestTask(
                item_id=item.item_id,
                org_id=item.org_id,
                collector=item.collector,
                signal=item.signal,
                objects=share,
                sources={raw.bucket: config for raw in share if isinstance(config := sources[raw.bucket], StoreConfig)},
                target=self._target,
                limits=self._limits,
                options=self._options,
                types=types,
                fetches=settings.fetches,
                derive=derive,
                rules=rules,
            )
            for share, derive in zip(runs, self._derive_options(item, len(runs), rules), strict=True)
        ]


def shares(objects: Sequence[RawObject], task_bytes: int, expansion: float) -> list[tuple[RawObject, ...]]:
    """The objects in runs of about equal weight, as few as keep the average below the cap of a task.

    >>> raws = [RawObject(uuid.UUID(int=0), "", "logs", "b", f"{n}.json", "", 40) for n in range(6)]
    >>> [len(share) for share in shares(raws, 100, 1.0)]
    [2, 2, 2]
    """
    weights = [estimated_bytes(raw.key, raw.size_bytes, expansion) for raw in objects]
    total = sum(weights)
    count = max(1, -(-total // task_bytes))
    runs: list[list[RawObject]] = [[] for _ in range(count)]
    before = 0
    for raw, weight in zip(objects, weights, strict=True):
        # An object belongs to the run in which its middle lies.
        runs[(2 * before + weight) * count // (2 * total)].append(raw)
        before += weight
    return [tuple(run) for run in runs if run]


def _object_by_object(tasks: Sequence[IngestTask], run_tasks: RunTasks) -> Found:
    """The last resort for an item that fails again and again: find the objects that kill their task, one per task.

    Those are quarantined. An object that the store does not give out is not at fault, and yet it must not hold up the
    objects that can be read: the item is narrowed down to it.
    """
    try:
        # When even a task without objects dies, the objects are not at fault.
        run_tasks([replace(tasks[0], objects=())])
    except Unavailable as error:
        return error
    results: list[TaskResult] = []
    for task in tasks:
        result = _alone(task, run_tasks)
        if result.error is not None:
            # One more object is asked for, and not all: each may take as long as the store's timeout.
            is_mixed = bool(results) or _alone(tasks[-1], run_tasks).error is None
            return InputAtFault(result.error.message) if is_mixed else result.error
        results.append(result)
    return results


def _alone(task: IngestTask, run_tasks: RunTasks) -> TaskResult:
    try:
        [result] = run_tasks([task])
    except Unavailable as error:
        reason = f"cannot read the object: the task that reads it dies, also alone: {error.message}"
        return TaskResult(task.item_id, objects=tuple(quarantined(raw, reason) for raw in task.objects))
    return result


def _attempt(
    item: Item[RawObject], found: Found, completion: Completion | None = None, holes: Sequence[Hole] = ()
) -> Attempt:
    if isinstance(found, Bug | LimitHit):
        # What remains after reading object by object: the rows of some object cannot be merged, sorted or written.
        return Attempt(item.item_id, InputAtFault(str(found)))
    if isinstance(found, LakeError):
        return Attempt(item.item_id, found)
    segments = [segment for result in found for segment in result.segments]
    outcomes = [outcome for result in found for outcome in result.objects]
    if {outcome.object_id for outcome in outcomes} != {raw.object_id for raw in item.inputs}:
        return Attempt(
            item.item_id, InputAtFault(f"cannot commit item {item.item_id}: its tasks did not report every object")
        )
    sources = {
        segment.segment_id: [outcome.object_id for outcome in result.objects if outcome.row_count]
        for result in found
        for segment in result.segments
    }
    if completion is not None:
        segments += completion.segments
    result = ItemResult(
        item.item_id,
        made=segments,
        objects=outcomes,
        follow_ups=segments_made(segments),
        sources=sources,
        derivation=None if completion is None else completion.derivation,
        rules=rules_used(item.signal, [(each.rules_version, each.evaluation) for each in found]),
        holes=[*holes, *failed_holes(item.signal, [each.evaluation for each in found])],
    )
    return Attempt(item.item_id, result, partial(report, item, result, found))


def _weigh(raw: RawObject, settings: PipelineSettings) -> int:
    return estimated_bytes(raw.key, raw.size_bytes, settings.expansion)


def _limits(settings: PipelineSettings) -> PackLimits:
    return PackLimits(settings.bundle_bytes, settings.bundle_objects, settings.bundle_idle_s, settings.bundle_age_s)


INGEST: Final = Stage(
    name="ingest",
    sentence="Turn raw objects of all signals into segments, on Spark.",
    inputs=RAW_OBJECTS,
    group=lambda raw: raw.collector,
    weigh=_weigh,
    limits=_limits,
    runner=IngestRunner,
    kernels=(levels.warm, fingerprints.warm, needles.warm),
)
