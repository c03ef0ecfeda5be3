"""What one Spark task of compaction does: merge the segments of an item into one, and report it.

Nothing that a task writes is visible: the driver's commit makes the new segment live and supersedes its inputs in one
transaction. So a task may die or run twice at any point.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attribute_types import AttributeTypes
from lakerunner.model.errors import BadInput, Bug, LakeError, Missing
from lakerunner.model.ids import fresh_id
from lakerunner.model.segment import Segment, is_dated
from lakerunner.model.signal import Signal, Table
from lakerunner.model.signals import METRICS, TRACES, signal_named
from lakerunner.model.signals.logs import REPEAT
from lakerunner.pipeline.compact.columns import MergedColumns
from lakerunner.pipeline.compact.duplicates import Readings, without_duplicates
from lakerunner.pipeline.compact.merge import Chunk, SortedInput, merged
from lakerunner.pipeline.executor_task import open_for_tasks, run_alone
from lakerunner.pipeline.ordering import take
from lakerunner.pipeline.repeats import times_of_repeated_spans
from lakerunner.pipeline.scratch import scratch_folder
from lakerunner.pipeline.segment_output import TableOutput
from lakerunner.pipeline.segment_source import TableSource, stored_sort_key
from lakerunner.runtime.crash import crash_point
from lakerunner.store import keys
from lakerunner.store.config import StoreConfig
from lakerunner.store.object_store import ObjectStore
from lakerunner.store.segment_writer import segment_of
from lakerunner.store.statistics import StatisticsBuilder, event_times_ns

#: Rows of all inputs together that are in memory, and the least and most of one.
_ROWS_AT_ONCE, _LEAST_ROWS, _MOST_ROWS = 1 << 18, 1 << 11, 1 << 16
_SCRATCH_PREFIX = "merge-"


class UnreadableInput(LakeError):
    """An input cannot be merged, whatever is tried again."""


@dataclass(frozen=True, slots=True)
class CompactTask:
    """The inputs of one work item, in the order in which queries read them."""

    item_id: uuid.UUID
    signal: str
    inputs: tuple[Segment, ...]
    store: StoreConfig
    #: Folder for copies of inputs and for the output, before it is uploaded.
    scratch: str
    types: AttributeTypes = field(default_factory=AttributeTypes)
    #: For each input, the earlier inputs that hold rows of the same raw object.
    readings: tuple[tuple[int, ...], ...] = ()
    #: Whether equal rows are stored once, whatever their source.
    deduplicates: bool = False


@dataclass(frozen=True, slots=True)
class CompactResult:
    """The segment made; none if there was one input only, which then is known to be readable."""

    item_id: uuid.UUID
    segment: Segment | None = None
    #: Rows that were removed as duplicates.
    removed: int = 0
    #: First and last time of rows that queries saw before and do not see any more; None if there are none.
    unseen_ns: tuple[int, int] | None = None
    error: LakeError | None = None


def run_task(task: CompactTask) -> CompactResult:
    """Run the task. An error is the result's `error`: it concerns this item alone."""
    return run_alone(
        "compact the item",
        lambda: _run(task),
        lambda error: CompactResult(task.item_id, error=error),
        release_memory=True,
    )


def _run(task: CompactTask) -> CompactResult:
    if not task.inputs:
        return CompactResult(task.item_id)
    signal = signal_named(task.signal)
    store = open_for_tasks(task.store)
    with scratch_folder(Path(task.scratch), _SCRATCH_PREFIX) as folder:
        merge = _Merge(task, signal, store, folder)
        sizes = [merge.write(number) for number in range(len(signal.tables))]
        statistics = merge.statistics.result()
        before = sum(segment.row_count for segment in task.inputs)
        if statistics.row_count + merge.removed != before:
            raise Bug(
                f"cannot compact item {task.item_id}: its inputs have {before} rows,"
                f" {statistics.row_count} were written and {merge.removed} removed"
            )
        crash_point("compact_after_merge")
        if len(task.inputs) == 1:
            return CompactResult(task.item_id)
        first = task.inputs[0]
        segment = segment_of(
            signal,
            statistics,
            segment_id=fresh_id(),
            org_id=first.org_id,
            collector=first.collector,
            size_bytes=sum(sizes),
            level=1 + max(each.level for each in task.inputs),
            is_dated=is_dated(statistics.time_range, time.time_ns()),
            rules_version=first.rules_version,
        )
        for key, path in zip(keys.segment_keys(segment), merge.paths, strict=True):
            store.put_file(key, path, create_only=True)
            crash_point("compact_after_upload")
    return CompactResult(task.item_id, segment, merge.removed, merge.unseen_ns)


