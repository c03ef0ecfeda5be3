"""The ingest stage: work items to segments, in Spark jobs over many items, each item ended by one transaction."""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakerunner.bus import topics
from lakerunner.bus.messages import SegmentsMade, Stage, encode
from lakerunner.formats.limits import Limits
from lakerunner.formats.options import Options
from lakerunner.index.commit import ItemResult, Outcome, commit_item
from lakerunner.index.database import Database
from lakerunner.index.ledger import ObjectOutcome
from lakerunner.index.outbox import Outgoing
from lakerunner.model.errors import Bug, LakeError, Unavailable
from lakerunner.model.segment import Segment
from lakerunner.model.signals import signal_named
from lakerunner.pipeline.ingest_task import IngestTask, TaskResult
from lakerunner.pipeline.items import IngestItem, shares
from lakerunner.pipeline.metrics import OBJECTS_QUARANTINED, ROWS_REJECTED, ROWS_SKEWED, STAGE_LAG
from lakerunner.pipeline.skew import skewed_rows
from lakerunner.runtime.metrics import STAGE_BYTES, STAGE_ITEMS, STAGE_ROWS, STAGE_SECONDS
from lakerunner.runtime.settings import PipelineSettings
from lakerunner.runtime.telemetry import log, span
from lakerunner.store.config import StoreConfig

STAGE = "ingest"

#: Runs tasks somewhere and returns their results in order; Unavailable when one died.
RunTasks = Callable[[Sequence[IngestTask]], list[TaskResult]]


@dataclass(frozen=True, slots=True)
class Reading:
    """How raw objects are reached and read, the same for all items of a batch."""

    sources: Mapping[str, StoreConfig]
    target: StoreConfig
    limits: Limits = field(default_factory=Limits)
    options: Options = field(default_factory=Options)


@dataclass(frozen=True, slots=True)
class Ended:
    """How an attempt at an item ended: done (whatever the outcome), or with an error to be tried again."""

    item_id: uuid.UUID
    error: LakeError | None = None


def ingest_batch(
    database: Database,
    items: Sequence[IngestItem],
    reading: Reading,
    settings: PipelineSettings,
    run_tasks: RunTasks,
    last_attempts: frozenset[uuid.UUID] = frozenset(),
) -> list[Ended]:
    """One job over all items, then a commit each. An item that cannot be done does not hold up the others.

    Items in `last_attempts` will not be tried again: objects that kill the task which reads them are quarantined.
    """
    started = time.monotonic()
    tasks = {item.item_id: tasks_of(item, reading, settings) for item in items}
    with span("ingest", items=len(items), tasks=sum(map(len, tasks.values()))):
        results = _run_grouped(tasks, run_tasks)
        ended = []
        for item in items:
            found = results[item.item_id]
            if isinstance(found, Unavailable) and item.item_id in last_attempts:
                found = _object_by_object(tasks[item.item_id], run_tasks)
            ended.append(_end(database, item, found))
            STAGE_SECONDS.labels(STAGE).observe((time.monotonic() - started) / len(items))
    return ended


def tasks_of(item: IngestItem, reading: Reading, settings: PipelineSettings) -> list[IngestTask]:
    return [
        IngestTask(
            item_id=item.item_id,
            org_id=item.org_id,
            collector=item.collector,
            signal=item.signal,
            objects=share,
            sources={ref.bucket: reading.sources[ref.bucket] for ref in share},
            target=reading.target,
            limits=reading.limits,
            options=reading.options,
            fetches=settings.fetches,
        )
        for share in shares(item.objects, settings.task_bytes, settings.expansion)
    ]


def _run_grouped(
    tasks: Mapping[uuid.UUID, Sequence[IngestTask]], run_tasks: RunTasks
) -> dict[uuid.UUID, list[TaskResult] | LakeError]:
    """All tasks in one job; when that dies, one job an item, so that only the guilty one fails."""
    grouped: dict[uuid.UUID, list[TaskResult] | LakeError] = {}
    try:
        results = run_tasks([task for mine in tasks.values() for task in mine])
    except Unavailable as error:
        if len(tasks) == 1:
            return dict.fromkeys(tasks, error)
        for item_id, mine in tasks.items():
            grouped |= _run_grouped({item_id: mine}, run_tasks)
        return grouped
    by_item: defaultdict[uuid.UUID, list[TaskResult]] = defaultdict(list)
    for result in results:
        by_item[result.item_id].append(result)
    for item_id, made in by_item.items():
        grouped[item_id] = next((result.error for result in made if result.error is not None), made)
    return grouped


