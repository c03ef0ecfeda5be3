"""Rollup: its description, and its worker: one Spark task per window, and one result per item."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from lakerunner.index.commit import ItemResult
from lakerunner.index.database import Connection, Database
from lakerunner.index.rollup_windows import read_generations
from lakerunner.index.segments import live_segments
from lakerunner.model.errors import Bug, LakeError, Unavailable
from lakerunner.model.rollup_window import Window, source_tier_s
from lakerunner.model.signals import METRICS
from lakerunner.model.time import TimeRange
from lakerunner.pipeline.bucket_runner import BucketRunner
from lakerunner.pipeline.grouped_tasks import run_grouped
from lakerunner.pipeline.inputs import WINDOWS
from lakerunner.pipeline.packing import PackLimits
from lakerunner.pipeline.rollup.metrics import ROLLUP_SAMPLES, ROLLUP_WINDOWS
from lakerunner.pipeline.rollup.task import RollupResult, RollupTask, run_rollup
from lakerunner.pipeline.rollup.warm import warm
from lakerunner.pipeline.stage import Attempt, Item, Stage
from lakerunner.runtime.settings import PipelineSettings, Settings

#: Runs tasks somewhere and returns their results in order; Unavailable when one died.
RunTasks = Callable[[Sequence[RollupTask]], list[RollupResult]]
#: Windows of one item: at most all tiers of one stretch of time.
_MAX_WINDOWS = 64


class RollupRunner(BucketRunner[Window, RollupTask, RollupResult]):
    """A Spark driver, whose session starts with the first window. With `run_tasks`, tasks run there instead."""

    def __init__(self, settings: Settings, database: Database, run_tasks: RunTasks | None = None) -> None:
        super().__init__("rollup", settings, run_rollup, run_tasks)
        self._settings = settings
        self._database = database

    def run(self, items: Sequence[Item[Window]], attempts: Mapping[uuid.UUID, int]) -> Iterator[Attempt]:
        """One job over all windows. An item that cannot be done does not hold up the others."""
        tasks: dict[uuid.UUID, list[RollupTask]] = {}
        read: dict[uuid.UUID, list[Window]] = {}
        for item in items:
            windows, planned = self._plan(item)
            if planned is None:
                # A finer tier is not complete, so its commit finds another generation and sets the windows free.
                yield Attempt(item.item_id, ItemResult(item.item_id, windows=[_unread(item)]))
            else:
                read[item.item_id], tasks[item.item_id] = windows, planned
        found = run_grouped(tasks, self._run_tasks)
        for item_id, windows in read.items():
            results = found.get(item_id, [])
            self._note(results if isinstance(results, LakeError) else None)
            yield _attempt(item_id, windows, results)

    def _plan(self, item: Item[Window]) -> tuple[list[Window], list[RollupTask] | None]:
        """The windows as they are now, and the tasks that make them; from one snapshot of the index."""
        with self._database.transaction() as tx:
            tx.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            windows, is_complete = read_generations(tx, item.inputs)
            if not is_complete:
                return windows, None
            together: defaultdict[tuple[int, int, int], list[int]] = defaultdict(list)
            for window in windows:
                together[source_tier_s(window.tier_s), window.start_ns, window.end_ns].append(window.tier_s)
            tasks = [
                self._task(tx, item, Window(item.org_id, source_s, start_ns, end_ns).row_range, source_s, tiers)
                for (source_s, start_ns, end_ns), tiers in together.items()
            ]
        return windows, [task for task in tasks if task.segments]

    def _task(self, tx: Connection, item: Item[Window], rows: TimeRange, source_s: int, tiers: list[int]) -> RollupTask:
        settings = self._settings.pipeline
        segments = live_segments(tx, item.org_id, METRICS.name, rows, source_s)
        return RollupTask(
            item_id=item.item_id,
            org_id=item.org_id,
            rows=rows,
            tiers_s=tuple(sorted(tiers)),
            segments=tuple(sorted(segments, key=lambda segment: segment.segment_id)),
            target=self._target,
            piece_rows=settings.rollup_piece_rows,
            segment_rows=settings.rollup_segment_rows,
            fetches=settings.fetches,
        )


def _unread(item: Item[Window]) -> Window:
    """A window of the item with a generation that none has."""
    window = item.inputs[0]
    return Window(window.org_id, window.tier_s, window.start_ns, window.end_ns, generation=0)


def _attempt(item_id: uuid.UUID, windows: Sequence[Window], found: list[RollupResult] | LakeError) -> Attempt:
    if isinstance(found, Bug):
        # Of one window; the process is well. It is tried again, then kept among the dead letters.
        return Attempt(item_id, Unavailable(str(found)))
    if isinstance(found, LakeError):
        return Attempt(item_id, found)
    segments = [segment for result in found for segment in result.segments]
    samples = sum(result.samples for result in found)

    def report() -> None:
        ROLLUP_SAMPLES.inc(samples)
        for window in windows:
            ROLLUP_WINDOWS.labels(str(window.tier_s)).inc()

    return Attempt(item_id, ItemResult(item_id, made=segments, windows=windows), report)


def _limits(settings: PipelineSettings) -> PackLimits:
    pause_s = settings.rollup_pause_s
    return PackLimits(_MAX_WINDOWS, _MAX_WINDOWS, pause_s, pause_s)


ROLLUP: Final = Stage(
    name="rollup",
    sentence="Roll samples of all signals up to coarser tiers, on Spark.",
    inputs=WINDOWS,
    group=lambda window: (window.start_ns, window.end_ns),
    weigh=lambda window, settings: 1,
    limits=_limits,
    runner=RollupRunner,
    warm=warm,
    signals=(METRICS,),
)
