"""Kernels of `pattern`, `|>` and `!>`: literal pieces that are searched for in order, with captures between them."""

from __future__ import annotations

import numpy as np
from numba import njit

from lakerunner.query.logql.stages.field_kernels import AS_IS, put_field, same_bytes


@njit(cache=True, nogil=True)
def find(data, i, stop, text, start, end):  # type: ignore[no-untyped-def]
    """The first place in `data[i:stop]` where the bytes `text[start:end]` stand, or -1."""
    size = end - start
    first = text[start]
    last = stop - size
    while i <= last:
        if data[i] == first:
            j = 1
            while j < size and data[i + j] == text[start + j]:
                j += 1
            if j == size:
                return i
        i += 1
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
