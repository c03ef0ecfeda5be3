"""Writes labels, times and values as JSON, byte by byte in machine code and without the interpreter lock."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from numba import njit

from lakerunner.model.byte_copy import put_bytes

Bytes = npt.NDArray[np.uint8]

_COMMA, _POINT, _ZERO, _MINUS, _PLUS = ord(","), ord("."), ord("0"), ord("-"), ord("+")
_NULL, _EXPONENT = ord("n"), ord("e")
_NAN, _INFINITE = np.frombuffer(b"NaN", np.uint8), np.frombuffer(b"Inf", np.uint8)
_OPEN, _CLOSE = np.frombuffer(b'{"metric":', np.uint8), np.frombuffer(b'"]', np.uint8)
#: Smallest and largest exponent of numbers that are written without one: from 1e-6 up to, not including, 1e21.
_MIN_PLAIN_EXPONENT, _MAX_PLAIN_EXPONENT = -6, 20
#: How many bytes a number may grow when its exponent is written out.
NUMBER_BYTES = 24
#: Upper bounds of the punctuation around each point and each series.
POINT_BYTES, SERIES_BYTES = 3, 40


@njit(cache=True, nogil=True)
def _put_exponent(digits, begin, e, end, out, at):  # type: ignore[no-untyped-def]
    """Write a number whose exponent begins at index `e`: as Go writes it, or in full where Prometheus does so."""
    power = 0
    for i in range(e + 2, end):
        power = power * 10 + digits[i] - _ZERO
    if digits[e + 1] == _MINUS:
        power = -power
    if power < _MIN_PLAIN_EXPONENT or power > _MAX_PLAIN_EXPONENT:
        at = put_bytes(digits, begin, e + 2, out, at)
        if end - e - 2 < 2:
            out[at] = _ZERO
            at += 1
        return put_bytes(digits, e + 2, end, out, at)
    if digits[begin] == _MINUS:
        out[at] = _MINUS
        at += 1
        begin += 1
    if power < 0:
        out[at], out[at + 1] = _ZERO, _POINT
        at += 2
        for _ in range(-power - 1):
            out[at] = _ZERO
            at += 1
    written = 0
    for i in range(begin, e):
        if digits[i] != _POINT:
            out[at] = digits[i]
            at += 1
            written += 1
    # Never more digits than integer places: orjson writes positive exponents only for numbers that large.
    for _ in range(power + 1 - written):
        out[at] = _ZERO
        at += 1
    return at


@njit(cache=True, nogil=True)
def _put_number(digits, begin, end, value, out, at):  # type: ignore[no-untyped-def]
    """Write the number `digits[begin:end]`, whose value is `value`, as Prometheus writes it."""
    if digits[begin] == _NULL:
        if math.isnan(value):
            return put_bytes(_NAN, 0, 3, out, at)
        out[at] = _PLUS if value > 0 else _MINUS
        return put_bytes(_INFINITE, 0, 3, out, at + 1)
    for i in range(begin, end):
        if digits[i] == _EXPONENT:
            return _put_exponent(digits, begin, i, end, out, at)
    if end - begin > 2 and digits[end - 1] == _ZERO and digits[end - 2] == _POINT:
        end -= 2
    return put_bytes(digits, begin, end, out, at)


@njit(cache=True, nogil=True)
def write_series(  # type: ignore[no-untyped-def]
    digits, values, valid, times, time_offsets, labels, label_offsets, middle, tail, out
):
    """Write one JSON object per row of `valid`, separated by commas: labels, then points. Returns the length.

    `digits` holds the valid values, separated by commas, as orjson writes them. `times` holds the text before the value
    of each column, such as `[1700000000,"`. `middle` and `tail` are the text before and after the points of a row.
    """
    at, read, number = 0, 0, 0
    for row in range(valid.shape[0]):
        if row:
            out[at] = _COMMA
            at += 1
        at = put_bytes(_OPEN, 0, len(_OPEN), out, at)
        at = put_bytes(labels, label_offsets[row], label_offsets[row + 1], out, at)
        at = put_bytes(middle, 0, len(middle), out, at)
        first = True
        for column in range(valid.shape[1]):
            if not valid[row, column]:
                continue
            if not first:
                out[at] = _COMMA
                at += 1
            first = False
            at = put_bytes(times, time_offsets[column], time_offsets[column + 1], out, at)
            end = read
            while end < len(digits) and digits[end] != _COMMA:
                end += 1
            at = _put_number(digits, read, end, values[number], out, at)
            at = put_bytes(_CLOSE, 0, len(_CLOSE), out, at)
            read, number = end + 1, number + 1
        at = put_bytes(tail, 0, len(tail), out, at)
    return at
