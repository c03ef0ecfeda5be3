"""The meaning of samples, as Prometheus defines it: stale markers, compensated sums, restarts of counters.

Compiled, because queries and rollups must do the same arithmetic on every sample.
"""

from __future__ import annotations

import math

from numba import njit

#: The stale marker, which ends a series: a NaN with this bit pattern, which no computation yields.
STALE_BITS = 0x7FF0000000000002


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def neumaier(term, total, error):  # type: ignore[no-untyped-def]
    """One step of a compensated sum: `error` accumulates what rounding loses."""
    new = total + term
    if math.isinf(new):
        return new, 0.0
    if abs(total) >= abs(term):
        return new, error + ((total - new) + term)
    return new, error + ((term - new) + total)


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def is_start_reset(prev_start, prev_time, start, time):  # type: ignore[no-untyped-def]
    """Whether the start timestamp shows that the counter restarted after the previous sample.

    A start equal to the previous sample's time marks a delta sample, unless the previous sample has no known start:
    then the series is cumulative, and its true start is unknown.
    """
    if start == 0 or start >= time or start < prev_time:
        return False
    if start > prev_time:
        return True
    return prev_start != 0 and prev_start < prev_time
