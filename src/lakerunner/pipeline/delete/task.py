"""What one Spark task of delete does: read a segment, leave the matching rows out, write the rest, and report.

Rows are read and written in batches, so memory does not depend on the size of the segment. Only the series of a metric
segment are in memory as a whole.

Nothing that a task writes is visible: the driver's commit swaps the segments. So a task may die or run twice.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import OVERFLOW
from lakerunner.model.errors import Bug, LakeError
from lakerunner.model.hidden import HiddenRows
from lakerunner.model.ids import fresh_id
from lakerunner.model.segment import Segment
from lakerunner.model.signal import Signal, Table
from lakerunner.model.signals import METRICS, signal_named
from lakerunner.model.signals.tiers import SERIES_SKETCH, TIER_METRICS
from lakerunner.pipeline.executor_task import open_for_tasks, run_alone
from lakerunner.pipeline.ordering import whole
from lakerunner.pipeline.scratch import scratch_folder
from lakerunner.pipeline.segment_output import TableOutput
from lakerunner.pipeline.segment_source import TableSource, sample_of
from lakerunner.pipeline.series_sketch import series_sketches
from lakerunner.query.scan.hidden import hidden_predicate
from lakerunner.query.scan.rows.conditions.evaluate import Survivors, Test, matching, overflow_values
from lakerunner.query.scan.rows.conditions.predicate import Ref, leaves
from lakerunner.query.scan.samples.hidden import hidden_mask, hidden_series
from lakerunner.query.scan.samples.series_table import SeriesTable
from lakerunner.runtime.crash import crash_point
from lakerunner.store import keys
from lakerunner.store.config import StoreConfig
from lakerunner.store.encoding import Counts
from lakerunner.store.nanos import SUFFIX, join_nanos
from lakerunner.store.object_store import ObjectStore
from lakerunner.store.segment_writer import segment_of
from lakerunner.store.statistics import StatisticsBuilder

Mask = npt.NDArray[np.bool_]
#: Rows that are in memory at a time.
_ROWS_AT_ONCE = 1 << 16
_SCRATCH_PREFIX = "rewrite-"


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """A segment, and the rows of it that are to go."""

    item_id: uuid.UUID
    segment: Segment
    hidden: tuple[HiddenRows, ...]
    target: StoreConfig
    #: Folder for copies of large segments and for what is written, before it is uploaded.
    scratch: str


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """What is left of the segment; `made` is None if nothing was to go, or nothing is left."""

    item_id: uuid.UUID
    segment: Segment
    hidden: tuple[HiddenRows, ...]
    rows_after: int = 0
    made: Segment | None = None
    #: Key -> SHA-256 of what was written.
    checksums: dict[str, str] = field(default_factory=dict)
    error: LakeError | None = None


def run_task(task: RewriteTask) -> RewriteResult:
    """Run the task. An error concerns this segment's item alone."""
    return run_alone(
        f"rewrite segment {task.segment.segment_id}",
        lambda: _run(task),
        lambda error: RewriteResult(task.item_id, task.segment, task.hidden, error=error),
        release_memory=True,
    )


def _run(task: RewriteTask) -> RewriteResult:
    segment = task.segment
    if not task.hidden:
        return RewriteResult(task.item_id, segment, (), segment.row_count)
    signal = TIER_METRICS if segment.tier_s else signal_named(segment.signal)
    store = open_for_tasks(task.target)
    with scratch_folder(Path(task.scratch), _SCRATCH_PREFIX) as folder, ExitStack() as stack:
        sources = []
        for key in keys.segment_keys(segment):
            sources.append(TableSource(store, key, segment.size_bytes, folder))
            stack.callback(sources[-1].close)
        crash_point("delete_after_read")
        rows, *others = sources
        gone = _gone_series(rows, others[0], task.hidden) if segment.signal == METRICS.name else _gone_rows(
            rows, signal, task.hidden
        )  # fmt: skip
        left = rows.row_count - int(gone.sum())
        if left in (0, rows.row_count):
            return RewriteResult(task.item_id, segment, task.hidden, left)
        made, checksums = _Rewrite(segment, signal, store, folder).write(sources, gone)
        crash_point("delete_after_write")
        return RewriteResult(task.item_id, segment, task.hidden, left, made, checksums)


def _gone_series(samples: TableSource, series: TableSource, hidden: Sequence[HiddenRows]) -> Mask:
    """Which samples are to go."""
    described = pa.concat_tables(list(series.batches(_ROWS_AT_ONCE))) if series.row_count else None
    of_series = [] if described is None else hidden_series(hidden, SeriesTable.of(described))
    found = []
    for batch in samples.batches(_ROWS_AT_ONCE, ["tid", "timestamp"]) if of_series else ():
        times_ms = batch.column("timestamp").cast(pa.int64()).to_numpy()
        found.append(hidden_mask(of_series, batch.column("tid").to_numpy(), times_ms))
    return np.concatenate(found) if found else np.zeros(samples.row_count, np.bool_)


