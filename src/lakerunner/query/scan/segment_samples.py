"""Samples of chosen series out of one samples file: whole columns of the row groups that matter, then runs of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakerunner.query.promql.histogram import Floats, Ints
from lakerunner.query.scan import histograms
from lakerunner.query.scan.opened import OpenedFile
from lakerunner.query.scan.row_groups import RowGroup, Wanted
from lakerunner.query.scan.samples import Samples, offsets_of


def read_samples(
    file: OpenedFile,
    groups: Sequence[RowGroup],
    wanted: Wanted,
    start_ms: int,
    end_ms: int,
    check: Callable[[int], None],
) -> list[Samples]:
    """The samples of each row group, without labels. `check` is told the rows read so far, and raises to stop.

    Apart and not as one, because a single row group's columns are used where Arrow decoded them: the one copy of a
    sample is the one that `merge` makes, into its place.
    """
    parts: list[Samples] = []
    rows = 0
    for group in groups:
        check(rows)
        part = _part(file.read(group), wanted.tids, *_clip(group, start_ms, end_ms))
        if len(part):
            parts.append(part)
            rows += len(part)
    return parts


def _clip(group: RowGroup, start_ms: int, end_ms: int) -> tuple[int | None, int | None]:
    """The ends of the time that cut into the group; None where all of its rows are inside."""
    if group.times_ms is None:
        return start_ms, end_ms
    first, last = group.times_ms
    return (start_ms if first < start_ms else None), (end_ms if last > end_ms else None)


def _part(table: pa.Table, wanted: Ints, start_ms: int | None, end_ms: int | None) -> Samples:
    tids = _ints(table, "tid")
    times_ms = _ints(table, "timestamp")
    begins = np.append(0, np.flatnonzero(tids[1:] != tids[:-1]) + 1) if len(tids) else np.zeros(0, np.int64)
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
    return Samples(
        run_tids,
        [],
        offsets_of(lengths),
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
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
    if array.null_count:
        array = array.fill_null(0)
    numbers: Ints = array.to_numpy()
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
