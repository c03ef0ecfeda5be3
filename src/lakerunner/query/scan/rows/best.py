"""The best rows found so far: the first ones in the order of the answer, up to its limit."""

from __future__ import annotations

import numpy as np

from lakerunner.query.scan.rows.conditions.evaluate import Ints
from lakerunner.query.scan.rows.request import RowScan
from lakerunner.query.scan.rows.row_group.rows import Found

_ROW_BYTES = 24


class BestRows:
    """Rows of equal times are ordered by segment, then by position in the segment."""

    def __init__(self, scan: RowScan) -> None:
        assert scan.limit is not None
        self._limit = scan.limit
        self._sign = -1 if scan.newest_first else 1
        #: The number of each segment in the order of the scan, with its rows.
        self.found: list[tuple[int, Found]] = []
        #: The time of the last row; None while there are fewer rows than the limit.
        self.last_ns: int | None = None

    @property
    def held_bytes(self) -> int:
        return _ROW_BYTES * sum(len(found.rows) for _, found in self.found)

    def is_beyond(self, first_ns: int) -> bool:
        """Whether a later segment cannot add a row, given the first time that its rows may have."""
        return self.last_ns is not None and self._sign * first_ns >= self._sign * self.last_ns

    def add(self, segment: int, found: Found) -> None:
        """Add rows, and drop all rows that are no longer among the best."""
        first = found.among
        if first is not None and first.in_order is not None and len(first.rows) == len(found.rows):
            order = first.in_order[: self._limit]
            self.found.append((segment, found.leading(np.sort(order))))
        else:
            order = np.lexsort((found.rows, self._sign * found.times))[: self._limit]
            self.found.append((segment, found.chosen(np.sort(order))))
        if len(self.found) == 1:
            # Nothing to cut: these are the best of the group.
            self.last_ns = int(found.times[order[-1]]) if len(order) == self._limit else None
        elif sum(len(part.rows) for _, part in self.found) >= self._limit:
            self._cut()
        # After the cut, since most groups keep few rows or none.
        if self.found and self.found[-1][1].group is found.group:
            found.group.settle(self.found[-1][1].rows)

    def without(self, segment: int) -> None:
        """Drop the rows of a segment whose bytes turned out to be bad."""
        self.found = [(number, part) for number, part in self.found if number != segment]
        self.last_ns = None
        if sum(len(part.rows) for _, part in self.found) >= self._limit:
            self._cut()

    def order(self) -> Ints:
        """The indexes of the found rows, in the order of the answer."""
        if not self.found:
            return np.zeros(0, np.int64)
        times = np.concatenate([part.times for _, part in self.found])
        rows = np.concatenate([part.rows for _, part in self.found])
        counts = [len(part.rows) for _, part in self.found]
        segments = np.repeat([segment for segment, _ in self.found], counts)
        groups = np.repeat([part.group.number for _, part in self.found], counts)
        order: Ints = np.lexsort((rows, groups, segments, self._sign * times))
        return order

    def _cut(self) -> None:
        kept = self.order()[: self._limit]
        times = np.concatenate([part.times for _, part in self.found])
        self.last_ns = int(times[kept[-1]])
        chosen = np.zeros(len(times), np.bool_)
        chosen[kept] = True
        left: list[tuple[int, Found]] = []
        at = 0
        for segment, part in self.found:
            places = np.flatnonzero(chosen[at : at + len(part.rows)])
            at += len(part.rows)
            if len(places):
                left.append((segment, part.chosen(places)))
        self.found = left
