"""Kernels of `pattern`, `|>` and `!>`: literal pieces that are searched for in order, with captures between them."""

from __future__ import annotations

from numba import njit


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
def captures(data, offsets, begin, end, text, bounds, leading, out_starts, out_ends):  # type: ignore[no-untyped-def]
    """Find the captures of the lines from `begin` up to `end`: one row of the outputs per capture, -1 where none.

    The pattern has literals and captures in turn. `leading`: it begins with a literal, which must begin the line. The
    capture before a literal that is missing takes the rest of the line, and ends the match.
    """
    literals, total = bounds.shape[0] - 1, out_starts.shape[0]
    for row in range(begin, end):
        i, stop = offsets[row], offsets[row + 1]
        if i == stop:
            continue
        literal = 0
        if leading:
            size = bounds[1]
            if i + size > stop or find(data, i, i + size, text, 0, size) != i:
                continue
            i, literal = i + size, 1
        for capture in range(total):
            out_starts[capture, row], out_ends[capture, row] = i, stop
            if literal == literals:
                break
            place = find(data, i, stop, text, bounds[literal], bounds[literal + 1])
            if place < 0:
                break
            out_ends[capture, row] = place
            i = place + bounds[literal + 1] - bounds[literal]
            literal += 1


@njit(cache=True, nogil=True)
def fits(data, offsets, begin, end, text, bounds, leading, trailing, out):  # type: ignore[no-untyped-def]
    """Tell which lines have the literals in order, with something between them.

    `leading`: the pattern begins with a literal, which may stand anywhere. `trailing`: it ends with a capture, for
    which something must be left; else nothing may be left.
    """
    literals = bounds.shape[0] - 1
    for row in range(begin, end):
        i, stop = offsets[row], offsets[row + 1]
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
