"""What one Spark task of delete does: read a segment, leave the matching rows out, write the rest, and report.

Nothing that a task writes is visible: the driver's commit swaps the segments. So a task may die or run twice.
"""

from __future__ import annotations

import hashlib
import traceback
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakerunner.formats.attributes import OVERFLOW
from lakerunner.model.errors import Bug, LakeError, LimitHit
from lakerunner.model.hidden import HiddenRows
from lakerunner.model.ids import fresh_id
from lakerunner.model.segment import Segment
from lakerunner.model.signal import Signal
from lakerunner.model.signals import METRICS, signal_named
from lakerunner.model.signals.tiers import TIER_METRICS
from lakerunner.query.scan.hidden import hidden_predicate
from lakerunner.query.scan.rows.evaluate import matching, overflow_values
from lakerunner.query.scan.rows.predicate import Ref
from lakerunner.query.scan.samples.hidden import hidden_mask, hidden_series
from lakerunner.query.scan.samples.series_table import SeriesTable
from lakerunner.runtime.crash import crash_point
from lakerunner.store import keys
from lakerunner.store.config import StoreConfig
from lakerunner.store.nanos import join_nanos
from lakerunner.store.object_store import ObjectStore
from lakerunner.store.open import open_store
from lakerunner.store.segment_writer import describe, encode_tables, segment_of
from lakerunner.store.table_writer import FRESH_LEVEL, SETTLED_LEVEL

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """A segment, and the rows of it that are to go."""

    item_id: uuid.UUID
    segment: Segment
    hidden: tuple[HiddenRows, ...]
    target: StoreConfig


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
    try:
        return _run(task)
    except LakeError as error:
        reason: LakeError = error
    except MemoryError:
        reason = LimitHit(f"cannot rewrite segment {task.segment.segment_id}: the task is out of memory")
    except Exception as error:  # noqa: BLE001  an error of ours in one segment must not end the job of all
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        message = f"cannot rewrite segment {task.segment.segment_id}: {type(error).__name__}: {error}"
        reason = Bug(message, where=where)
    return RewriteResult(task.item_id, task.segment, task.hidden, error=reason)


def _run(task: RewriteTask) -> RewriteResult:
    segment = task.segment
    if not task.hidden:
        return RewriteResult(task.item_id, segment, (), segment.row_count)
    signal = TIER_METRICS if segment.tier_s else signal_named(segment.signal)
    store = _store(task.target)
    rows, *others = [_table(store, key) for key in keys.segment_keys(segment)]
    crash_point("delete_after_read")
    gone = _gone_series(rows, others[0], task.hidden) if segment.signal == METRICS.name else _gone_rows(
        join_nanos(rows), signal, task.hidden
    )  # fmt: skip
    if not gone.any():
        return RewriteResult(task.item_id, segment, task.hidden, rows.num_rows)
    left = rows.filter(pa.array(~gone))
    if not left.num_rows:
        return RewriteResult(task.item_id, segment, task.hidden)
    tables = {signal.rows.suffix: join_nanos(left)}
    for description, table in zip(signal.tables[1:], others, strict=True):
        key = description.columns[0].name
        still = pc.is_in(table.column(key), value_set=pc.unique(left.column(key)))
        tables[description.suffix] = join_nanos(table.filter(still))
    made, checksums = _write(store, signal, segment, tables)
    crash_point("delete_after_write")
    return RewriteResult(task.item_id, segment, task.hidden, left.num_rows, made, checksums)


def _table(store: ObjectStore, key: str) -> pa.Table:
    """The table as it is stored: in order, with the file's own metadata."""
    with pq.ParquetFile(pa.BufferReader(store.get(key)), page_checksum_verification=True) as file:
        return file.read(use_threads=False)


def _gone_series(samples: pa.Table, series: pa.Table, hidden: Sequence[HiddenRows]) -> Mask:
    tids = samples.column("tid").to_numpy()
    times_ms = samples.column("timestamp").cast(pa.int64()).to_numpy()
    return hidden_mask(hidden_series(hidden, SeriesTable.of(series)), tids, times_ms)


def _gone_rows(rows: pa.Table, signal: Signal, hidden: Sequence[HiddenRows]) -> Mask:
    columns = _Columns(rows)
    every = np.arange(rows.num_rows)
    found = np.zeros(rows.num_rows, np.bool_)
    for each in hidden:
        found |= matching(hidden_predicate(each, signal.time_column), columns, every)
    return found


class _Columns:
    """The columns of a whole segment, as a predicate asks for them."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self._whole: dict[str, pa.Array] = {}

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
        whole = self._whole.get(name)
        if whole is None:
            column = self._rows.column(name).combine_chunks()
            whole = self._whole[name] = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        return whole if len(rows) == len(whole) else whole.take(pa.array(rows))


def _write(
    store: ObjectStore, signal: Signal, old: Segment, tables: dict[str, pa.Table]
) -> tuple[Segment, dict[str, str]]:  # fmt: skip
    described = describe(signal, tables[signal.rows.suffix])
    files = encode_tables(signal, tables, SETTLED_LEVEL if old.level or old.tier_s else FRESH_LEVEL)
    made = segment_of(
        signal,
        described,
        segment_id=fresh_id(),
        org_id=old.org_id,
        collector=old.collector,
        size_bytes=sum(file.size for file in files),
        tier_s=old.tier_s,
        level=old.level,
        is_dated=old.is_dated,
        rules_version=old.rules_version,
    )
    checksums = {}
    for key, file in zip(keys.segment_keys(made), files, strict=True):
        body = memoryview(file)
        store.put(key, body, create_only=True)
        checksums[key] = hashlib.sha256(body).hexdigest()
    return made, checksums


@lru_cache(maxsize=8)
def _store(config: StoreConfig) -> ObjectStore:
    return open_store(config)