class _Merge:
    def __init__(self, task: CompactTask, signal: Signal, store: ObjectStore, folder: Path) -> None:
        self._task = task
        self._signal = signal
        self._store = store
        self._folder = folder
        self.statistics = StatisticsBuilder(signal)
        self.removed = 0
        self.unseen_ns: tuple[int, int] | None = None
        self.paths = [folder / f"merged{number}.parquet" for number in range(len(signal.tables))]

    def write(self, number: int) -> int:
        """Merge one table of all inputs into a file; return its size in bytes."""
        description = self._signal.tables[number]
        with ExitStack() as stack:
            sources = [self._open(stack, segment, number) for segment in self._task.inputs]
            crash_point("compact_after_fetch")
            with _reading():
                columns = MergedColumns(sources, description, self._task.types)
            output = TableOutput(self.paths[number], self._signal, description, columns.counts, columns.sample)
            stack.callback(output.abandon)
            for chunk in self._chunks(sources, columns, description):
                rows = self._counted(chunk) if description is self._signal.rows else _first_of_each(chunk, description)
                output.add(rows)
            return output.close()

    def _open(self, stack: ExitStack, segment: Segment, number: int) -> TableSource:
        with _reading():
            source = TableSource(
                self._store, keys.segment_keys(segment)[number], segment.size_bytes, self._folder
            )  # fmt: skip
        stack.callback(source.close)
        if number == 0 and source.row_count != segment.row_count:
            raise UnreadableInput(
                f"cannot merge {source.key}: it has {source.row_count} rows, the index says {segment.row_count}"
            )
        return source

    def _chunks(
        self, sources: Sequence[TableSource], columns: MergedColumns, description: Table
    ) -> Iterator[Chunk]:  # fmt: skip
        at_once = min(_MOST_ROWS, max(_LEAST_ROWS, _ROWS_AT_ONCE // len(sources)))
        sort_key = stored_sort_key(description, columns.schema)
        inputs = [SortedInput(columns.batches(each, at_once), each.row_count, sort_key, at_once) for each in sources]
        chunks = merged(inputs, sort_key)
        while True:
            with _reading():
                chunk = next(chunks, None)
            if chunk is None:
                return
            yield chunk

    def _counted(self, chunk: Chunk) -> pa.Table:
        before, seen = chunk.rows, _seen(chunk.rows)
        readings: Readings = self._task.readings
        if self._task.deduplicates or any(readings):
            chunk = without_duplicates(chunk, self._signal, readings, all_once=self._task.deduplicates)
            self.removed += before.num_rows - chunk.rows.num_rows
        # Repeats stay marked as ingest marked them: equal lines of two inputs stay two entries of LogQL.
        rows = chunk.rows
        if _seen(rows) != seen:
            # Rows of this chunk that queries saw are gone.
            self._note_unseen(event_times_ns(self._signal, before))
        if self._signal is TRACES and any(each.rules_version for each in self._task.inputs):
            # TraceQL counts a span once that lies in two inputs. Rules have counted it twice.
            twice = times_of_repeated_spans(rows, event_times_ns(self._signal, rows))
            if len(twice):
                self._note_unseen(twice)
        if self._signal is METRICS and any(each.rules_version for each in self._task.inputs):
            # PromQL reads one sample per series and time. Rules have counted all of them.
            tids, times = rows.column("tid").to_numpy(), event_times_ns(self._signal, rows)
            again = (tids[1:] == tids[:-1]) & (times[1:] == times[:-1])
            if again.any():
                self._note_unseen(times[1:][again])
        self.statistics.add(rows)
        return rows

    def _note_unseen(self, times: npt.NDArray[np.int64]) -> None:
        first, last = int(times.min()), int(times.max())
        if self.unseen_ns is not None:
            first, last = min(first, self.unseen_ns[0]), max(last, self.unseen_ns[1])
        self.unseen_ns = first, last


def _seen(rows: pa.Table) -> int:
    """How many rows queries see."""
    return int(rows.column(REPEAT).null_count) if REPEAT in rows.column_names else int(rows.num_rows)


def _first_of_each(chunk: Chunk, description: Table) -> pa.Table:
    """Keep the first of the rows with an equal sort key: several inputs describe the same series."""
    rows = chunk.rows
    is_new = np.zeros(max(0, rows.num_rows - 1), np.bool_)
    for name in description.sort_key:
        column = rows.column(name)
        is_new |= pc.not_equal(column.slice(1), column.slice(0, len(is_new))).to_numpy()
    return rows if is_new.all() else take(rows, np.flatnonzero(np.insert(is_new, 0, True)))


@contextmanager
def _reading() -> Iterator[None]:
    """What goes wrong while an input is read is the input's fault, unless the store is down."""
    try:
        yield
    except (Missing, BadInput) as error:
        raise UnreadableInput(error.message) from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UnreadableInput(f"cannot read an input: {type(error).__name__}: {error}") from None
