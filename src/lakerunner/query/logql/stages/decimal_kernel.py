"""A kernel that reads short decimal numbers, as most numbers in log lines are."""

from __future__ import annotations

import numpy as np
from numba import njit

#: Numbers of so few digits are whole multiples, below 2^53, of a power of ten that is exact as a float. So the one
#: division rounds as it should.
_MOST_DIGITS = 15
_POWERS = 10.0 ** np.arange(_MOST_DIGITS + 1)
_MINUS, _POINT, _ZERO, _NINE = ord("-"), ord("."), ord("0"), ord("9")


@njit(cache=True, nogil=True)
def read_short_decimals(data, offsets, present, numbers):  # type: ignore[no-untyped-def]
    """Read texts such as `-12.5`. Returns how many texts are such numbers; what others become means nothing."""
    count = 0
    for row in range(len(offsets) - 1):
        if not present[row]:
            continue
        at, end = np.int64(offsets[row]), np.int64(offsets[row + 1])
        negative = at < end and data[at] == _MINUS
        if negative:
            at += 1
        begin, point, value = at, np.int64(-1), np.int64(0)
        while at < end:
            c = data[at]
            if _ZERO <= c <= _NINE:
                value = value * 10 + np.int64(c - _ZERO)
            elif c == _POINT and point < 0 and at > begin:
                point = at
            else:
                break
            at += 1
        digits = at - begin - (point >= 0)
        if at < end or digits == 0 or digits > _MOST_DIGITS or point == end - 1:
            continue
        found = np.float64(value)
        if point >= 0:
            found /= _POWERS[end - 1 - point]
        numbers[row] = -found if negative else found
        count += 1
    return count
