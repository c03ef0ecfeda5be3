"""Compaction: its description, what it merges when, and its worker: one Spark task per item, one segment per task."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final

from prometheus_client import Counter

from lakerunner.bus.announce import segments_made
from lakerunner.formats.attribute_types import AttributeTypes
from lakerunner.index import overdue
from lakerunner.index.attribute_types import MAX_COLUMNS, recorded_types
from lakerunner.index.commit import ItemResult
from lakerunner.index.database import Connection, Database
from lakerunner.index.outbox import Outgoing
from lakerunner.index.overdue import Overdue, Position
from lakerunner.index.rule_holes import Hole
from lakerunner.index.segment_inputs import lock_untaken
from lakerunner.index.segment_sources import MAX_SOURCES, sources_of
from lakerunner.index.segments import live_segments, ref
from lakerunner.model.errors import LakeError, LimitHit
from lakerunner.model.segment import RAW_TIER_S, Segment
from lakerunner.model.signal import Signal
from lakerunner.model.time import TimeRange
from lakerunner.pipeline.bucket_runner import BucketRunner
from lakerunner.pipeline.compact.task import CompactResult, CompactTask, UnreadableInput, run_task
from lakerunner.pipeline.compact.windows import Window, bundles, window_of
from lakerunner.pipeline.grouped_tasks import run_grouped
from lakerunner.pipeline.inputs import Segments
from lakerunner.pipeline.packing import PackLimits
from lakerunner.pipeline.stage import Attempt, InputAtFault, Item, Stage
from lakerunner.runtime.settings import PipelineSettings, Settings
from lakerunner.runtime.telemetry import log
from lakerunner.store import needles

#: Runs tasks somewhere and returns their results in order; Unavailable when one died.
RunTasks = Callable[[Sequence[CompactTask]], list[CompactResult]]

_NAME = "compact"
_ROWS_REMOVED = Counter("lakerunner_compact_rows_removed", "Rows removed as duplicates by compaction.", ["signal"])
_BYTES_READ = Counter("lakerunner_compact_bytes_read", "Bytes of the segments that compaction replaced.", ["signal"])


@dataclass(frozen=True, slots=True)
class SmallSegments(Segments):
    """Live segments of raw rows. A segment that cannot be read stays as it is, and is not tried again."""

    due_by_time: ClassVar[bool] = True

    def given_up(self, item_id: uuid.UUID, each: Segment, reason: str) -> ItemResult | None:
        return ItemResult(item_id)

    def overdue(
        self, tx: Connection, stage: str, signals: Sequence[Signal], due: Overdue, after: Position
    ) -> tuple[list[Outgoing], Position | None]:
        """One segment for each day: any of them makes the boxer look at its whole window.

        This is also what merges a window after it is over: nothing else happens then.
        """
        page = overdue.untaken_segments(tx, stage, [signal.name for signal in signals], due, after)
        hours = {
            (each.org_id, each.collector, each.signal, each.index_day, each.hour): each
            for each in page.found
            if self.wanted(each)
        }
        return segments_made(list(hours.values()), [stage]), page.end


def gather(tx: Connection, inputs: Sequence[Segment], settings: PipelineSettings) -> list[list[Segment]]:
    """The bundles of the windows that these segments are in: of all segments there that no item has taken, locked."""
    now_ns = time.time_ns()
    windows = {window_of(each, now_ns, settings): each for each in inputs}
    found = {window: _of_window(tx, one, window, now_ns, settings) for window, one in windows.items()}
    free = lock_untaken(tx, _NAME, [ref(each) for segments in found.values() for each in segments])
    return [
        bundle
        for window, segments in found.items()
        for bundle in bundles([each for each in segments if ref(each) in free], window, now_ns, settings)
    ]


def _of_window(
    tx: Connection, one: Segment, window: Window, now_ns: int, settings: PipelineSettings
) -> list[Segment]:  # fmt: skip
    times = TimeRange(window.start_ns, min(window.end_ns, (1 << 63) - 1))
    return [
        each
        for each in live_segments(tx, one.org_id, one.signal, times, RAW_TIER_S)
        if window_of(each, now_ns, settings) == window
    ]


class CompactRunner(BucketRunner[Segment, CompactTask, CompactResult]):
    """A Spark driver, whose session starts with the first merge. With `run_tasks`, tasks run there instead."""

    def __init__(self, settings: Settings, database: Database, run_tasks: RunTasks | None = None) -> None:
        super().__init__(_NAME, settings, run_task, run_tasks)
        self._database = database
        self._scratch = str(settings.data.dir.resolve() / "scratch")
        self._deduplicated = frozenset(settings.pipeline.compact_deduplicate.split())

    def run(self, items: Sequence[Item[Segment]], attempts: Mapping[uuid.UUID, int]) -> Iterator[Attempt]:
        """One job over all items."""
        mixed = [item for item in items if len({each.rules_version for each in item.inputs}) > 1]
        for item in mixed:
            # Backfill was faster with some inputs. They are gathered again by what they were evaluated with.
            yield Attempt(item.item_id, ItemResult(item.item_id, releases_inputs=True))
        items = [item for item in items if item not in mixed]
        tasks, sources = self._tasks(items)
        found = run_grouped(tasks, self._run_tasks)
        for item in items:
            results = found[item.item_id]
            self._note(results if isinstance(results, LakeError) else None)
            yield _attempt(item, results, sources[item.item_id])

    def _tasks(
        self, items: Sequence[Item[Segment]]
    ) -> tuple[dict[uuid.UUID, list[CompactTask]], dict[uuid.UUID, list[uuid.UUID]]]:  # fmt: skip
        """The tasks of the items, and the sources of what each will make; none if they are not all known."""
        tasks = {}
        sources: dict[uuid.UUID, list[uuid.UUID]] = {}
        with self._database.transaction() as tx:
            for item in items:
                recorded = recorded_types(tx, item.org_id, item.signal)
                known = sources_of(tx, [ref(each) for each in item.inputs])
                of_input = [known.get(ref(each), frozenset[uuid.UUID]()) for each in item.inputs]
                everything = set[uuid.UUID]().union(*of_input)
                is_known = len(known) == len(item.inputs) and len(everything) <= MAX_SOURCES
                sources[item.item_id] = sorted(everything) if is_known else []
                tasks[item.item_id] = [
                    CompactTask(
                        item.item_id,
                        item.signal,
                        item.inputs,
                        self._target,
                        self._scratch,
                        AttributeTypes(recorded, len(recorded) >= MAX_COLUMNS),
                        readings=_readings(of_input),
                        deduplicates=self._deduplicates(item),
                    )
                ]
        return tasks, sources

    def _deduplicates(self, item: Item[Segment]) -> bool:
        return not self._deduplicated.isdisjoint((f"{item.org_id}/{item.signal}", f"*/{item.signal}"))


def _readings(sources: Sequence[frozenset[uuid.UUID]]) -> tuple[tuple[int, ...], ...]:
    """For each input, the earlier ones that share a raw object with it."""
    return tuple(
        tuple(earlier for earlier in range(number) if not sources[earlier].isdisjoint(mine))
        for number, mine in enumerate(sources)
    )


def _attempt(
    item: Item[Segment], found: list[CompactResult] | LakeError, sources: Sequence[uuid.UUID]
) -> Attempt:  # fmt: skip
    if isinstance(found, UnreadableInput | LimitHit):
        return Attempt(item.item_id, InputAtFault(found.message))
    if isinstance(found, LakeError):
        return Attempt(item.item_id, found)
    (result,) = found
    if result.segment is None:
        # What was left of an item with an input that cannot be read: this is not the one.
        return Attempt(item.item_id, ItemResult(item.item_id, releases_inputs=True))
    committed = ItemResult(
        item.item_id,
        made=[result.segment],
        superseded=[ref(each) for each in item.inputs],
        follow_ups=segments_made([result.segment], [_NAME]),
        sources={result.segment.segment_id: sources},
        rules_versions={each.segment_id: each.rules_version for each in item.inputs},
        holes=_holes(item, result),
    )
    return Attempt(item.item_id, committed, partial(_report, item, result))


def _holes(item: Item[Segment], result: CompactResult) -> list[Hole]:
    """Rules have counted rows that queries do not see any more."""
    if result.unseen_ns is None:
        return []
    first_ns, last_ns = result.unseen_ns
    return [Hole(item.signal, 0, first_ns, last_ns + 1, "compaction found rows that were stored twice")]


def _report(item: Item[Segment], result: CompactResult) -> None:
    _BYTES_READ.labels(item.signal).inc(sum(each.size_bytes for each in item.inputs))
    if result.removed:
        _ROWS_REMOVED.labels(item.signal).inc(result.removed)
        log().warning("duplicates removed", org=str(item.org_id), signal=item.signal, rows=result.removed)


def _group(segment: Segment) -> Hashable:
    """Segments of one hour, or undated ones of one collector. The boxer finds the others of their window itself."""
    return segment.collector, segment.index_day, segment.hour


def _limits(settings: PipelineSettings) -> PackLimits:
    return PackLimits(
        settings.compact_target_bytes, settings.compact_segments, settings.compact_wait_s, settings.compact_wait_s
    )


COMPACT: Final = Stage(
    name=_NAME,
    sentence="Merge small segments of all signals into large ones, on Spark.",
    inputs=SmallSegments(wanted=lambda segment: segment.tier_s == RAW_TIER_S),
    group=_group,
    weigh=lambda segment, _: segment.size_bytes,
    limits=_limits,
    runner=CompactRunner,
    gather=gather,
    kernels=(needles.warm,),
)
