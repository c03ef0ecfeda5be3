"""Copies bytes within kernels.

Places are unsigned: for those that may be negative, the compiler copies byte by byte, which takes twenty times as long.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def put_bytes(piece, begin, end, out, at):  # type: ignore[no-untyped-def]
    """Write a part of a piece. Returns where it ends."""
    start, place = np.uint64(begin), np.uint64(at)
    for i in range(np.uint64(end - begin)):
        out[place + np.uint64(i)] = piece[start + np.uint64(i)]
    return at + (end - begin)
