"""Chooses the row groups of a samples file that may hold given series and times, by the statistics in its footer."""

from __future__ import annotations

import bisect
import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from lakerunner.model.errors import Unavailable
from lakerunner.query.scan.samples.histograms import COLUMNS as HISTOGRAM_COLUMNS
from lakerunner.query.scan.samples.rollups import AGGREGATED, columns_of
from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.query.series.reading import Need

_SCALARS = ("tid", "timestamp", "value", "start_timestamp")
#: Not null if the sample is a histogram. It represents all columns of a histogram.
_HISTOGRAM = "h_schema"


@dataclass(frozen=True, slots=True)
class RowGroup:
    """The footer's statistics of one row group. Unknown bounds are None."""

    number: int
    rows: int
    names: tuple[str, str] | None
    tids: tuple[int, int] | None
    times_ms: tuple[int, int] | None
    #: Columns that are null in all rows, and need not be read.
    null_columns: frozenset[str]
    #: The smallest and largest schema of histograms. Those with custom bounds have the smallest of all.
    schemas: tuple[int, int] | None = None

    def columns(self, need: Need | None = None) -> list[str]:
        """The columns to read for samples; with a need, those of a tier that it asks for too."""
        if need is Need.SKETCH:
            return ["tid", "timestamp", *columns_of(need)]
        unread = {*self.null_columns, *(("start_timestamp",) if need in AGGREGATED else ())}
        names = [name for name in _SCALARS if name not in unread]
        names += [] if need is None else columns_of(need)
        return names if _HISTOGRAM in self.null_columns else [*names, *HISTOGRAM_COLUMNS]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The series to read: sorted ids by name, and all ids, sorted."""

    by_name: Mapping[str, Ints]
    names: list[str]
    tids: Ints

    @classmethod
    def of(cls, codes: npt.NDArray[np.int32], names: Sequence[str], tids: Ints) -> Wanted:
        """From the name of each series, as a code of `names`, and its id."""
        if not len(tids):
            return cls({}, [], tids)
        order = np.lexsort((tids, codes))
        distinct, begins = np.unique(codes[order], return_index=True)
        parts = np.split(tids[order], begins[1:])
        by_name = {names[code]: part for code, part in zip(distinct.tolist(), parts, strict=True)}
        return cls(by_name, sorted(by_name), np.sort(tids))


def row_groups(metadata: pq.FileMetaData) -> list[RowGroup]:
    names = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    leaves = {name: names.get(name) for name in ("metric_name", "tid", "timestamp")}
    optional = {name: names.get(name) for name in ("value", "start_timestamp", _HISTOGRAM)}
    if None in leaves.values():
        raise Unavailable("cannot read a samples file: it lacks the column metric_name, tid or timestamp")
    return [_row_group(metadata.row_group(i), i, leaves, optional) for i in range(metadata.num_row_groups)]


def choose(groups: list[RowGroup], wanted: Wanted, start_ms: int, end_ms: int) -> list[RowGroup]:
    """The row groups that may hold a sample of a wanted series in the time range, both ends included."""
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
    def bounds(leaf: int) -> tuple[Any, Any] | None:
        statistics = group.column(leaf).statistics
        return (statistics.min, statistics.max) if statistics is not None and statistics.has_min_max else None

    times = bounds(leaves["timestamp"])
    schema = optional[_HISTOGRAM]
    return RowGroup(
        number,
        group.num_rows,
        bounds(leaves["metric_name"]),
        bounds(leaves["tid"]),
        None if times is None else (_ms(times[0]), _ms(times[1])),
        frozenset(name for name, leaf in optional.items() if leaf is None or _all_null(group, leaf)),
        None if schema is None else bounds(schema),
    )


def _all_null(group: Any, leaf: int) -> bool:
    statistics = group.column(leaf).statistics
    return bool(statistics is not None and statistics.has_null_count and statistics.null_count == group.num_rows)


def _ms(moment: Any) -> int:
    # Integer arithmetic: the float of `timestamp()` is not exact.
    moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
    return int((moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1))
