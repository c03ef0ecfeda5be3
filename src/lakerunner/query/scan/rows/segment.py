"""Scans one segment: finds the matching rows of its row groups, those that an answer needs first before others."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from lakerunner.query.scan.rows.conditions.evaluate import Ints
from lakerunner.query.scan.rows.conditions.predicate import Column, Compare, Op, Time
from lakerunner.query.scan.rows.opened import OpenedSegment
from lakerunner.query.scan.rows.request import RowScan, RowTally, Spend
from lakerunner.query.scan.rows.row_group.group import GroupReader
from lakerunner.query.scan.rows.row_group.match_rows import Undecided, matching_rows, undecided
from lakerunner.query.scan.rows.row_group.rows import FirstRows, Found, GroupRows

#: Up to this limit, the first rows of each row group are remembered.
_FIRST_ROWS = 512


def find_rows(
    opened: OpenedSegment, scan: RowScan, last_ns: Callable[[], int | None], spend: Spend, tally: RowTally
) -> Iterator[Found]:
    """The matching rows of each row group. Groups that come first in the order of the answer are read first.

    `last_ns` is called before each group, and returns the time after which rows are no longer wanted.
    """
    time, condition = scan.signal.time_column, opened.opener.condition_of(scan, opened.segment)
    times = () if scan.covers(opened.segment) else scan.times
    for number in _in_order(opened, scan, spend, tally):
        # A new reader per group, so that its decoded pages are freed with it.
        group = GroupReader(opened, number, spend, tally)
        spend(0)
        tally.groups += 1
        left = undecided(group, _until(scan, times, last_ns()), condition, tally)
        if left.is_nothing:
            continue
        known = first = _known_first(group, scan, left)
        if first is None:
            rows = matching_rows(group, left, tally)
            if not len(rows):
                continue
            found = GroupRows(group, rows, left.exact).batch((time,))
            first = _first(group, scan, left, rows, found.column(0).view(pa.int64()).to_numpy())
        tally.rows_found += first.count
        # Of the first rows alone, nothing may be kept as that of all rows of the condition.
        yield Found(group, first.rows, left.exact if first.are_all else None, times=first.times, among=known)


def _known_first(group: GroupReader, scan: RowScan, left: Undecided) -> FirstRows | None:
    """The first rows of the condition, if all times of the group are wanted, and an earlier scan has found them."""
    if scan.limit is None or scan.limit > _FIRST_ROWS or left.times or left.is_nothing:
        return None
    found: FirstRows | None = group.kept_first(left.condition, newest=scan.newest_first)
    return found


def _first(group: GroupReader, scan: RowScan, left: Undecided, rows: Ints, times: Ints) -> FirstRows:
    """The rows that may be in the answer. If the limit is small, those that any small limit needs are remembered."""
    found = FirstRows(len(rows), rows, times)
    if scan.limit is None or scan.limit > _FIRST_ROWS or left.times or len(rows) <= _FIRST_ROWS:
        return found
    best = np.lexsort((rows, -times if scan.newest_first else times))[:_FIRST_ROWS]
    order = np.sort(best)
    name = "first", left.condition.number, scan.newest_first
    found = FirstRows(len(rows), rows[order], times[order], name, np.searchsorted(order, best))
    group.keep_first(left.condition, found, newest=scan.newest_first)
    return found


def _in_order(opened: OpenedSegment, scan: RowScan, spend: Spend, tally: RowTally) -> list[int]:
    """The row groups, those with the first rows in the order of the answer first."""
    kept, key = opened.footer.kept, ("order", scan.newest_first)
    found: list[int] | None = kept.get(key)
    if found is None:
        time = scan.signal.time_column
        first_times = [
            (_first_time(GroupReader(opened, number, spend, tally), time, newest=scan.newest_first), number)
            for number in range(opened.footer.metadata.num_row_groups)
        ]
        found = kept[key] = [number for _, number in sorted(first_times)]
    return found


def _until(scan: RowScan, times: tuple[Compare, ...], last_ns: int | None) -> tuple[Compare, ...]:
    if last_ns is None:
        return times
    op = Op.GREATER_EQUAL if scan.newest_first else Op.LESS_EQUAL
    return (Compare(Column(scan.signal.time_column), op, Time(last_ns)), *times)


def _first_time(group: GroupReader, time: str, *, newest: bool) -> int:
    """The sort key of a group: its first time in the order of the answer. A group without bounds goes first."""
    times = group.times(time)
    if times is None:
        return -(1 << 70)
    return -times[1] if newest else times[0]