def _object_by_object(tasks: Sequence[IngestTask], run_tasks: RunTasks) -> list[TaskResult] | LakeError:
    """The last resort for an item whose task dies: find the object that kills it, and quarantine that."""
    try:
        # A task without objects that dies too tells that it is not the objects' fault.
        run_tasks([replace(tasks[0], objects=())])
    except Unavailable as error:
        return error
    results: list[TaskResult] = []
    for task in tasks:
        for ref in task.objects:
            try:
                [result] = run_tasks([replace(task, objects=(ref,))])
            except Unavailable as error:
                reason = f"cannot read the object: the task that reads it dies, also alone: {error.message}"
                result = TaskResult(task.item_id, objects=(ObjectOutcome(ref.object_id, 0, reason),))
            if result.error is not None:
                return result.error
            results.append(result)
    return results


def _end(database: Database, item: IngestItem, found: list[TaskResult] | LakeError) -> Ended:
    """Commit what the tasks made of the item, and tell of it."""
    if isinstance(found, LakeError):
        STAGE_ITEMS.labels(STAGE, found.code).inc()
        log().warning("item not ingested", org=str(item.org_id), item=str(item.item_id), error=str(found))
        return Ended(item.item_id, found)
    segments = [segment for result in found for segment in result.segments]
    outcomes = [outcome for result in found for outcome in result.objects]
    if {outcome.object_id for outcome in outcomes} != {ref.object_id for ref in item.objects}:
        return Ended(item.item_id, Bug(f"cannot commit item {item.item_id}: its tasks did not report every object"))
    made = ItemResult(item.item_id, made=segments, objects=outcomes, follow_ups=follow_ups(segments))
    try:
        outcome = commit_item(database, made)
    except LakeError as error:
        log().warning("item not committed", org=str(item.org_id), item=str(item.item_id), error=str(error))
        return Ended(item.item_id, error)
    _tell(item, outcome, made, found)
    return Ended(item.item_id)


def _tell(item: IngestItem, outcome: Outcome, made: ItemResult, results: Sequence[TaskResult]) -> None:
    STAGE_ITEMS.labels(STAGE, outcome.value).inc()
    about = {"org": str(item.org_id), "signal": item.signal, "item": str(item.item_id), "outcome": outcome.value}
    if outcome is not Outcome.COMMITTED:
        log().info("item had ended already", **about)
        return
    rows = sum(segment.row_count for segment in made.made)
    size_bytes = sum(segment.size_bytes for segment in made.made)
    STAGE_ROWS.labels(STAGE).inc(rows)
    STAGE_BYTES.labels(STAGE).inc(size_bytes)
    STAGE_LAG.labels(STAGE).set(item.waited_s)
    if skewed := skewed_rows(made.made, time.time_ns()):
        ROWS_SKEWED.labels(item.signal).inc(skewed)
        log().warning("rows skewed", rows=skewed, **about)
    bad = [each for each in made.objects if each.quarantine_reason is not None]
    for each in bad:
        OBJECTS_QUARANTINED.labels(item.signal).inc()
        log().warning("object quarantined", object=str(each.object_id), reason=each.quarantine_reason, **about)
    for result in results:
        for reason, count in result.rejected.items():
            ROWS_REJECTED.labels(item.signal, reason).inc(count)
            log().warning("rows rejected", reason=reason, rows=count, **about)
    log().info(
        "item ingested", objects=len(made.objects), quarantined=len(bad), segments=len(made.made), rows=rows,
        bytes=size_bytes, **about,
    )  # fmt: skip


def follow_ups(segments: Sequence[Segment]) -> list[Outgoing]:
    """Word to the boxers that may take the segments further, one message a day and stage."""
    groups: defaultdict[tuple[uuid.UUID, str, str, int, int, int], list[uuid.UUID]] = defaultdict(list)
    for each in segments:
        groups[each.org_id, each.collector, each.signal, each.dateint, each.tier_s, each.level].append(each.segment_id)
    messages = []
    for (org_id, collector, name, dateint, tier_s, level), ids in groups.items():
        signal = signal_named(name)
        payload = encode(SegmentsMade(org_id, collector, name, dateint, tier_s, level, tuple(ids)))
        stages: tuple[Stage, ...] = ("compact", "rollup") if signal.rolls_up else ("compact",)
        messages += [Outgoing(topics.made(signal, stage).name, str(org_id), payload) for stage in stages]
    return messages
