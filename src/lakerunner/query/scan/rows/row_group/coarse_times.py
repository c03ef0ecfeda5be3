"""Times without their nanoseconds, where these cannot change in which interval a time lies.

A time is stored in two columns: microseconds, and the nanoseconds beyond them. Counts by intervals need the second
one only if a time lies in the same microsecond as the edge of an interval.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

Ints = npt.NDArray[np.int64]

_NS, _US = pa.timestamp("ns", "UTC"), pa.timestamp("us", "UTC")
_NS_PER_US = 1_000


def coarse_times(whole: pa.Array, edges: Ints) -> pa.Array | None:
    """Times at the beginning of their microseconds, all in the same intervals (edges[j], edges[j + 1]] as before.

    `edges` are nanoseconds and ascend. None: the nanoseconds of a time may matter, or it is not in microseconds.
    """
    if whole.null_count or whole.type != _US:
        return None
    times = np.empty(len(whole), np.int64)
    if not _begin_of_each(whole.view(pa.int64()).to_numpy(), edges // _NS_PER_US, times):
        return None
    return pa.array(times).view(_NS)


@njit(cache=True, nogil=True)
def _begin_of_each(microseconds, edges, out):  # type: ignore[no-untyped-def]
    """Writes nanoseconds. False if a time is in the same microsecond as an edge."""
    last, at = len(edges) - 1, 0
    for i in range(len(microseconds)):
        t = microseconds[i]
        out[i] = t * _NS_PER_US
        if last < 0 or t < edges[0] or t > edges[last]:
            continue
        # Neighbours are mostly between the same edges, so that the search is rarely needed.
        if edges[at] > t or (at < last and edges[at + 1] <= t):
            low, high = 0, last + 1
            while high - low > 1:
                middle = (low + high) >> 1
                if edges[middle] <= t:
                    low = middle
                else:
                    high = middle
            at = low
        if edges[at] == t:
            return False
    return True


def warm() -> None:
    # Arrays of Arrow are read-only.
    stored = pa.array([0], _US)
    coarse_times(stored, np.array([-1, 10**9]))
