"""Writes the metrics of calls between services, which drivers pair from the halves of several tasks."""

from __future__ import annotations

import time
import uuid
from typing import Final

import pyarrow as pa

from lakerunner.model.segment import Segment
from lakerunner.model.signals.metrics import METRICS
from lakerunner.pipeline.derive.spans import edge_metrics, metric_tables
from lakerunner.pipeline.split import parts
from lakerunner.pipeline.write_part import write_part
from lakerunner.store.object_store import ObjectStore

#: The collector of segments that follow from no single object.
DERIVED: Final = "derived"


def edge_segments(
    store: ObjectStore, org_id: uuid.UUID, collector: str, edges: pa.Table, slot: int, key: bytes
) -> tuple[list[Segment], tuple[int, ...]]:
    """Segments of the calls, which nobody sees yet, and the intervals of their samples."""
    made = edge_metrics(edges, slot, key)
    if made is None:
        return [], ()
    now_ns = time.time_ns()
    tables = metric_tables([made])
    assert tables is not None
    segments = [write_part(org_id, collector, METRICS, part, store, now_ns) for part in parts(METRICS, tables, now_ns)]
    return segments, made.intervals
