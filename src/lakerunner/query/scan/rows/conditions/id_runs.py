"""Ids as pairs of 64-bit numbers: rows that are sorted by id are found by binary search, without comparing texts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

from lakerunner.model.text_bytes import text_bytes
from lakerunner.query.scan.rows.conditions.evaluate import Ints

Words = npt.NDArray[np.uint64]
_DIGITS = 32
_BAD = np.uint64(16)


def _values_of_digits() -> Words:
    values = np.full(256, _BAD, np.uint64)
    for value, digit in enumerate(b"0123456789abcdef"):
        values[digit] = value
    return values


_VALUES = _values_of_digits()


@dataclass(frozen=True, slots=True, eq=False)
class Ids:
    """A column of ids. Of texts that are not 32 lower-case hex digits, the numbers are a hash."""

    high: Words
    low: Words
    #: The texts of such ids, by their numbers.
    odd: Mapping[tuple[int, int], str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.high)

    def take(self, rows: Any) -> Ids:
        return Ids(self.high[rows], self.low[rows], self.odd)

    def ordered(self) -> Ids:
        """Each id once, ascending."""
        return self.numbered()[1]

    def numbered(self) -> tuple[Ints, Ids]:
        """A number for each id, equal where the ids are and ascending with them, and the id of each number."""
        order = np.lexsort((self.low, self.high))
        high, low = self.high[order], self.low[order]
        fresh = np.ones(len(order), np.bool_)
        fresh[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
        numbers = np.empty(len(order), np.int64)
        numbers[order] = np.cumsum(fresh) - 1
        return numbers, Ids(high[fresh], low[fresh], self.odd)

    def text(self, row: int) -> str:
        """The id as it is stored."""
        high, low = int(self.high[row]), int(self.low[row])
        return self.odd.get((high, low)) or f"{high:016x}{low:016x}"


NO_IDS = Ids(np.zeros(0, np.uint64), np.zeros(0, np.uint64))


def concat_ids(parts: Sequence[Ids]) -> Ids:
    if len(parts) == 1:
        return parts[0]
    odd = {numbers: text for part in parts for numbers, text in part.odd.items()}
    return Ids(
        np.concatenate([NO_IDS.high, *(part.high for part in parts)]),
        np.concatenate([NO_IDS.low, *(part.low for part in parts)]),
        odd,
    )


def ids_of(texts: pa.Array, digits: int = _DIGITS) -> tuple[Ids, bool]:
    """The ids of texts, and whether all of them are this many hex digits. A missing one is 0."""
    if pa.types.is_dictionary(texts.type):
        known, are_hex = ids_of(texts.dictionary, digits)
        codes = texts.indices.fill_null(0) if texts.null_count else texts.indices
        found = known.take(codes.to_numpy()) if len(known) else Ids(*np.zeros((2, len(texts)), np.uint64))
        if texts.null_count:
            missing = texts.is_null().to_numpy(zero_copy_only=False)
            found.high[missing], found.low[missing] = 0, 0
        return found, are_hex
    high, low = np.zeros(len(texts), np.uint64), np.zeros(len(texts), np.uint64)
    texts = texts.fill_null("") if texts.null_count else texts
    data, offsets = text_bytes(texts)
    if texts.buffers()[2] is None:
        return Ids(high, low), not len(texts)
    if not _read_hex(offsets, data, _VALUES, digits, high, low):
        return Ids(high, low), True
    odd: dict[tuple[int, int], str] = {}
    for row, text in enumerate(texts.to_pylist()):
        if text and not _is_hex(text, digits):
            digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
            numbers = int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big")
            (high[row], low[row]), odd[numbers] = numbers, text
    return Ids(high, low, odd), False


def _is_hex(text: str, digits: int) -> bool:
    return len(text) == digits and set(text) <= set("0123456789abcdef")


@dataclass(frozen=True, slots=True, eq=False)
class IdRuns:
    """The distinct ids of a row group whose rows are sorted by them, and where the rows of each begin."""

    ids: Ids
    #: One more than there are ids: the last is the number of rows.
    first_rows: Ints

    @property
    def nbytes(self) -> int:
        return 3 * self.first_rows.nbytes

    @classmethod
    def of(cls, texts: pa.Array) -> IdRuns | None:
        """None if the rows are not sorted by ids of 32 hex digits."""
        if texts.null_count or not len(texts):
            return None
        if pa.types.is_dictionary(texts.type):
            codes = texts.indices.to_numpy()
            starts = np.flatnonzero(np.concatenate(([True], codes[1:] != codes[:-1])))
            known, are_hex = ids_of(texts.dictionary)
            ids = known.take(codes[starts])
        else:
            known, are_hex = ids_of(texts)
            changed = (known.high[1:] != known.high[:-1]) | (known.low[1:] != known.low[:-1])
            starts = np.flatnonzero(np.concatenate(([True], changed)))
            ids = known.take(starts)
        # The empty text is read as 0.
        if not are_hex or not (ids.high[0] | ids.low[0]) or not _ascends(ids.high, ids.low):
            return None
        return cls(ids, np.append(starts, len(texts)).astype(np.int64))

    def runs_of(self, rows: Ints) -> Ints:
        """The place among the ids of each row's id."""
        return np.searchsorted(self.first_rows, rows, side="right") - 1

    def ids_at(self, rows: Ints) -> Ids:
        if len(rows) == self.first_rows[-1]:
            counts = np.diff(self.first_rows)
            return Ids(np.repeat(self.ids.high, counts), np.repeat(self.ids.low, counts))
        return self.ids.take(self.runs_of(rows))

    def rows_of(self, wanted: Ids) -> Ints:
        """The rows of the wanted ids, which ascend. Ascending."""
        found: Ints = _rows_of(self.ids.high, self.ids.low, self.first_rows, wanted.high, wanted.low)
        return found


