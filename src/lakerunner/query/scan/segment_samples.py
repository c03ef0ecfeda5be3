"""Samples of chosen series out of one samples file: whole columns of the row groups that matter, then runs of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.query.promql.histogram import Floats, Ints
from lakerunner.query.promql.histogram_column import HistogramColumn
from lakerunner.query.scan import histograms
from lakerunner.query.scan.row_groups import RowGroup, Wanted
from lakerunner.query.scan.samples import Samples, offsets_of

#: Row groups read at a time: between two such reads a scan looks whether it is still wanted.
_GROUPS_AT_ONCE = 8
_SCALARS = ("tid", "timestamp", "value", "start_timestamp")


@dataclass(frozen=True, slots=True)
class _Part:
    """What some row groups hold of the wanted series."""

    run_tids: Ints
    run_lengths: Ints
    times_ms: Ints
    values: Floats
    starts_ms: Ints | None
    column: HistogramColumn | None
    sumless: npt.NDArray[np.bool_] | None


def read_samples(
    file: pq.ParquetFile,
    groups: Sequence[RowGroup],
    wanted: Wanted,
    start_ms: int,
    end_ms: int,
    check: Callable[[int], None],
) -> Samples:
    """The samples, without labels. `check` is told the rows read so far, and raises to stop."""
    parts: list[_Part] = []
    rows = 0
    for at in range(0, len(groups), _GROUPS_AT_ONCE):
        check(rows)
        some = groups[at : at + _GROUPS_AT_ONCE]
        part = _part(_table(file, some), wanted.tids, *_clip(some, start_ms, end_ms))
        if len(part.times_ms):
            parts.append(part)
            rows += len(part.times_ms)
    return _joined(parts) if parts else Samples.none()


def _table(file: pq.ParquetFile, groups: Sequence[RowGroup]) -> pa.Table:
    absent = frozenset.intersection(*(group.null_columns for group in groups))
    wanted = [name for name in _SCALARS if name not in absent]
    if "h_schema" not in absent:
        wanted += histograms.COLUMNS
    return file.read_row_groups([group.number for group in groups], columns=wanted, use_threads=False)


def _clip(groups: Sequence[RowGroup], start_ms: int, end_ms: int) -> tuple[int | None, int | None]:
    """The ends of the time that cut into these groups; None where all of their rows are inside."""
    if any(group.times_ms is None for group in groups):
        return start_ms, end_ms
    first = min(group.times_ms[0] for group in groups if group.times_ms)
    last = max(group.times_ms[1] for group in groups if group.times_ms)
    return (start_ms if first < start_ms else None), (end_ms if last > end_ms else None)


def _part(table: pa.Table, wanted: Ints, start_ms: int | None, end_ms: int | None) -> _Part:
    tids = _ints(table, "tid")
    times_ms = _ints(table, "timestamp")
    begins = np.flatnonzero(np.concatenate([[True], tids[1:] != tids[:-1]])) if len(tids) else np.zeros(0, np.int64)
    run_tids = tids[begins]
    lengths = np.diff(np.append(begins, len(tids)))
    keep = _contained(run_tids, wanted)
    mask = None
    if start_ms is not None or end_ms is not None or not keep.all():
        mask = np.repeat(keep, lengths)
        if start_ms is not None:
            mask &= times_ms >= start_ms
        if end_ms is not None:
            mask &= times_ms <= end_ms
        lengths = np.add.reduceat(mask, begins, dtype=np.int64) if len(begins) else lengths
        run_tids, lengths = run_tids[lengths > 0], lengths[lengths > 0]
    column, sumless = None, None
    if "h_schema" in table.column_names:
        chosen = table if mask is None else table.filter(pa.array(mask))
        column, sumless = histograms.column_of(chosen)
    return _Part(
        run_tids,
        lengths,
        times_ms if mask is None else times_ms[mask],
        _values(table, mask),
        _masked(_ints(table, "start_timestamp"), mask) if "start_timestamp" in table.column_names else None,
        column if column is not None and len(column) else None,
        sumless if sumless is not None and sumless.any() else None,
    )


def _contained(tids: Ints, wanted: Ints) -> npt.NDArray[np.bool_]:
    if not len(wanted):
        return np.zeros(len(tids), np.bool_)
    at = np.minimum(np.searchsorted(wanted, tids), len(wanted) - 1)
    found: npt.NDArray[np.bool_] = wanted[at] == tids
    return found


def _ints(table: pa.Table, name: str) -> Ints:
    """Numbers or times as integers, 0 where null."""
    column = table.column(name)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    if column.null_count:
        column = column.fill_null(0)
    numbers: Ints = column.to_numpy()
    return numbers


def _values(table: pa.Table, mask: npt.NDArray[np.bool_] | None) -> Floats:
    if "value" not in table.column_names:
        return np.zeros(table.num_rows if mask is None else int(mask.sum()))
    column = table.column("value")
    # fill_null and not to_numpy's own NaN: the bits of a stale marker must stay as they are.
    column = column.fill_null(0.0) if column.null_count else column
    return _masked(column.to_numpy(), mask)


def _masked(array: npt.NDArray[Any], mask: npt.NDArray[np.bool_] | None) -> npt.NDArray[Any]:
    return array if mask is None else array[mask]


def _joined(parts: list[_Part]) -> Samples:
    """All parts as one. A series whose rows cross from one part into the next is one series."""
    run_tids = np.concatenate([part.run_tids for part in parts])
    lengths = np.concatenate([part.run_lengths for part in parts])
    begins = np.flatnonzero(np.concatenate([[True], run_tids[1:] != run_tids[:-1]]))
    sizes = [len(part.times_ms) for part in parts]
    starts = None
    if any(part.starts_ms is not None for part in parts):
        starts = np.concatenate(
            [np.zeros(len(part.times_ms), np.int64) if part.starts_ms is None else part.starts_ms for part in parts]
        )
    column, sumless = None, None
    if any(part.column is not None for part in parts):
        column = histograms.concatenated([part.column for part in parts], sizes)
        if any(part.sumless is not None for part in parts):
            sumless = np.concatenate(
                [np.zeros(len(part.column), np.bool_) if part.sumless is None else part.sumless
                 for part in parts if part.column is not None]
            )  # fmt: skip
    return Samples(
        run_tids[begins],
        [],
        offsets_of(np.add.reduceat(lengths, begins)),
        _one([part.times_ms for part in parts]),
        _one([part.values for part in parts]),
        starts,
        column,
        sumless,
    )


def _one(arrays: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
