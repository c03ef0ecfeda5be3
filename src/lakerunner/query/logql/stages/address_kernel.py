"""A kernel that finds what looks like an IP address in texts."""

from __future__ import annotations

import numpy as np
from numba import njit

from lakerunner.query.logql.stages.field_kernels import AS_IS, NO_ROOM, put_field

_POINT, _COLON = ord("."), ord(":")
_DIGIT = np.zeros(256, np.bool_)
_DIGIT[ord("0") : ord("9") + 1] = True
_HEX = _DIGIT.copy()
_HEX[ord("a") : ord("f") + 1] = _HEX[ord("A") : ord("F") + 1] = True
_IN_V4 = _DIGIT.copy()
_IN_V4[_POINT] = True
_IN_V6 = _HEX.copy()
_IN_V6[[_POINT, _COLON]] = True


@njit(cache=True, nogil=True)
def _begins_v4(data, i, stop):  # type: ignore[no-untyped-def]
    """A digit, and a point among the next three bytes. At least four bytes are left."""
    if i + 3 >= stop or not _DIGIT[data[i]]:
        return False
    return data[i + 1] == _POINT or data[i + 2] == _POINT or data[i + 3] == _POINT


@njit(cache=True, nogil=True)
def _begins_v6(data, i, stop):  # type: ignore[no-untyped-def]
    """One to four hexadecimal digits and a colon, or two colons and a digit. At least five bytes are left."""
    if i + 4 >= stop:
        return False
    if data[i] == _COLON:
        return data[i + 1] == _COLON and _HEX[data[i + 2]]
    for j in range(i, i + 5):
        if data[j] == _COLON:
            return j > i
        if not _HEX[data[j]]:
            return False
    return False


@njit(cache=True, nogil=True)
def candidates(data, offsets, begin, end, out):  # type: ignore[no-untyped-def]
    """Find what may be an address. Returns the text at which it stopped, the number found, NO_ROOM if it stopped early.

    What follows an address without a gap belongs to it, and one byte behind it is never looked at.
    """
    used = 0
    for row in range(begin, end):
        i, stop, mark = offsets[row], offsets[row + 1], used
        while i < stop:
            last = i
            if _begins_v4(data, i, stop):
                while last < stop and _IN_V4[data[last]]:
                    last += 1
            elif _begins_v6(data, i, stop):
                while last < stop and _IN_V6[data[last]]:
                    last += 1
            if last > i:
                if used >= out.shape[0]:
                    return row, mark, NO_ROOM
                used = put_field(out, used, row, 0, i, last, AS_IS)
            i = last + 1
    return end, used, 0
