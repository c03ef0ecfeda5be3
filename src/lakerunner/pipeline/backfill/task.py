"""What one Spark task of backfill does: read a segment piece by piece, evaluate rules over it, write their samples.

Nothing that a task writes is visible: the driver's commit makes the samples live and raises the segment's version in
one transaction. So a task may die or run twice.
"""

from __future__ import annotations

import time
import traceback
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.model.errors import Bug, LakeError, LimitHit
from lakerunner.model.segment import Segment
from lakerunner.model.signals import METRICS
from lakerunner.pipeline.derive.rule_set import Evaluation, RuleEvaluation, RuleSet
from lakerunner.pipeline.derive.spans import metric_tables
from lakerunner.pipeline.split import parts
from lakerunner.pipeline.write_part import write_part
from lakerunner.runtime.crash import crash_point
from lakerunner.store import keys
from lakerunner.store.config import StoreConfig
from lakerunner.store.nanos import join_nanos
from lakerunner.store.object_store import ObjectStore
from lakerunner.store.open import open_store


@dataclass(frozen=True, slots=True)
class BackfillTask:
    """A segment, and the rules of the current catalog that have not seen it."""

    item_id: uuid.UUID
    segment: Segment
    rules: RuleSet
    slot: int
    series_key: bytes
    target: StoreConfig


@dataclass(frozen=True, slots=True)
class BackfillResult:
    item_id: uuid.UUID
    segment: Segment
    rules: RuleSet
    made: tuple[Segment, ...] = ()
    #: Slot and interval of every sample.
    slots: tuple[tuple[int, int], ...] = ()
    evaluation: Evaluation = field(default_factory=Evaluation)
    error: LakeError | None = None


def run_task(task: BackfillTask) -> BackfillResult:
    """Run the task. An error concerns this segment's item alone."""
    try:
        return _run(task)
    except LakeError as error:
        reason: LakeError = error
    except MemoryError:
        reason = LimitHit(f"cannot evaluate rules over segment {task.segment.segment_id}: the task is out of memory")
    except Exception as error:  # noqa: BLE001  an error of ours in one segment must not end the job of all
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        message = f"cannot evaluate rules over segment {task.segment.segment_id}: {type(error).__name__}: {error}"
        reason = Bug(message, where=where)
    return BackfillResult(task.item_id, task.segment, task.rules, error=reason)


def _run(task: BackfillTask) -> BackfillResult:
    store = _store(task.target)
    rules = RuleEvaluation(task.rules)
    if task.rules.rules:
        for rows in _row_groups(store, keys.segment_keys(task.segment)[0]):
            rules.add(rows)
    crash_point("backfill_after_read")
    evaluation = rules.result(task.slot, task.series_key)
    made: list[Segment] = []
    slots: tuple[tuple[int, int], ...] = ()
    if evaluation.derived is not None:
        tables = metric_tables([evaluation.derived])
        assert tables is not None
        now_ns = time.time_ns()
        made = [
            write_part(task.segment.org_id, task.segment.collector, METRICS, part, store, now_ns)
            for part in parts(METRICS, tables, now_ns)
        ]
        slots = tuple((task.slot, interval) for interval in evaluation.derived.intervals)
    crash_point("backfill_after_write")
    return BackfillResult(
        task.item_id, task.segment, task.rules, tuple(made), slots, replace(evaluation, derived=None)
    )  # fmt: skip


def _row_groups(store: ObjectStore, key: str) -> Iterator[pa.Table]:
    """The rows as they were before they were stored, by row group."""
    with pq.ParquetFile(pa.BufferReader(store.get(key)), page_checksum_verification=True) as file:
        for number in range(file.num_row_groups):
            yield join_nanos(file.read_row_group(number, use_threads=False))


@lru_cache(maxsize=8)
def _store(config: StoreConfig) -> ObjectStore:
    return open_store(config)
