"""Kernels that intern the keys of fields found in lines, and that build one column of texts from the fields.

A field is a key, and a range of bytes of the lines as its value. Keys form a tree, because objects are nested: a key is
known by its parent and its bytes.
"""

from __future__ import annotations

import numpy as np
from numba import njit, uint64

#: How the bytes of a value become its text.
AS_IS, JSON_ESCAPED, QUOTED, EMPTY = 0, 1, 2, 3
#: Reasons why a kernel stops early: no room is left for fields, or for keys.
NO_ROOM, NO_KEY_ROOM = 100, 101
#: The parent of top-level keys.
ROOT = -1

_SEED, _PRIME = uint64(0xCBF29CE484222325), uint64(0x100000001B3)
_QUOTE, _BACKSLASH, _SLASH, _APOSTROPHE, _SPACE = 0x22, 0x5C, 0x2F, 0x27, 0x20
_B, _F, _N, _R, _T, _U = ord("b"), ord("f"), ord("n"), ord("r"), ord("t"), ord("u")
_HIGH, _LOW, _AFTER_LOW, _REPLACEMENT = 0xD800, 0xDC00, 0xE000, 0xFFFD
_LAST_RUNE = 0x10FFFF


@njit(cache=True, nogil=True)
def same_bytes(one, i, other, j, size):  # type: ignore[no-untyped-def]
    at = 0
    while at < size and one[i + at] == other[j + at]:
        at += 1
    return at == size


@njit(cache=True, nogil=True)
def same_key(data, start, end, parent, key, parents, starts, ends):  # type: ignore[no-untyped-def]
    """Whether the bytes are those of an interned key with this parent."""
    if parents[key] != parent or ends[key] - starts[key] != end - start:
        return False
    return same_bytes(data, starts[key], data, start, end - start)


@njit(cache=True, nogil=True)
def interned(data, start, end, parent, table, parents, starts, ends, count):  # type: ignore[no-untyped-def]
    """The number of a key. It equals `count` for a new one, which is added. `table` has a power of two places."""
    places = table.shape[0]
    hashed = _SEED ^ uint64(parent + 1)
    for i in range(start, end):
        hashed = (hashed ^ uint64(data[i])) * _PRIME
    place = np.int64((hashed ^ (hashed >> uint64(29))) & uint64(places - 1))
    while table[place] >= 0:
        if same_key(data, start, end, parent, table[place], parents, starts, ends):
            return table[place]
        place = (place + 1) & (places - 1)
    table[place] = count
    parents[count], starts[count], ends[count] = parent, start, end
    return count


@njit(cache=True, nogil=True)
def hex4(data, start, end):  # type: ignore[no-untyped-def]
    """The number of four hexadecimal digits, or -1."""
    if start + 4 > end:
        return -1
    number = 0
    for i in range(start, start + 4):
        c = data[i]
        if 0x30 <= c <= 0x39:
            digit = c - 0x30
        elif 0x41 <= c <= 0x46:
            digit = c - 0x41 + 10
        elif 0x61 <= c <= 0x66:
            digit = c - 0x61 + 10
        else:
            return -1
        number = number * 16 + digit
    return number


@njit(cache=True, nogil=True)
def put_rune(rune, out, at):  # type: ignore[no-untyped-def]
    """Write a character as UTF-8. What is none, and the replacement character, becomes a space."""
    if rune == _REPLACEMENT or rune > _LAST_RUNE or _HIGH <= rune < _AFTER_LOW:
        out[at] = _SPACE
        return at + 1
    if rune < 0x80:
        out[at] = rune
        return at + 1
    if rune < 0x800:
        out[at] = 0xC0 | (rune >> 6)
        out[at + 1] = 0x80 | (rune & 0x3F)
        return at + 2
    if rune < 0x10000:
        out[at] = 0xE0 | (rune >> 12)
        out[at + 1] = 0x80 | ((rune >> 6) & 0x3F)
        out[at + 2] = 0x80 | (rune & 0x3F)
        return at + 3
    out[at] = 0xF0 | (rune >> 18)
    out[at + 1] = 0x80 | ((rune >> 12) & 0x3F)
    out[at + 2] = 0x80 | ((rune >> 6) & 0x3F)
    out[at + 3] = 0x80 | (rune & 0x3F)
    return at + 4


