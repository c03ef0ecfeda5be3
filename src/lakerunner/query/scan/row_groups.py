"""Which row groups of a samples file can hold given series and times, from the statistics in its footer."""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from lakerunner.model.errors import Unavailable
from lakerunner.query.promql.histogram import Ints
from lakerunner.query.scan.histograms import COLUMNS as HISTOGRAM_COLUMNS


@dataclass(frozen=True, slots=True)
class RowGroup:
    """What the footer says of one row group. A bound that it does not tell is None."""

    number: int
    rows: int
    names: tuple[str, str] | None
    tids: tuple[int, int] | None
    times_ms: tuple[int, int] | None
    #: Columns that are null in all of its rows: not read.
    null_columns: frozenset[str]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The series to read: by name, sorted ids; and all ids, sorted."""

    by_name: Mapping[str, Ints]
    names: list[str]
    tids: Ints

    @classmethod
    def of(cls, names: list[str], tids: Ints) -> Wanted:
        """From a name and an id for each series."""
        by_name: dict[str, list[int]] = {}
        for name, tid in zip(names, tids.tolist(), strict=True):
            by_name.setdefault(name, []).append(tid)
        sorted_ids = {name: np.sort(np.array(ids, np.int64)) for name, ids in by_name.items()}
        return cls(sorted_ids, sorted(by_name), np.sort(tids))


def row_groups(metadata: pq.FileMetaData) -> list[RowGroup]:
    names = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    leaves = {name: _leaf(name, names) for name in ("metric_name", "tid", "timestamp")}
    optional = {name: _leaf(name, names) for name in ("value", "start_timestamp", *HISTOGRAM_COLUMNS)}
    if None in leaves.values():
        raise Unavailable("cannot read a samples file: it lacks a column that every one has")
    return [_row_group(metadata.row_group(i), i, leaves, optional) for i in range(metadata.num_row_groups)]


def choose(groups: list[RowGroup], wanted: Wanted, start_ms: int, end_ms: int) -> list[RowGroup]:
    """The row groups that may hold a sample of a wanted series in the time, both ends included."""
    return [group for group in groups if _in_time(group, start_ms, end_ms) and _holds(group, wanted)]


def _in_time(group: RowGroup, start_ms: int, end_ms: int) -> bool:
    return group.times_ms is None or (group.times_ms[0] <= end_ms and start_ms <= group.times_ms[1])


def _holds(group: RowGroup, wanted: Wanted) -> bool:
    if group.names is None:
        return True
    first, last = group.names
    at = bisect.bisect_left(wanted.names, first)
    if at == len(wanted.names) or wanted.names[at] > last:
        return False
    if first != last or group.tids is None:
        return True
    tids = wanted.by_name[first]
    nearest = int(np.searchsorted(tids, group.tids[0]))
    return nearest < len(tids) and bool(tids[nearest] <= group.tids[1])


def _row_group(group: Any, number: int, leaves: Mapping[str, Any], optional: Mapping[str, Any]) -> RowGroup:
    def bounds(name: str) -> tuple[Any, Any] | None:
        statistics = group.column(leaves[name]).statistics
        return (statistics.min, statistics.max) if statistics is not None and statistics.has_min_max else None

    times = bounds("timestamp")
    return RowGroup(
        number,
        group.num_rows,
        bounds("metric_name"),
        bounds("tid"),
        None if times is None else (_ms(times[0]), _ms(times[1])),
        frozenset(name for name, leaf in optional.items() if leaf is None or _all_null(group, leaf)),
    )


def _all_null(group: Any, leaf: int) -> bool:
    statistics = group.column(leaf).statistics
    return bool(statistics is not None and statistics.has_null_count and statistics.null_count == group.num_rows)


def _leaf(name: str, names: Mapping[str, int]) -> int | None:
    """The number of a column; of a list, None unless its first leaf can tell."""
    return names.get(name)


def _ms(moment: Any) -> int:
    # Whole microseconds of a datetime are exact; its float timestamp is not.
    import datetime as dt

    moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
    return int((moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1))