def _gone_rows(rows: TableSource, signal: Signal, hidden: Sequence[HiddenRows]) -> Mask:
    """Which rows are to go. Only the columns that the conditions name are read."""
    predicates = [hidden_predicate(each, signal.time_column) for each in hidden]
    named = {name for predicate in predicates for leaf in leaves(predicate) for name in leaf.ref.names()}
    wanted = named | {name + SUFFIX for name in named} | {OVERFLOW}
    found = []
    for batch in rows.batches(_ROWS_AT_ONCE, [name for name in rows.schema.names if name in wanted]):
        columns, every = _Columns(join_nanos(batch)), np.arange(batch.num_rows)
        mask = np.zeros(batch.num_rows, np.bool_)
        for predicate in predicates:
            mask |= matching(predicate, columns, every)
        found.append(mask)
    return np.concatenate(found) if found else np.zeros(0, np.bool_)


class _Columns:
    """The columns of a batch, as a predicate asks for them."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self._whole: dict[str, pa.Array] = {}

    def tested(self, name: str, rows: npt.NDArray[np.int64], test: Test, survivors: Survivors) -> None:
        """The values are in memory."""

    def has_survivors_only(self, ref: Ref) -> bool:
        return False

    def arrays(self, name: str, rows: npt.NDArray[np.int64]) -> list[pa.Array]:
        found = []
        if name in self._rows.column_names:
            found.append(self._column(name, rows))
        if OVERFLOW in self._rows.column_names and name != OVERFLOW:
            found.append(overflow_values(self._column(OVERFLOW, rows), name))
        return found

    def check(self) -> None: ...

    def cost(self, ref: Ref) -> int:
        return len(ref.names())

    def _column(self, name: str, rows: npt.NDArray[np.int64]) -> pa.Array:
        found = self._whole.get(name)
        if found is None:
            found = self._whole[name] = whole(self._rows.column(name))
        return found if len(rows) == len(found) else found.take(pa.array(rows))


class _Rewrite:
    """Writes what is left of a segment as a new one."""

    def __init__(self, old: Segment, signal: Signal, store: ObjectStore, folder: Path) -> None:
        self._old = old
        self._signal = signal
        self._store = store
        self._folder = folder
        self._statistics = StatisticsBuilder(signal)
        #: The values of a further table's key that its rows must have: those that a row is left of.
        self._left: pa.Array | None = None

    def write(self, sources: Sequence[TableSource], gone: Mask) -> tuple[Segment, dict[str, str]]:
        """The new segment, and the SHA-256 of each of its objects."""
        paths = [self._folder / f"left{number}.parquet" for number in range(len(sources))]
        sizes = [self._write_rows(sources[0], gone, paths[0])]
        for source, description, path in zip(sources[1:], self._signal.tables[1:], paths[1:], strict=True):
            sizes.append(self._write_further(source, description, path))
        statistics = self._statistics.result()
        if statistics.row_count != len(gone) - int(gone.sum()):
            raise Bug(
                f"cannot rewrite segment {self._old.segment_id}: {statistics.row_count} rows were written, "
                f"{len(gone) - int(gone.sum())} are left"
            )
        made = segment_of(
            self._signal,
            statistics,
            segment_id=fresh_id(),
            org_id=self._old.org_id,
            collector=self._old.collector,
            size_bytes=sum(sizes),
            tier_s=self._old.tier_s,
            # Above 0: only segments of ingest are news to live tails.
            level=max(1, self._old.level),
            is_dated=self._old.is_dated,
            rules_version=self._old.rules_version,
        )
        checksums = {}
        for key, path in zip(keys.segment_keys(made), paths, strict=True):
            with path.open("rb") as file:
                checksums[key] = hashlib.file_digest(file, "sha256").hexdigest()
            self._store.put_file(key, path, create_only=True)
        return made, checksums

    def _write_rows(self, source: TableSource, gone: Mask, path: Path) -> int:
        left = len(gone) - int(gone.sum())
        counts = Counts(left, {name: min(left, count) for name, count in source.present().items()})
        output = TableOutput(path, self._signal, self._signal.rows, counts, lambda: sample_of([source]))
        further = self._signal.tables[1:]
        values: list[pa.Array] = []
        at = 0
        try:
            for batch in source.batches(_ROWS_AT_ONCE):
                kept = batch.filter(pa.array(~gone[at : at + batch.num_rows]))
                at += batch.num_rows
                if not kept.num_rows:
                    continue
                self._statistics.add(kept)
                output.add(kept)
                if further:
                    values.append(pc.unique(kept.column(further[0].columns[0].name)))
            if further:
                self._left = pc.unique(pa.concat_arrays(values))
            return output.close()
        finally:
            output.abandon()

    def _write_further(self, source: TableSource, description: Table, path: Path) -> int:
        """The rows of a further table that a row is left of: the series that still have samples."""
        key = description.columns[0].name
        output = TableOutput(
            path, self._signal, description, Counts(source.row_count, source.present()), lambda: sample_of([source])
        )
        try:
            kept = [
                batch.filter(pc.is_in(batch.column(key), value_set=self._left))
                for batch in source.batches(_ROWS_AT_ONCE)
            ]
            rows = pa.concat_tables(kept)
            if SERIES_SKETCH.name in rows.column_names:
                at = rows.column_names.index(SERIES_SKETCH.name)
                rows = rows.set_column(at, rows.schema.field(at), series_sketches(rows))
            output.add(rows)
            return output.close()
        finally:
            output.abandon()
