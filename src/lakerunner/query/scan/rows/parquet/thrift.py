"""The part of Thrift's compact protocol that Parquet's footers and page indexes need."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from numba import njit

Bytes = npt.NDArray[np.uint8]

BOOL_TRUE, BOOL_FALSE, I16, I32, I64, BINARY, LIST, STRUCT = 1, 2, 4, 5, 6, 8, 9, 12


# With bounds checks, a damaged footer raises IndexError instead of reading beyond the buffer.
@njit(cache=True, nogil=True, boundscheck=True)
def varint(buffer: Bytes, at: int) -> tuple[int, int]:
    """The unsigned number at `at`, and the position after it."""
    value, shift = 0, 0
    while True:
        byte = int(np.int64(buffer[at]))
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80 or shift > 63:
            return value, at


@njit(cache=True, nogil=True, boundscheck=True)
def signed(buffer: Bytes, at: int) -> tuple[int, int]:
    value, at = varint(buffer, at)
    return (value >> 1) ^ -(value & 1), at


@njit(cache=True, nogil=True, boundscheck=True)
def list_head(buffer: Bytes, at: int) -> tuple[int, int, int]:
    """Length and element type of a list, and the position of its first element."""
    head = int(np.int64(buffer[at]))
    at += 1
    count = head >> 4
    if count == 15:
        count, at = varint(buffer, at)
    return count, head & 15, at


@njit(cache=True, nogil=True, boundscheck=True)
def field_head(buffer: Bytes, at: int, last: int) -> tuple[int, int, int]:
    """Number and type of a field, and the position of its value. Type 0 ends the struct."""
    head = int(np.int64(buffer[at]))
    at += 1
    if head == 0:
        return 0, 0, at
    number = last + (head >> 4)
    if head >> 4 == 0:
        number, at = signed(buffer, at)
    return number, head & 15, at


@njit(cache=True, nogil=True, boundscheck=True)
def skip(buffer: Bytes, at: int, kind: int) -> int:
    """The position after a value of that type."""
    if kind == 1 or kind == 2:
        return at
    if kind == 3:
        return at + 1
    if kind == 4 or kind == 5 or kind == 6:
        return varint(buffer, at)[1]
    if kind == 7:
        return at + 8
    if kind == 8:
        length, at = varint(buffer, at)
        return at + length
    if kind == 9 or kind == 10:
        count, element, at = list_head(buffer, at)
        for _ in range(count):
            # A boolean takes a byte in a list; as a field it is part of the field's head.
            at = at + 1 if element <= 2 else skip(buffer, at, element)
        return at
    if kind == 12:
        last = 0
        while True:
            last, inner, at = field_head(buffer, at, last)
            if inner == 0:
                return at
            at = skip(buffer, at, inner)
    raise ValueError("unknown thrift type")


class Writer:
    """Writes the fields of a struct, one after another."""

    def __init__(self) -> None:
        self._out = bytearray()
        self._last = [0]

    def number(self, field: int, value: int, kind: int = I64) -> Writer:
        return self._head(field, kind)._zigzag(value)

    def raw(self, field: int, kind: int, body: bytes) -> Writer:
        self._head(field, kind)
        self._out += body
        return self

    def numbers(self, field: int, values: Sequence[int]) -> Writer:
        self._list_head(field, len(values), I32)
        for value in values:
            self._zigzag(value)
        return self

    def texts(self, field: int, values: Sequence[str]) -> Writer:
        self._list_head(field, len(values), BINARY)
        for value in values:
            body = value.encode()
            self._varint(len(body))
            self._out += body
        return self

    def structs(self, field: int, bodies: Sequence[bytes]) -> Writer:
        self._list_head(field, len(bodies), STRUCT)
        for body in bodies:
            self._out += body
        return self

    def end(self) -> bytes:
        return bytes(self._out) + b"\0"

    def _head(self, field: int, kind: int) -> Writer:
        # Fields are written in order and Parquet's field numbers are small, so the difference fits four bits.
        self._out.append((field - self._last[-1]) << 4 | kind)
        self._last[-1] = field
        return self

    def _list_head(self, field: int, count: int, element: int) -> None:
        self._head(field, LIST)
        if count < 15:
            self._out.append(count << 4 | element)
        else:
            self._out.append(0xF0 | element)
            self._varint(count)

    def _zigzag(self, value: int) -> Writer:
        self._varint((value << 1) ^ (value >> 63))
        return self

    def _varint(self, value: int) -> None:
        while value > 0x7F:
            self._out.append(value & 0x7F | 0x80)
            value >>= 7
        self._out.append(value)
