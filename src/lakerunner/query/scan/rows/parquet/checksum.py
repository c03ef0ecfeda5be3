"""The checksum of a page (CRC-32) within kernels, at the speed of the standard library's.

Four sums run beside each other, each over every fourth word of eight bytes, because each step of one sum waits for the
step before it. A table says what a byte does to the sum that is four words later.
"""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt
from numba import njit

from lakerunner.query.scan.rows.parquet.page_kernels import load

_LANES, _WORD = 4, 8
_BLOCK = _LANES * _WORD


def _table(zeros: int) -> list[int]:
    """For every byte, the sum of it and so many zeros behind it, without what a sum begins and ends with."""
    empty = zlib.crc32(bytes(zeros + 1))
    return [zlib.crc32(bytes([byte]) + bytes(zeros)) ^ empty for byte in range(256)]


def _tables(words: int) -> npt.NDArray[np.uint32]:
    """What each byte of a word does to the sum, that many words later."""
    return np.array([_table(words * _WORD - 1 - place) for place in range(_WORD)], np.uint32)


_NEXT_WORD, _NEXT_BLOCK = _tables(1), _tables(_LANES)


@njit(cache=True, nogil=True, inline="always")
def _step(tables, word):  # type: ignore[no-untyped-def]
    low = tables[0, word & np.uint64(255)] ^ tables[1, (word >> np.uint64(8)) & np.uint64(255)]
    low ^= tables[2, (word >> np.uint64(16)) & np.uint64(255)] ^ tables[3, (word >> np.uint64(24)) & np.uint64(255)]
    high = tables[4, (word >> np.uint64(32)) & np.uint64(255)] ^ tables[5, (word >> np.uint64(40)) & np.uint64(255)]
    high ^= tables[6, (word >> np.uint64(48)) & np.uint64(255)] ^ tables[7, word >> np.uint64(56)]
    return np.uint64(low ^ high)


@njit(cache=True, nogil=True)
def checksum(body, begin, end):  # type: ignore[no-untyped-def]
    """The CRC-32 of the bytes from `begin` up to `end`, which must be there."""
    at, last = np.uint64(begin), np.uint64(end)
    total = np.uint64(0xFFFFFFFF)
    if end - begin >= 2 * _BLOCK:
        first, second, third, fourth = total, np.uint64(0), np.uint64(0), np.uint64(0)
        # The last block is for the four sums to become one.
        while at + np.uint64(2 * _BLOCK) <= last:
            first = _step(_NEXT_BLOCK, first ^ load(body, at))
            second = _step(_NEXT_BLOCK, second ^ load(body, at + np.uint64(8)))
            third = _step(_NEXT_BLOCK, third ^ load(body, at + np.uint64(16)))
            fourth = _step(_NEXT_BLOCK, fourth ^ load(body, at + np.uint64(24)))
            at += np.uint64(_BLOCK)
        total = _step(_NEXT_WORD, first ^ load(body, at))
        total = _step(_NEXT_WORD, total ^ second ^ load(body, at + np.uint64(8)))
        total = _step(_NEXT_WORD, total ^ third ^ load(body, at + np.uint64(16)))
        total = _step(_NEXT_WORD, total ^ fourth ^ load(body, at + np.uint64(24)))
        at += np.uint64(_BLOCK)
    while at < last:
        total = np.uint64(_NEXT_WORD[7, (total ^ np.uint64(body[at])) & np.uint64(255)]) ^ (total >> np.uint64(8))
        at += np.uint64(1)
    return np.int64(total ^ np.uint64(0xFFFFFFFF))
