"""Kernels of `pattern`, `|>` and `!>`: literal pieces that are searched for in order, with captures between them."""

from __future__ import annotations

import numpy as np
from numba import njit

from lakerunner.query.logql.stages.field_kernels import AS_IS, put_field, same_bytes

#: Bytes that may be compared per byte of the line. A search that takes more is hopeless in this way.
_MAX_EFFORT = 8


@njit(cache=True, nogil=True)
def find(data, i, stop, text, start, end):  # type: ignore[no-untyped-def]
    """The first place in `data[i:stop]` where the bytes `text[start:end]` stand, or -1."""
    size = end - start
    first, last = text[start], stop - size
    effort = (stop - i) * _MAX_EFFORT
    while i <= last:
        if data[i] == first:
            j = 1
            while j < size and data[i + j] == text[start + j]:
                j += 1
            if j == size:
                return i
            effort -= j
            if effort < 0:
                return _find_linearly(data, i + 1, stop, text, start, end)
        i += 1
    return -1


@njit(cache=True, nogil=True)
def _find_linearly(data, i, stop, text, start, end):  # type: ignore[no-untyped-def]
    """As `find`, in a time that does not depend on the text (Knuth, Morris and Pratt)."""
    size = end - start
    borders = np.zeros(size, np.int64)
    matched = 0
    for j in range(1, size):
        while matched and text[start + j] != text[start + matched]:
            matched = borders[matched - 1]
        matched += text[start + j] == text[start + matched]
        borders[j] = matched
    matched = 0
    while i < stop:
        while matched and data[i] != text[start + matched]:
            matched = borders[matched - 1]
        matched += data[i] == text[start + matched]
        i += 1
        if matched == size:
            return i - size
    return -1


@njit(cache=True, nogil=True)
def captures(data, offsets, begin, end, text, bounds, leading, wanted, out):  # type: ignore[no-untyped-def]
    """Find the captures of the lines from `begin` up to `end`. Returns the number of fields.

    The pattern has literals and captures in turn. `leading`: it begins with a literal, which must begin the line. The
    capture before a literal that is missing takes the rest of the line, and ends the match. Only those that are
    `wanted` become fields.
    """
    literals, total, used = bounds.shape[0] - 1, wanted.shape[0], 0
    for row in range(begin, end):
        i, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        if i == stop:
            continue
        literal = 0
        if leading:
            if i + bounds[1] > stop or not same_bytes(data, i, text, 0, bounds[1]):
                continue
            i, literal = i + bounds[1], 1
        for capture in range(total):
            place = -1
            if literal < literals:
                place = find(data, i, stop, text, bounds[literal], bounds[literal + 1])
            if wanted[capture]:
                used = put_field(out, used, row, capture, i, place if place >= 0 else stop, AS_IS)
            if place < 0:
                break
            i = place + bounds[literal + 1] - bounds[literal]
            literal += 1
    return used


@njit(cache=True, nogil=True)
def fits(data, offsets, begin, end, text, bounds, leading, trailing, out):  # type: ignore[no-untyped-def]
    """Tell which lines have the literals in order, with something between them.

    `leading`: the pattern begins with a literal, which may stand anywhere. `trailing`: it ends with a capture, for
    which something must be left; else nothing may be left.
    """
    literals = bounds.shape[0] - 1
    for row in range(begin, end):
        i, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        if i == stop or (literals == 0 and not trailing):
            out[row] = i == stop and literals == 0 and not trailing
            continue
        fitting = True
        for literal in range(literals):
            place = find(data, i, stop, text, bounds[literal], bounds[literal + 1])
            if place < 0 or (place == i and (literal or not leading)):
                fitting = False
                break
            i = place + bounds[literal + 1] - bounds[literal]
        out[row] = fitting and trailing == (i != stop)
