"""Segments as ingest makes them, compacted in this process."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.model.raw_object import RawObject
from lakerunner.model.segment import Segment
from lakerunner.model.signal import Signal
from lakerunner.pipeline.compact.stage import COMPACT, CompactRunner
from lakerunner.pipeline.compact.task import CompactResult, CompactTask, run_task
from lakerunner.pipeline.ingest.stage import INGEST, IngestRunner
from lakerunner.pipeline.ingest.task import run_task as run_ingest_task
from lakerunner.pipeline.items import load_items, make_item, make_items
from lakerunner.pipeline.stage import Item
from lakerunner.pipeline.worker import run_batch
from lakerunner.store.nanos import join_nanos
from tests.pipeline.lake import ORG, Lake, loaded


def run_here(tasks: Sequence[CompactTask]) -> list[CompactResult]:
    return [run_task(task) for task in tasks]


def ingest(lake: Lake, *raws: RawObject) -> None:
    """One item of these objects."""
    runner = IngestRunner(lake.settings, lake.database, lambda tasks: [run_ingest_task(task) for task in tasks])
    item = loaded(lake, *raws)
    assert run_batch(INGEST, lake.database, runner, [item], {item.item_id: 1}) == {item.item_id: None}


def item_of(lake: Lake, segments: Sequence[Segment]) -> Item[Segment]:
    """A work item of exactly these segments."""
    made = make_item(lake.database, COMPACT, segments)
    assert made is not None
    return load(lake, made)


def load(lake: Lake, item_id: uuid.UUID) -> Item[Segment]:
    with lake.database.transaction() as tx:
        items, _ = load_items(tx, COMPACT, [item_id], lake.settings.pipeline)
    return items[item_id]


def compact_items(lake: Lake, items: Sequence[Item[Segment]]) -> Any:
    runner = CompactRunner(lake.settings, lake.database, run_here)
    return run_batch(COMPACT, lake.database, runner, items, {item.item_id: 1 for item in items})


def compact(lake: Lake, segments: Sequence[Segment]) -> None:
    """Merge exactly these segments."""
    item = item_of(lake, segments)
    assert compact_items(lake, [item]) == {item.item_id: None}


def compact_until_settled(lake: Lake, signal: Signal, org_id: uuid.UUID = ORG) -> int:
    """Gather and merge as boxer and worker do, until nothing is left to merge; return the number of items."""
    count = 0
    while True:
        made: list[uuid.UUID] = []
        for segment in lake.segments(signal, org_id):
            made += make_items(lake.database, COMPACT, [segment], lake.settings.pipeline)
        if not made:
            return count
        count += len(made)
        items = [load(lake, item_id) for item_id in made]
        assert compact_items(lake, items) == dict.fromkeys(made)


def stored(lake: Lake, segment: Segment, table: int = 0) -> pa.Table:
    return join_nanos(pq.read_table(lake.file(segment, table)))
