"""Times and values woven into JSON points, byte by byte in machine code and without the interpreter's lock."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

Bytes = npt.NDArray[np.uint8]

_COMMA, _POINT, _ZERO = ord(","), ord("."), ord("0")
_NULL, _EXPONENT = ord("n"), ord("e")


@njit(cache=True, nogil=True)
def weave(values: Bytes, before: Bytes, offsets: npt.NDArray[np.int64], out: Bytes) -> int:
    """Write every number of `values` (digits between commas) behind its own part of `before`; return the length.

    `.0` at the end of a number is left out. -1 when a number is written in a way that must be mended first.
    """
    at, place = 0, 0
    for i in range(offsets[0], offsets[1]):
        out[at] = before[i]
        at += 1
    for i in range(len(values)):
        byte = values[i]
        if byte == _COMMA:
            if out[at - 1] == _ZERO and out[at - 2] == _POINT:
                at -= 2
            place += 1
            for j in range(offsets[place], offsets[place + 1]):
                out[at] = before[j]
                at += 1
        elif byte in (_NULL, _EXPONENT):
            return -1
        else:
            out[at] = byte
            at += 1
    if out[at - 1] == _ZERO and out[at - 2] == _POINT:
        at -= 2
    return at