@njit(cache=True, nogil=True)
def unicode_escape(data, i, end, quoted):  # type: ignore[no-untyped-def]
    """The character of a `\\u` escape that begins at `i`, and the bytes it takes; 0 bytes if it is malformed.

    A half of a surrogate pair is malformed in JSON, and the replacement character in logfmt.
    """
    rune = hex4(data, i + 2, end)
    if rune < 0:
        return 0, 0
    if not _HIGH <= rune < _AFTER_LOW:
        return rune, 6
    if quoted:
        low = -1
        if rune < _LOW and i + 12 <= end and data[i + 6] == _BACKSLASH and data[i + 7] == _U:
            low = hex4(data, i + 8, end)
        if _LOW <= low < _AFTER_LOW:
            return 0x10000 + ((rune - _HIGH) << 10) + (low - _LOW), 12
        return _REPLACEMENT, 6
    low = hex4(data, i + 8, end)
    if low < _LOW:
        return 0, 0
    return 0x10000 + ((rune - _HIGH) << 10) + (low - _LOW), 12


@njit(cache=True, nogil=True)
def simple_escape(c, quoted):  # type: ignore[no-untyped-def]
    """The byte of an escape of two bytes, or 0."""
    if c in (_QUOTE, _BACKSLASH, _SLASH) or (quoted and c == _APOSTROPHE):
        return np.int64(c)
    if c == _B:
        return 8
    if c == _F:
        return 12
    if c == _N:
        return 10
    if c == _R:
        return 13
    if c == _T:
        return 9
    return 0


@njit(cache=True, nogil=True)
def put_unescaped(data, start, end, quoted, out, at):  # type: ignore[no-untyped-def]
    """Write a value without its escapes; returns -1 if one of them is malformed.

    The text is never longer than the value. The replacement character becomes a space, as in Loki.
    """
    i = start
    while i < end:
        c = data[i]
        if c == _BACKSLASH:
            if i + 1 >= end:
                return -1
            plain = simple_escape(data[i + 1], quoted)
            if plain:
                out[at] = plain
                at += 1
                i += 2
                continue
            if data[i + 1] != _U:
                return -1
            rune, taken = unicode_escape(data, i, end, quoted)
            if taken == 0:
                return -1
            at = put_rune(rune, out, at)
            i += taken
        elif c == 0xEF and i + 2 < end and data[i + 1] == 0xBF and data[i + 2] == 0xBD:
            out[at] = _SPACE
            at += 1
            i += 3
        else:
            out[at] = c
            at += 1
            i += 1
    return at


@njit(cache=True, nogil=True)
def by_column(columns, total):  # type: ignore[no-untyped-def]
    """The fields in order of their columns, and where each column begins. Fields of column -1 are left out."""
    bounds = np.zeros(total + 1, np.int64)
    for column in columns:
        if column >= 0:
            bounds[column + 1] += 1
    for column in range(total):
        bounds[column + 1] += bounds[column]
    order = np.empty(bounds[total], np.int64)
    place = bounds[:-1].copy()
    for field in range(columns.shape[0]):
        column = columns[field]
        if column >= 0:
            order[place[column]] = field
            place[column] += 1
    return order, bounds


@njit(cache=True, nogil=True)
def column_bytes(order, starts, ends):  # type: ignore[no-untyped-def]
    """An upper bound of the bytes of a column."""
    total = 0
    for field in order:
        total += ends[field] - starts[field]
    return total


@njit(cache=True, nogil=True)
def fill_column(  # type: ignore[no-untyped-def]
    data, order, rows, starts, ends, kinds, last_wins, offsets, present, out
):
    """Write the fields of one column, which are in order of their rows. Returns the number of bytes.

    Of several fields in a row, the first or the last one counts.
    """
    at, row, number = 0, 0, order.shape[0]
    for place in range(number):
        field = order[place]
        target = rows[field]
        if last_wins:
            if place + 1 < number and rows[order[place + 1]] == target:
                continue
        elif place and rows[order[place - 1]] == target:
            continue
        while row <= target:
            offsets[row] = at
            row += 1
        present[target] = True
        kind, start, end = kinds[field], starts[field], ends[field]
        if kind == AS_IS:
            for i in range(start, end):
                out[at] = data[i]
                at += 1
        elif kind != EMPTY:
            written = put_unescaped(data, start, end, kind == QUOTED, out, at)
            if written >= 0:
                at = written
    while row < offsets.shape[0]:
        offsets[row] = at
        row += 1
    return at


@njit(cache=True, nogil=True)
def intern_again(  # type: ignore[no-untyped-def]
    data, old_parents, old_starts, old_ends, number, table, parents, starts, ends
):
    """Put keys into a larger table, with the numbers they had."""
    for key in range(number):
        interned(data, old_starts[key], old_ends[key], old_parents[key], table, parents, starts, ends, key)
