"""Labels, times and values woven into JSON, byte by byte in machine code and without the interpreter's lock."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from numba import njit

Bytes = npt.NDArray[np.uint8]

_COMMA, _POINT, _ZERO, _MINUS, _PLUS = ord(","), ord("."), ord("0"), ord("-"), ord("+")
_NULL, _EXPONENT = ord("n"), ord("e")
_NAN, _INFINITE = np.frombuffer(b"NaN", np.uint8), np.frombuffer(b"Inf", np.uint8)
_OPEN, _CLOSE = np.frombuffer(b'{"metric":', np.uint8), np.frombuffer(b'"]', np.uint8)
#: Exponents that are written out as zeros: between 1e-6 and 1e21.
_LEAST, _MOST = -6, 20
#: By how much a number may grow, and what stands around each.
NUMBER_ROOM, POINT_ROOM, SERIES_ROOM = 24, 3, 40


@njit(cache=True, nogil=True)
def _put(piece, begin, end, out, at):  # type: ignore[no-untyped-def]
    for i in range(begin, end):
        out[at] = piece[i]
        at += 1
    return at


@njit(cache=True, nogil=True)
def _put_exponent(digits, begin, e, end, out, at):  # type: ignore[no-untyped-def]
    """A number with an exponent, whose `e` is at `e`: as Go writes it, or without where Prometheus writes none."""
    power = 0
    for i in range(e + 2, end):
        power = power * 10 + digits[i] - _ZERO
    if digits[e + 1] == _MINUS:
        power = -power
    if power < _LEAST or power > _MOST:
        at = _put(digits, begin, e + 2, out, at)
        if end - e - 2 < 2:
            out[at] = _ZERO
            at += 1
        return _put(digits, e + 2, end, out, at)
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
    # There are never more digits than places before the point: exponents begin where those end.
    for _ in range(power + 1 - written):
        out[at] = _ZERO
        at += 1
    return at


@njit(cache=True, nogil=True)
def _put_number(digits, begin, end, value, out, at):  # type: ignore[no-untyped-def]
    """The number `digits[begin:end]`, which is `value`, as Prometheus writes it."""
    if digits[begin] == _NULL:
        if math.isnan(value):
            return _put(_NAN, 0, 3, out, at)
        out[at] = _PLUS if value > 0 else _MINUS
        return _put(_INFINITE, 0, 3, out, at + 1)
    for i in range(begin, end):
        if digits[i] == _EXPONENT:
            return _put_exponent(digits, begin, i, end, out, at)
    if end - begin > 2 and digits[end - 1] == _ZERO and digits[end - 2] == _POINT:
        end -= 2
    return _put(digits, begin, end, out, at)


@njit(cache=True, nogil=True)
def write_series(  # type: ignore[no-untyped-def]
    digits, values, valid, times, time_offsets, labels, label_offsets, middle, tail, out
):
    """A JSON object a row of `valid`, between commas: its labels, then its points. Returns the length.

    `digits` are the values that are valid, between commas as orjson writes them; `times` what stands before the value
    of each column, `[1700000000,"`; `middle` and `tail` what stands before and behind a row's points.
    """
    at, read, number = 0, 0, 0
    for row in range(valid.shape[0]):
        if row:
            out[at] = _COMMA
            at += 1
        at = _put(_OPEN, 0, len(_OPEN), out, at)
        at = _put(labels, label_offsets[row], label_offsets[row + 1], out, at)
        at = _put(middle, 0, len(middle), out, at)
        first = True
        for column in range(valid.shape[1]):
            if not valid[row, column]:
                continue
            if not first:
                out[at] = _COMMA
                at += 1
            first = False
            at = _put(times, time_offsets[column], time_offsets[column + 1], out, at)
            end = read
            while end < len(digits) and digits[end] != _COMMA:
                end += 1
            at = _put_number(digits, read, end, values[number], out, at)
            at = _put(_CLOSE, 0, len(_CLOSE), out, at)
            read, number = end + 1, number + 1
        at = _put(tail, 0, len(tail), out, at)
    return at
