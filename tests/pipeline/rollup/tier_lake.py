"""A lake with raw samples that were written directly, rolled up in the test's own process."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.index import rollup_windows
from lakerunner.index.rollup_windows import due_windows
from lakerunner.index.segments import ensure_partitions, insert_segments, live_segments
from lakerunner.model.ids import fresh_id
from lakerunner.model.rollup_window import Window
from lakerunner.model.segment import Segment
from lakerunner.model.signals.metrics import METRICS, SERIES
from lakerunner.model.time import NS_PER_DAY, NS_PER_MS, TimeRange
from lakerunner.pipeline.items import load_items, make_item, make_items
from lakerunner.pipeline.rollup.stage import ROLLUP, RollupRunner, RunTasks
from lakerunner.pipeline.rollup.task import RollupResult, RollupTask, run_rollup
from lakerunner.pipeline.stage import Item
from lakerunner.pipeline.worker import run_batch
from lakerunner.store import keys
from lakerunner.store.segment_writer import describe, encode_tables, segment_of
from tests.pipeline.lake import ORG, Lake
from tests.pipeline.rollup.naive import Sample, table_of

#: Midnight three days ago: all its windows are over.
DAY_MS = (time.time_ns() // NS_PER_DAY - 3) * NS_PER_DAY // NS_PER_MS
HOUR_MS = 3_600_000
ALWAYS = TimeRange(0, 1 << 62)


def run_here(tasks: Sequence[RollupTask]) -> list[RollupResult]:
    return [run_rollup(task) for task in tasks]


def add(lake: Lake, samples: list[Sample], org_id: uuid.UUID = ORG, collector: str = "shop") -> Segment:
    """Write raw samples as a segment and mark its windows, as ingest does."""
    table = table_of(samples)
    tids = sorted({(f"metric_{sample.tid // 2}", sample.tid) for sample in samples})
    series = [{"tid": tid, "metric_name": name, "type": "gauge", "labels": [("tid", str(tid))]} for name, tid in tids]
    tables = {"": table, ".series": pa.Table.from_pylist(series, SERIES.schema())}
    files = encode_tables(METRICS, tables)
    size = sum(file.size for file in files)
    segment = segment_of(
        METRICS, describe(METRICS, table), segment_id=fresh_id(), org_id=org_id, collector=collector, size_bytes=size
    )
    for key, file in zip(keys.segment_keys(segment), files, strict=True):
        lake.store.put(key, memoryview(file))
    ensure_partitions(lake.database, [segment.index_day])
    with lake.database.transaction() as tx:
        insert_segments(tx, [segment], uuid.uuid4())
        rollup_windows.mark_inserted(tx, [segment])
    return segment


def runner(lake: Lake, run_tasks: RunTasks = run_here) -> RollupRunner:
    return RollupRunner(lake.settings, lake.database, run_tasks)


def item_of(lake: Lake, windows: Sequence[Window]) -> Item[Window]:
    item_id = make_item(lake.database, ROLLUP, windows)
    assert item_id is not None
    with lake.database.transaction() as tx:
        items, _ = load_items(tx, ROLLUP, [item_id], lake.settings.pipeline)
    return items[item_id]


def roll_up_all(lake: Lake, run_tasks: RunTasks = run_here) -> int:
    """Make windows until none is due; returns how many there were."""
    made = 0
    while True:
        with lake.database.transaction() as tx:
            due = due_windows(tx, 0.0)
        if not due:
            return made
        groups: dict[tuple[uuid.UUID, int, int], list[Window]] = {}
        for window in due:
            groups.setdefault((window.org_id, window.start_ns, window.end_ns), []).append(window)
        items = [item_of(lake, windows) for windows in groups.values()]
        attempts = dict.fromkeys([item.item_id for item in items], 1)
        ends = run_batch(ROLLUP, lake.database, runner(lake, run_tasks), items, attempts)
        assert set(ends.values()) == {None}, ends
        made += len(due)


def gathered(lake: Lake, windows: Sequence[Window]) -> list[Item[Window]]:
    """The items that a boxer makes when these windows are announced."""
    made = make_items(lake.database, ROLLUP, windows, lake.settings.pipeline)
    with lake.database.transaction() as tx:
        items, _ = load_items(tx, ROLLUP, made, lake.settings.pipeline)
    return list(items.values())


def settle_all(lake: Lake, run_tasks: RunTasks = run_here) -> int:
    """Make and join windows as boxer and worker do, until nothing is left to be done; returns the number of items."""
    done = 0
    while True:
        with lake.database.transaction() as tx:
            due = [*due_windows(tx, 0.0), *rollup_windows.joinable_days(tx)]
        if not due:
            return done
        items = gathered(lake, due)
        attempts = dict.fromkeys([item.item_id for item in items], 1)
        if items:
            ends = run_batch(ROLLUP, lake.database, runner(lake, run_tasks), items, attempts)
            assert set(ends.values()) == {None}, ends
        done += len(items)


def tier_rows(lake: Lake, tier_s: int, table: int = 0, org_id: uuid.UUID = ORG) -> pa.Table:
    with lake.database.transaction() as tx:
        segments = live_segments(tx, org_id, "metrics", ALWAYS, tier_s)
    segments.sort(key=lambda segment: segment.time_range)
    found = pa.concat_tables([pq.read_table(lake.file(segment, table)) for segment in segments])
    return found.sort_by(
        [(name, "ascending") for name in ("metric_name", "tid", *(["timestamp"] if not table else []))]
    )