@njit(cache=True, nogil=True)
def _read_hex(
    offsets: npt.NDArray[np.int32], body: npt.NDArray[np.uint8], values: Words, digits: int, high: Words, low: Words
) -> int:
    """Read ids of this many digits, and return how many of the texts are something else."""
    odd = 0
    for row in range(len(high)):
        begin, end = offsets[row], offsets[row + 1]
        if end == begin:
            continue
        if end - begin != digits:
            odd += 1
            continue
        upper, lower = np.uint64(0), np.uint64(0)
        bad = np.uint64(0)
        for place in range(begin, end):
            value = values[body[place]]
            bad |= value & np.uint64(16)
            upper = upper << np.uint64(4) | lower >> np.uint64(60)
            lower = lower << np.uint64(4) | value
        if bad:
            odd += 1
        else:
            high[row], low[row] = upper, lower
    return odd


@njit(cache=True, nogil=True)
def _ascends(high: Words, low: Words) -> bool:
    for row in range(1, len(high)):
        if high[row] < high[row - 1] or (high[row] == high[row - 1] and low[row] <= low[row - 1]):
            return False
    return True


@njit(cache=True, nogil=True)
def _rows_of(high: Words, low: Words, first_rows: Ints, wanted_high: Words, wanted_low: Words) -> Ints:
    places = np.empty(min(len(high), len(wanted_high)), np.int64)
    count, total, begin = 0, 0, 0
    for wanted in range(len(wanted_high)):
        upper, lower = wanted_high[wanted], wanted_low[wanted]
        end = len(high)
        while begin < end:
            middle = (begin + end) // 2
            if high[middle] < upper or (high[middle] == upper and low[middle] < lower):
                begin = middle + 1
            else:
                end = middle
        if begin == len(high):
            break
        if high[begin] == upper and low[begin] == lower:
            places[count] = begin
            count += 1
            total += first_rows[begin + 1] - first_rows[begin]
    rows = np.empty(total, np.int64)
    at = 0
    for number in range(count):
        for row in range(first_rows[places[number]], first_rows[places[number] + 1]):
            rows[at] = row
            at += 1
    return rows


def warm() -> None:
    runs = IdRuns.of(pa.array(["1" * _DIGITS]))
    assert runs is not None
    runs.rows_of(runs.ids)
