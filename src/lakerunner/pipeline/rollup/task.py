"""What one Spark task of the rollup does: merge the segments of a window, roll up, write segments of tiers, report.

Nothing that a task writes is visible: it reports segments, and the driver's commit makes them live. So a task may die
or run twice at any point.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow as pa

from lakerunner.model.errors import LakeError
from lakerunner.model.ids import fresh_id
from lakerunner.model.rollup_window import tier_collector
from lakerunner.model.segment import RAW_TIER_S, Segment, is_dated
from lakerunner.model.signals.metrics import SAMPLES, SERIES
from lakerunner.model.signals.tiers import TIER_METRICS, TIER_SAMPLES
from lakerunner.model.time import TimeRange
from lakerunner.pipeline.executor_task import open_for_tasks, run_alone
from lakerunner.pipeline.rollup.merge import merged
from lakerunner.pipeline.rollup.roll_up import TIER_METADATA, roll_up_tiers
from lakerunner.pipeline.rollup.series import distinct_series, series_of
from lakerunner.runtime.crash import crash_point
from lakerunner.store import keys
from lakerunner.store.config import StoreConfig
from lakerunner.store.object_store import ObjectStore
from lakerunner.store.range_file import open_object
from lakerunner.store.segment_writer import describe, encode_tables, segment_of


@dataclass(frozen=True, slots=True)
class RollupTask:
    """One window of one org: the segments that have its rows, all of one tier, and the tiers to make of them."""

    item_id: uuid.UUID
    org_id: uuid.UUID
    rows: TimeRange
    tiers_s: tuple[int, ...]
    #: Ordered by id, so by age.
    segments: tuple[Segment, ...]
    target: StoreConfig
    #: Rows that are merged and rolled up at a time, and rows of one segment that is written.
    piece_rows: int = 1 << 19
    segment_rows: int = 1 << 20
    fetches: int = 8


@dataclass(frozen=True, slots=True)
class RollupResult:
    item_id: uuid.UUID
    segments: tuple[Segment, ...] = ()
    #: Samples that were read, each (series, time) once.
    samples: int = 0
    error: LakeError | None = None


@dataclass(slots=True)
class _Output:
    """The rows of one tier that are not written yet."""

    tables: list[pa.Table] = field(default_factory=list)
    rows: int = 0


def run_rollup(task: RollupTask) -> RollupResult:
    """Run the task. An error concerns this item alone."""
    return run_alone("roll up the window", lambda: _run(task), lambda error: RollupResult(task.item_id, error=error))


def _run(task: RollupTask) -> RollupResult:
    if not task.segments:
        return RollupResult(task.item_id)
    store = open_for_tasks(task.target)
    names = [keys.segment_keys(segment) for segment in task.segments]
    with ThreadPoolExecutor(task.fetches, thread_name_prefix="fetch") as pool:
        samples = list(pool.map(lambda name: open_object(store, name[0]), names))
        series = distinct_series(pool.map(lambda name: open_object(store, name[1]), names))
    crash_point("rollup_after_read")
    source_s = task.segments[0].tier_s
    description = SAMPLES if source_s == RAW_TIER_S else TIER_SAMPLES
    files = [(file, segment.time_range) for file, segment in zip(samples, task.segments, strict=True)]
    del samples
    outputs = {tier_s: _Output() for tier_s in task.tiers_s}
    made: list[Segment] = []
    read = 0
    for piece in merged(files, description, task.rows, task.piece_rows):
        read += piece.num_rows
        piece = piece.replace_schema_metadata({TIER_METADATA: str(source_s).encode()})
        for tier_s, table in roll_up_tiers(piece, task.tiers_s).items():
            output = outputs[tier_s]
            output.tables.append(table)
            output.rows += table.num_rows
            if output.rows >= task.segment_rows:
                made += _flush(task, tier_s, output, series, store)
    for tier_s, output in outputs.items():
        made += _flush(task, tier_s, output, series, store)
    crash_point("rollup_after_write")
    return RollupResult(task.item_id, tuple(made), read)


def _flush(
    task: RollupTask, tier_s: int, output: _Output, series: pa.Table, store: ObjectStore
) -> Iterator[Segment]:  # fmt: skip
    if not output.rows:
        return
    rows = pa.concat_tables(output.tables)
    output.tables, output.rows = [], 0
    described = describe(TIER_METRICS, rows)
    tables = {TIER_SAMPLES.suffix: rows, SERIES.suffix: series_of(rows, series)}
    files = encode_tables(TIER_METRICS, tables)
    segment = segment_of(
        TIER_METRICS,
        described,
        segment_id=fresh_id(),
        org_id=task.org_id,
        collector=tier_collector(tier_s),
        size_bytes=sum(file.size for file in files),
        tier_s=tier_s,
        is_dated=is_dated(described.time_range, time.time_ns()),
    )
    for key, file in zip(keys.segment_keys(segment), files, strict=True):
        store.put(key, memoryview(file), create_only=True)
    yield segment
