"""Completes calls whose two sides came with different items: pairs an item's halves with those that wait in the index.

The driver does this after the tasks of an item, and the item's commit ends it: halves that were paired are deleted, the
others wait. If another item changed them meanwhile, the commit fails and the item comes again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakerunner.index.database import Database
from lakerunner.index.derivation import Derivation, waiting_halves
from lakerunner.model.half_call import HALF
from lakerunner.model.raw_object import RawObject
from lakerunner.model.segment import Segment
from lakerunner.model.signals.metrics import METRICS
from lakerunner.pipeline.derive.edges import pair
from lakerunner.pipeline.derive.spans import edge_metrics, metric_tables
from lakerunner.pipeline.ingest.task import TaskResult
from lakerunner.pipeline.split import parts
from lakerunner.pipeline.stage import Item
from lakerunner.pipeline.write_part import write_part
from lakerunner.store.object_store import ObjectStore


@dataclass(frozen=True, slots=True)
class Completion:
    """The segments of completed calls, and what the index must record with the item."""

    segments: list[Segment]
    derivation: Derivation | None


def complete(
    database: Database,
    store: ObjectStore,
    item: Item[RawObject],
    results: Sequence[TaskResult],
    slot: int | None,
    series_key: bytes,
) -> Completion:
    slots = [pair for result in results for pair in result.slots]
    halves = pa.concat_tables([HALF.empty_table(), *(_table(result.halves) for result in results if result.halves)])
    if slot is None or not halves.num_rows:
        return Completion([], Derivation(slots=slots) if slots else None)
    with database.transaction() as tx:
        waiting = waiting_halves(tx, item.org_id, halves)
    paired = pair(pa.concat_tables([halves, waiting]))
    taken = waiting.take(pa.array(paired.used[paired.used >= halves.num_rows] - halves.num_rows))
    left = halves.take(pa.array(np.setdiff1d(np.arange(halves.num_rows), paired.used)))
    segments: list[Segment] = []
    made = edge_metrics(paired.edges, slot, series_key)
    if made is not None:
        now_ns = time.time_ns()
        tables = metric_tables([made])
        assert tables is not None
        segments = [
            write_part(item.org_id, item.collector, METRICS, part, store, now_ns)
            for part in parts(METRICS, tables, now_ns)
        ]
        slots += [(slot, interval) for interval in made.intervals]
    return Completion(segments, Derivation(slots, taken, left))


def _table(stream: bytes) -> pa.Table:
    with pa.ipc.open_stream(stream) as reader:
        return reader.read_all()
