"""Cuts the time of a segment whose rows would take too much memory at once.

A segment is sorted by service, so an ordered scan must gather its rows before it can sort them by time. A slice of its
time needs only the pages whose bounds overlap the slice; a page at the edge of two slices is read for both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from lakerunner.query.scan.rows.request import RowScan, RowSegment

#: Bytes of rows that an ordered scan gathers at once, of all segments that overlap in time, and at least of each.
_ALL_BYTES, _LEAST_BYTES = 256 << 20, 8 << 20
#: Slices that a time is cut into at once. One that is still too large is cut again.
_MOST_SLICES = 64
#: Rows are not spread evenly, and a slice that is too large was read in vain.
_MARGIN = 1.3


@dataclass(frozen=True, slots=True)
class TooLarge:
    """The rows of a segment do not fit into memory at once. Cut into `slices`, each slice probably does."""

    slices: int

    @classmethod
    def of(cls, held_bytes: int, share: float, most_bytes: int) -> TooLarge:
        """Estimate the number of slices from the bytes that the rows of a share of the segment take."""
        return cls(min(max(ceil(_MARGIN * held_bytes / share / most_bytes), 2), _MOST_SLICES))


def bytes_at_once(segments: Sequence[RowSegment]) -> int:
    """How many bytes of rows a scan may gather of each segment."""
    starts = np.sort([each.start_ns for each in segments])
    ends = np.sort([each.end_ns for each in segments])
    # At the start of each segment: those that began, without those that ended.
    overlapping = np.arange(1, len(starts) + 1) - np.searchsorted(ends, starts, side="right")
    return max(_ALL_BYTES // max(int(overlapping.max(initial=1)), 1), _LEAST_BYTES)


def can_be_cut(scan: RowScan, segment: RowSegment) -> bool:
    start_ns, end_ns = _times(scan, segment)
    return end_ns - start_ns > 1


def slices_of(scan: RowScan, segment: RowSegment, count: int) -> Iterator[RowScan]:
    """The scan of a segment in slices of its time, in the order of the answer."""
    start_ns, end_ns = _times(scan, segment)
    count = min(count, end_ns - start_ns)
    edges = [start_ns + (end_ns - start_ns) * number // count for number in range(count + 1)]
    numbers = range(count)
    for number in reversed(numbers) if scan.newest_first else numbers:
        yield replace(scan, start_ns=edges[number], end_ns=edges[number + 1])


def _times(scan: RowScan, segment: RowSegment) -> tuple[int, int]:
    return max(scan.start_ns, segment.start_ns), min(scan.end_ns, segment.end_ns)
