"""Delete: its description, and its worker: one Spark job over the segments of a batch of items."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from lakerunner.bus.announce import segments_made
from lakerunner.index.commit import ItemResult
from lakerunner.index.database import Database
from lakerunner.index.deletions import pending_of
from lakerunner.index.segment_sources import sources_of
from lakerunner.index.segments import SegmentRef, ref
from lakerunner.model.deletion import SegmentDeleted, SegmentEnd
from lakerunner.model.errors import LakeError
from lakerunner.model.segment import Segment
from lakerunner.pipeline.bucket_runner import BucketRunner
from lakerunner.pipeline.delete.inputs import DELETION_SEGMENTS
from lakerunner.pipeline.delete.request import NAME
from lakerunner.pipeline.delete.task import RewriteResult, RewriteTask, run_task
from lakerunner.pipeline.grouped_tasks import run_grouped
from lakerunner.pipeline.packing import PackLimits
from lakerunner.pipeline.stage import Attempt, Item, Stage
from lakerunner.runtime.settings import PipelineSettings, Settings

#: Runs tasks somewhere and returns their results in order; Unavailable when one died.
RunTasks = Callable[[Sequence[RewriteTask]], list[RewriteResult]]
#: Segments per item: few enough that an item ends soon, and its progress shows.
_ITEM_SEGMENTS = 16


class DeleteRunner(BucketRunner[Segment, RewriteTask, RewriteResult]):
    """A Spark driver, which starts with the first deletion: most days have none. With `run_tasks`, it has no Spark."""

    def __init__(self, settings: Settings, database: Database, run_tasks: RunTasks | None = None) -> None:
        super().__init__(NAME, settings, run_task, run_tasks)
        self._database = database
        self._scratch = str(settings.data.dir.resolve() / "scratch")

    def run(self, items: Sequence[Item[Segment]], attempts: Mapping[uuid.UUID, int]) -> Iterator[Attempt]:
        """One job over all segments that a running deletion still concerns."""
        refs = [ref(segment) for item in items for segment in item.inputs]
        with self._database.transaction() as tx:
            pending = pending_of(tx, refs)
            sources = sources_of(tx, list(pending))
        tasks = {
            item.item_id: [
                RewriteTask(
                    item.item_id,
                    segment,
                    tuple(each.in_tier(segment.tier_s) for each in hidden),
                    self._target,
                    self._scratch,
                )
                for segment in item.inputs
                if (hidden := pending.get(ref(segment)))
            ]
            for item in items
        }
        found = run_grouped(tasks, self._run_tasks)
        for item in items:
            results = found.get(item.item_id, [])
            self._note(results if isinstance(results, LakeError) else None)
            yield _attempt(item, results, sources)


def _attempt(
    item: Item[Segment], results: list[RewriteResult] | LakeError, sources: Mapping[SegmentRef, frozenset[uuid.UUID]]
) -> Attempt:
    if isinstance(results, LakeError):
        return Attempt(item.item_id, results)
    made = [result.made for result in results if result.made is not None]
    changed = [result.segment for result in results if result.rows_after < result.segment.row_count]
    superseded = {segment.segment_id: ref(segment) for segment in changed}
    return Attempt(
        item.item_id,
        ItemResult(
            item.item_id,
            made=made,
            superseded=list(superseded.values()),
            deletions=[_outcome(result) for result in results],
            follow_ups=segments_made(made),
            sources={
                each.made.segment_id: sorted(sources.get(ref(each.segment), ()))
                for each in results
                if each.made is not None
            },
            rules_versions={segment.segment_id: segment.rules_version for segment in changed},
            released=[ref(segment) for segment in item.inputs if segment.segment_id not in superseded],
        ),
    )


def _outcome(result: RewriteResult) -> SegmentDeleted:
    made = result.made
    if result.rows_after == result.segment.row_count:
        end = SegmentEnd.UNTOUCHED
    else:
        end = SegmentEnd.EMPTIED if made is None else SegmentEnd.REWRITTEN
    name = ref(result.segment)
    document = None if made is None else {"segment_id": str(made.segment_id), "sha256": result.checksums}
    ids = [each.deletion_id for each in result.hidden]
    return SegmentDeleted(name.dateint, name.segment_id, ids, end, result.rows_after, document)


def _weigh(segment: Segment, settings: PipelineSettings) -> int:
    return segment.size_bytes


def _limits(settings: PipelineSettings) -> PackLimits:
    return PackLimits(settings.bundle_bytes, _ITEM_SEGMENTS, settings.bundle_idle_s, settings.bundle_age_s)


DELETE: Final = Stage(
    name=NAME,
    sentence="Rewrite segments of all signals without the rows that are to be deleted, on Spark.",
    inputs=DELETION_SEGMENTS,
    group=lambda segment: segment.collector,
    weigh=_weigh,
    limits=_limits,
    runner=DeleteRunner,
)
