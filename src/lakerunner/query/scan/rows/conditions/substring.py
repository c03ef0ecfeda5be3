"""Finds a text in many values at once: one search over their common buffer, at the speed of memory.

The kernel compares two bytes of the text with 64 places at a time, by vector instructions (`byte_vectors.py`).
Only where both fit does it compare the whole text. The two bytes are those that fit together least often in a sample
of the values.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from lakerunner.model.byte_vectors import BLOCK, equal_places, lowest_bit
from lakerunner.model.text_bytes import text_bytes

Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

#: Bytes of the sample, and how many bytes of the text may become one of the two.
_SAMPLE_BYTES, _MAX_CANDIDATES = 4_096, 16
#: The bit in which an ASCII letter differs from its other case.
_CASE_BIT = 0x20
#: Comparisons that one byte of the values may cost on average. A text that costs more is left to a linear search.
_MAX_EFFORT = 16


@dataclass(frozen=True, slots=True)
class Needle:
    """A text to look for. `ignore_case` concerns ASCII letters alone."""

    text: str
    ignore_case: bool = False


def containing(texts: pa.Array, needle: Needle, choice: Choice | None = None) -> Mask:
    """A mask of the texts that contain the needle. Null contains nothing.

    `choice` is for callers who look for the same text in several arrays of alike values.
    """
    found = np.zeros(len(texts), np.bool_)
    if not needle.text:
        found[:] = True
    elif len(texts):
        wanted, folds = _compiled(needle)
        data, offsets = text_bytes(texts)
        first, second = (choice or Choice()).places(data[offsets[0] : offsets[-1]], wanted, folds)
        if not mark(data, offsets, wanted, folds, first, second, found):
            linear = pc.match_substring(texts, needle.text, ignore_case=needle.ignore_case)
            found = pc.fill_null(linear, False).to_numpy(zero_copy_only=False)
    return found & texts.is_valid().to_numpy(zero_copy_only=False) if texts.null_count else found


class Choice:
    """Which two bytes of a text are compared first. Choosing takes a third of the time of searching a page."""

    def __init__(self) -> None:
        self._places: tuple[int, int] | None = None

    def places(self, data: Bytes, wanted: Bytes, folds: Bytes) -> tuple[int, int]:
        found: tuple[int, int] = self._places or choose_places(data, wanted, folds)
        if len(data) >= _SAMPLE_BYTES + len(wanted):
            self._places = found
        return found


@functools.lru_cache(maxsize=1024)
def _compiled(needle: Needle) -> tuple[Bytes, Bytes]:
    """The bytes of the text, and for each of them the bits that a value's byte gets before they are compared."""
    wanted = np.frombuffer(needle.text.encode(), np.uint8).copy()
    folds = np.zeros(len(wanted), np.uint8)
    if needle.ignore_case:
        lower = wanted | _CASE_BIT
        folds[(lower >= ord("a")) & (lower <= ord("z"))] = _CASE_BIT
        wanted |= folds
    return wanted, folds


@njit(cache=True, nogil=True)
def choose_places(data: Bytes, wanted: Bytes, folds: Bytes) -> tuple[int, int]:
    """The two places of the text whose bytes fit together least often in a sample from the middle of the data."""
    size = len(wanted)
    if size == 1 or len(data) < _SAMPLE_BYTES + size:
        return 0, size - 1
    begin = (len(data) - _SAMPLE_BYTES - size) // 2
    # Of a long text, places all over it: neighbouring bytes often come together.
    count = min(size, _MAX_CANDIDATES)
    first, second, fewest = 0, size - 1, _SAMPLE_BYTES + 1
    for one in range(count):
        for other in range(one + 1, count):
            left, right = one * (size - 1) // (count - 1), other * (size - 1) // (count - 1)
            a, b, fold_a, fold_b = wanted[left], wanted[right], folds[left], folds[right]
            lefts = data[begin + left : begin + left + _SAMPLE_BYTES]
            rights = data[begin + right : begin + right + _SAMPLE_BYTES]
            hits = 0
            for at in range(_SAMPLE_BYTES):
                hits += ((lefts[at] | fold_a) == a) & ((rights[at] | fold_b) == b)
            if hits < fewest:
                first, second, fewest = left, right, hits
    return first, second


@njit(cache=True, nogil=True)
def mark(
    data: Bytes,
    offsets: npt.NDArray[np.int32],
    wanted: Bytes,
    folds: Bytes,
    first: int,
    second: int,
    found: Mask,
) -> bool:
    """Mark the values that contain the text. False if that takes too long; then the marks mean nothing."""
    size, rows = len(wanted), len(offsets) - 1
    a, b, fold_a, fold_b = wanted[first], wanted[second], folds[first], folds[second]
    at, last, row, end = np.int64(offsets[0]), np.int64(offsets[rows]) - size, 0, np.int64(offsets[1])
    effort = (last - at) * _MAX_EFFORT
    while at <= last:
        until = min(at + BLOCK, last + 1)
        # A bit for every place where both bytes fit.
        fits = np.uint64(0)
        if until - at == BLOCK:
            fits = equal_places(data, at + first, a, fold_a) & equal_places(data, at + second, b, fold_b)
        else:
            for place in range(until - at):
                fit = (data[at + place + first] | fold_a) == a and (data[at + place + second] | fold_b) == b
                fits |= np.uint64(fit) << np.uint64(place)
        while fits:
            place = at + lowest_bit(fits)
            fits &= fits - np.uint64(1)
            effort -= size
            if _differs(data, place, wanted, folds):
                continue
            while end <= place:
                row += 1
                end = np.int64(offsets[row + 1])
            # A hit that crosses into the next value does not count.
            if place + size <= end:
                found[row] = True
        at = until
        if effort < 0:
            return False
    return True


@njit(cache=True, nogil=True, inline="always")
def _differs(data: Bytes, place: Any, wanted: Bytes, folds: Bytes) -> Any:
    """Whether the text is not at the place. All bytes are compared: an early end would cost more than it saves."""
    differs, begin = np.uint8(0), np.uint64(place)
    for i in range(np.uint64(len(wanted))):
        differs |= (data[begin + np.uint64(i)] | folds[np.uint64(i)]) ^ wanted[np.uint64(i)]
    return differs != np.uint8(0)


def warm() -> None:
    """Compile or load the kernels."""
    containing(pa.array(["a line to look at"]), Needle("look"))
