"""What one Spark task of backfill does: read a segment piece by piece, evaluate rules over it, write their samples.

Nothing that a task writes is visible: the driver's commit makes the samples live and raises the segment's version in
one transaction. So a task may die or run twice.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.model.errors import LakeError
from lakerunner.model.segment import Segment
from lakerunner.model.signal import Signal
from lakerunner.model.signals import METRICS, signal_named
from lakerunner.model.time import TimeRange
from lakerunner.pipeline.derive.evaluate import Derived, evaluate
from lakerunner.pipeline.derive.rule import Rule
from lakerunner.pipeline.derive.rule_set import Evaluation, RuleEvaluation, RuleSet
from lakerunner.pipeline.derive.span_rules import span_metrics
from lakerunner.pipeline.derive.spans import metric_tables
from lakerunner.pipeline.split import parts
from lakerunner.pipeline.task_errors import task_error
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
    #: Only rows of this time, if it is given.
    within: TimeRange | None = None
    #: Also the built-in span metrics, with these attributes as labels.
    span_dimensions: tuple[str, ...] | None = None


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
    except Exception as error:  # noqa: BLE001  an error of ours in one segment must not end the job of all
        reason = task_error(error, f"evaluate rules over segment {task.segment.segment_id}")
        return BackfillResult(task.item_id, task.segment, task.rules, error=reason)


def _run(task: BackfillTask) -> BackfillResult:
    store, signal = _store(task.target), signal_named(task.segment.signal)
    rules, built_in = RuleEvaluation(task.rules), None if task.span_dimensions is None else _SpanMetrics(task)
    if task.rules.rules or built_in is not None:
        for rows in _row_groups(store, keys.segment_keys(task.segment)[0]):
            rows = _within(rows, signal, task.within)
            rules.add(rows)
            if built_in is not None:
                built_in.add(rows)
    crash_point("backfill_after_read")
    evaluation = rules.result(task.slot, task.series_key)
    derived = [evaluation.derived, None if built_in is None else built_in.result()]
    found = [each for each in derived if each is not None]
    made: list[Segment] = []
    tables = metric_tables(found)
    if tables is not None:
        now_ns = time.time_ns()
        made = [
            write_part(task.segment.org_id, task.segment.collector, METRICS, part, store, now_ns)
            for part in parts(METRICS, tables, now_ns)
        ]
    slots = tuple((task.slot, interval) for interval in sorted({at for each in found for at in each.intervals}))
    crash_point("backfill_after_write")
    return BackfillResult(
        task.item_id, task.segment, task.rules, tuple(made), slots, replace(evaluation, derived=None)
    )  # fmt: skip


class _SpanMetrics:
    """The built-in span metrics of a segment, of all rows together: a series may have one sample per slot."""

    def __init__(self, task: BackfillTask) -> None:
        self._task = task
        self._rule: Rule = span_metrics(task.span_dimensions or ())
        measured = [each.column for each in self._rule.measures if each.column]
        self._columns = ["start_timestamp", *(each.column for each in self._rule.dimensions), *measured]
        self._parts: list[pa.Table] = []

    def add(self, spans: pa.Table) -> None:
        self._parts.append(spans.select([name for name in self._columns if name in spans.column_names]))

    def result(self) -> Derived | None:
        spans = pa.concat_tables(self._parts) if self._parts else None
        if spans is None or not spans.num_rows:
            return None
        times_ns = spans.column("start_timestamp").cast(pa.int64()).to_numpy()
        return evaluate([self._rule], spans, times_ns, self._task.slot, self._task.series_key)


def _within(rows: pa.Table, signal: Signal, time_range: TimeRange | None) -> pa.Table:
    if time_range is None:
        return rows
    times_ns = rows.column(signal.time_column).cast(pa.int64()).to_numpy() * signal.time_unit_ns
    is_wanted = (times_ns >= time_range.start_ns) & (times_ns < time_range.end_ns)
    return rows if np.all(is_wanted) else rows.filter(pa.array(is_wanted))


def _row_groups(store: ObjectStore, key: str) -> Iterator[pa.Table]:
    """The rows as they were before they were stored, by row group."""
    with pq.ParquetFile(pa.BufferReader(store.get(key)), page_checksum_verification=True) as file:
        for number in range(file.num_row_groups):
            yield join_nanos(file.read_row_group(number, use_threads=False))


@lru_cache(maxsize=8)
def _store(config: StoreConfig) -> ObjectStore:
    return open_store(config)
