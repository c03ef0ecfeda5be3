"""Rollup: its description, and its worker: one Spark task per stretch of time, and one result per item."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lakerunner.index.commit import ItemResult
from lakerunner.index.database import Connection, Database
from lakerunner.index.rollup_windows import read_generations
from lakerunner.index.segments import SegmentRef, live_segments, ref
from lakerunner.model.errors import Bug, LakeError, Unavailable
from lakerunner.model.rollup_window import DAY_SOURCE_TIER_S, Window, source_tier_s
from lakerunner.model.segment import RAW_TIER_S
from lakerunner.model.signals import METRICS
from lakerunner.model.time import TimeRange
from lakerunner.pipeline.bucket_runner import BucketRunner
from lakerunner.pipeline.grouped_tasks import run_grouped
from lakerunner.pipeline.inputs import WINDOWS
from lakerunner.pipeline.packing import PackLimits
from lakerunner.pipeline.rollup.days import gather
from lakerunner.pipeline.rollup.metrics import JOINED_WINDOWS, ROLLUP_SAMPLES, ROLLUP_WINDOWS
from lakerunner.pipeline.rollup.task import RollupResult, RollupTask, run_rollup
from lakerunner.pipeline.rollup.warm import warm
from lakerunner.pipeline.stage import Attempt, Item, Stage
from lakerunner.runtime.settings import PipelineSettings, Settings

#: Runs tasks somewhere and returns their results in order; Unavailable when one died.
RunTasks = Callable[[Sequence[RollupTask]], list[RollupResult]]
#: Announced windows of one org and day that are gathered before it is looked which of them share an item.
_MAX_WINDOWS = 1_000


class RollupRunner(BucketRunner[Window, RollupTask, RollupResult]):
    """A Spark driver, whose session starts with the first window. With `run_tasks`, tasks run there instead."""

    def __init__(self, settings: Settings, database: Database, run_tasks: RunTasks | None = None) -> None:
        super().__init__("rollup", settings, run_rollup, run_tasks)
        self._settings = settings
        self._database = database

    def run(self, items: Sequence[Item[Window]], attempts: Mapping[uuid.UUID, int]) -> Iterator[Attempt]:
        """One job over all windows. An item that cannot be done does not hold up the others."""
        plans: dict[uuid.UUID, _Plan] = {}
        for item in items:
            plan = self._plan(item)
            if plan is None:
                # Its commit finds another generation and sets the windows free.
                yield Attempt(item.item_id, ItemResult(item.item_id, windows=[_unread(item)]))
            else:
                plans[item.item_id] = plan
        found = run_grouped({item_id: plan.tasks for item_id, plan in plans.items()}, self._run_tasks)
        for item_id, plan in plans.items():
            results = found.get(item_id, [])
            self._note(results if isinstance(results, LakeError) else None)
            yield _attempt(item_id, plan, results)

    def _plan(self, item: Item[Window]) -> _Plan | None:
        """The windows as they are now, and the tasks that make or join them; from one snapshot of the index.

        None if nothing can be done now: a finer tier is not complete, or windows that were to be joined are dirty now.
        """
        with self._database.transaction() as tx:
            tx.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            windows, is_complete = read_generations(tx, item.inputs)
            if not is_complete or len({window.dirty for window in windows}) != 1:
                return None
            wide = _hulls(windows)
            if windows[0].dirty:
                tasks = [
                    self._task(tx, item, rows, source_s, tiers) for (source_s, rows), tiers in _sources(wide).items()
                ]
                superseded = []
            else:
                # What is there already is joined as it is.
                tasks = [self._task(tx, item, window.row_range, window.tier_s, [window.tier_s]) for window in wide]
                superseded = [ref(segment) for task in tasks for segment in task.segments]
        return _Plan(
            windows=windows,
            joined=[window for window in wide if window not in windows],
            tasks=[task for task in tasks if task.segments],
            superseded=superseded,
        )

    def _task(
        self, tx: Connection, item: Item[Window], rows: TimeRange, source_s: int, tiers: Sequence[int]
    ) -> RollupTask:  # fmt: skip
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


@dataclass(frozen=True, slots=True)
class _Plan:
    windows: Sequence[Window]
    #: Wide windows that take the place of several of them.
    joined: Sequence[Window]
    tasks: Sequence[RollupTask]
    #: The segments that are joined.
    superseded: Sequence[SegmentRef]


def _hulls(windows: Sequence[Window]) -> list[Window]:
    """The windows of each tier, neighbours as one."""
    found: list[Window] = []
    for window in sorted(windows, key=lambda each: (each.tier_s, each.start_ns)):
        last = found[-1] if found else None
        if last and last.tier_s == window.tier_s and last.end_ns == window.start_ns and last.day == window.day:
            found[-1] = Window(last.org_id, last.tier_s, last.start_ns, window.end_ns, dirty=last.dirty)
        else:
            found.append(window)
    return found


def _sources(wide: Sequence[Window]) -> dict[tuple[int, TimeRange], list[int]]:
    """The tiers to be made of each tier and range of rows: of raw samples where the finer ones are made as well."""
    fine = {window.row_range for window in wide if window.tier_s == DAY_SOURCE_TIER_S}
    found: dict[tuple[int, TimeRange], list[int]] = {}
    for window in wide:
        source_s = RAW_TIER_S if window.row_range in fine else source_tier_s(window.tier_s)
        found.setdefault((source_s, window.row_range), []).append(window.tier_s)
    return found


def _unread(item: Item[Window]) -> Window:
    """A window of the item with a generation that none has."""
    window = item.inputs[0]
    return Window(window.org_id, window.tier_s, window.start_ns, window.end_ns, generation=0)


def _attempt(item_id: uuid.UUID, plan: _Plan, found: list[RollupResult] | LakeError) -> Attempt:
    if isinstance(found, Bug):
        # Concerns one window; the process is healthy. It is tried again, then kept among the dead letters.
        return Attempt(item_id, Unavailable(str(found)))
    if isinstance(found, LakeError):
        return Attempt(item_id, found)
    is_join = not plan.windows[0].dirty
    result = ItemResult(
        item_id,
        made=[segment for result in found for segment in result.segments],
        superseded=plan.superseded,
        windows=plan.windows,
        joined=plan.joined,
        settled=is_join,
    )

    def report() -> None:
        if is_join:
            JOINED_WINDOWS.inc(len(plan.windows))
            return
        ROLLUP_SAMPLES.inc(sum(each.samples for each in found))
        for window in plan.windows:
            ROLLUP_WINDOWS.labels(str(window.tier_s)).inc()

    return Attempt(item_id, result, report)


def _limits(settings: PipelineSettings) -> PackLimits:
    pause_s = settings.rollup_pause_s
    return PackLimits(_MAX_WINDOWS, _MAX_WINDOWS, pause_s, pause_s)


ROLLUP: Final = Stage(
    name="rollup",
    sentence="Roll samples of all signals up to coarser tiers, on Spark.",
    inputs=WINDOWS,
    group=lambda window: window.day,
    weigh=lambda window, settings: 1,
    limits=_limits,
    runner=RollupRunner,
    gather=gather,
    kernels=(warm,),
    signals=(METRICS,),
)
