"""A whole stage in a page: it merges the log segments of one org and hour into one. docs/architecture.md walks it.

It has the name of compaction, whose topics there are; what it writes is a description, and no file.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence

from lakerunner.index.commit import ItemResult
from lakerunner.index.database import Database
from lakerunner.index.segments import ref
from lakerunner.model.ids import fresh_id
from lakerunner.model.segment import Segment
from lakerunner.model.signals import LOGS
from lakerunner.model.time import NS_PER_HOUR, TimeRange
from lakerunner.pipeline.inputs import Segments
from lakerunner.pipeline.packing import PackLimits
from lakerunner.pipeline.stage import Attempt, Item, Runner, Stage
from lakerunner.runtime.settings import PipelineSettings, Settings


class Merge(Runner[Segment]):
    """The worker's side. A real stage would open the store here, and run tasks on Spark."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self.attempts: list[int] = []

    def run(self, items: Sequence[Item[Segment]], attempts: Mapping[uuid.UUID, int]) -> Iterator[Attempt]:
        for item in items:
            self.attempts.append(attempts[item.item_id])
            replaced = [ref(segment) for segment in item.inputs]
            yield Attempt(item.item_id, ItemResult(item.item_id, made=[merged(item)], superseded=replaced))


def merged(item: Item[Segment]) -> Segment:
    """One segment with the rows of all inputs, a level above them."""
    times = [segment.time_range for segment in item.inputs]
    return Segment(
        segment_id=fresh_id(),
        org_id=item.org_id,
        collector=item.collector,
        signal=item.signal,
        time_range=TimeRange(min(each.start_ns for each in times), max(each.end_ns for each in times)),
        row_count=sum(segment.row_count for segment in item.inputs),
        size_bytes=sum(segment.size_bytes for segment in item.inputs),
        level=1 + max(segment.level for segment in item.inputs),
    )


def hour(segment: Segment) -> tuple[str, int]:
    return segment.collector, segment.time_range.start_ns // NS_PER_HOUR


def limits(settings: PipelineSettings) -> PackLimits:
    return PackLimits(settings.bundle_bytes, 4, settings.bundle_idle_s, settings.bundle_age_s)


MERGE = Stage(
    name="compact",
    sentence="Merge the segments of an hour.",
    inputs=Segments(wanted=lambda segment: segment.level == 0),
    group=hour,
    weigh=lambda segment, _: segment.size_bytes,
    limits=limits,
    runner=Merge,
    signals=(LOGS,),
)
