"""What one Spark task of backfill does: read a segment piece by piece, evaluate rules over it, write their samples.

Nothing that a task writes is visible: the driver's commit makes the samples live and raises the segment's version in
one transaction. So a task may die or run twice.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.model.errors import LakeError
from lakerunner.model.half_call import packed
from lakerunner.model.segment import Segment
from lakerunner.model.signal import Signal
from lakerunner.model.signals import METRICS, signal_named
from lakerunner.model.time import TimeRange
from lakerunner.pipeline.backfill.calls import CallsWanted, SegmentCalls
from lakerunner.pipeline.derive.evaluate import Derived, evaluate
from lakerunner.pipeline.derive.rule import Rule
from lakerunner.pipeline.derive.rule_set import Evaluation, RuleEvaluation, RuleSet
from lakerunner.pipeline.derive.span_rules import span_metrics
from lakerunner.pipeline.derive.spans import edge_metrics, metric_tables
from lakerunner.pipeline.executor_task import open_for_tasks, run_alone
from lakerunner.pipeline.split import parts
from lakerunner.pipeline.write_part import write_part
from lakerunner.runtime.crash import crash_point
from lakerunner.store import keys
from lakerunner.store.config import StoreConfig
from lakerunner.store.nanos import join_nanos
from lakerunner.store.object_store import ObjectStore


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
    #: Also the calls between services.
    calls: CallsWanted | None = None


@dataclass(frozen=True, slots=True)
class BackfillResult:
    item_id: uuid.UUID
    segment: Segment
    rules: RuleSet
    made: tuple[Segment, ...] = ()
    #: Slot and interval of every sample.
    slots: tuple[tuple[int, int], ...] = ()
    evaluation: Evaluation = field(default_factory=Evaluation)
    #: Halves of calls whose other side is not in the segment (`model/half_call.py`).
    halves: bytes = b""
    error: LakeError | None = None


def run_task(task: BackfillTask) -> BackfillResult:
    """Run the task. An error concerns this segment's item alone."""
    return run_alone(
        f"evaluate rules over segment {task.segment.segment_id}",
        lambda: _run(task),
        lambda error: BackfillResult(task.item_id, task.segment, task.rules, error=error),
    )


def _run(task: BackfillTask) -> BackfillResult:
    store, signal = open_for_tasks(task.target), signal_named(task.segment.signal)
    rules, built_in = RuleEvaluation(task.rules), None if task.span_dimensions is None else _SpanMetrics(task)
    calls = None if task.calls is None else SegmentCalls(task.calls)
    if task.rules.rules or built_in is not None or calls is not None:
        samples_or_rows, *others = keys.segment_keys(task.segment)
        series = _table(store, others[0]) if signal is METRICS else None
        for rows in _row_groups(store, samples_or_rows):
            if calls is not None:
                calls.add(rows)
            rows = _within(rows, signal, task.within)
            rules.add(rows, series)
            if built_in is not None:
                built_in.add(rows)
    crash_point("backfill_after_read")
    evaluation = rules.result(task.slot, task.series_key)
    derived = [evaluation.derived, None if built_in is None else built_in.result()]
    halves = b""
    if calls is not None:
        edges, alone = calls.result()
        derived.append(edge_metrics(edges, task.slot, task.series_key))
        halves = packed(alone)
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
        task.item_id, task.segment, task.rules, tuple(made), slots, replace(evaluation, derived=None), halves
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


def _table(store: ObjectStore, key: str) -> pa.Table:
    with pq.ParquetFile(pa.BufferReader(store.get(key)), page_checksum_verification=True) as file:
        return file.read(use_threads=False)


def _row_groups(store: ObjectStore, key: str) -> Iterator[pa.Table]:
    """The rows as they were before they were stored, by row group."""
    with pq.ParquetFile(pa.BufferReader(store.get(key)), page_checksum_verification=True) as file:
        for number in range(file.num_row_groups):
            yield join_nanos(file.read_row_group(number, use_threads=False))
