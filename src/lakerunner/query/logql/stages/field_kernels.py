"""Kernels that intern the keys of fields found in lines, and that build one column of texts from the fields.

A field is a key, and a range of bytes of the lines as its value. Keys form a tree, because objects are nested: a key is
known by its parent and its bytes.
"""

from __future__ import annotations

import numpy as np
from numba import njit, uint64

from lakerunner.model.inner_kernel import inner_kernel

#: How the bytes of a value become its text. In all but the first and the last of them, U+FFFD becomes a space.
AS_IS, JSON_ESCAPED, QUOTED, EMPTY, BARE, JSON_LINE = range(6)
#: Reasons why a kernel stops early: no room is left for fields, or for keys.
NO_ROOM, NO_KEY_ROOM = 100, 101
#: The parent of top-level keys.
ROOT = -1
#: What is known of a key, one row each: its parent, its bytes, the key that followed it last time (one place further
#: on, because nothing precedes the first key of a line), whether it has escapes, whether its label is not wanted, and
#: the bit of the label among those that are, or 0.
#: It is one array, because handing over many arrays takes a kernel longer than handling a key.
PARENT, KEY_START, KEY_END, FOLLOW, ESCAPED, UNWANTED, BIT = range(7)
KEY_PARTS = 7
#: What is known of a field, side by side: its line, key, the bytes of its value, and how those become a text.
ROW, KEY, START, END, KIND = range(5)
FIELD_PARTS = 5

_SEED, _PRIME = uint64(0xCBF29CE484222325), uint64(0x100000001B3)
_QUOTE, _BACKSLASH, _SLASH, _APOSTROPHE, _SPACE = 0x22, 0x5C, 0x2F, 0x27, 0x20
_B, _F, _N, _R, _T, _U = ord("b"), ord("f"), ord("n"), ord("r"), ord("t"), ord("u")
_HIGH, _LOW, _AFTER_LOW, _REPLACEMENT = 0xD800, 0xDC00, 0xE000, 0xFFFD
_LAST_RUNE = 0x10FFFF


@inner_kernel(inline="always")
def same_bytes(one, i, other, j, size):  # type: ignore[no-untyped-def]
    at = 0
    while at < size and one[i + at] == other[j + at]:
        at += 1
    return at == size


@inner_kernel(inline="always")
def same_key(data, start, end, parent, key, keys):  # type: ignore[no-untyped-def]
    """Whether the bytes are those of an interned key with this parent."""
    first = keys[KEY_START, key]
    if keys[PARENT, key] != parent or keys[KEY_END, key] - first != end - start:
        return False
    return same_bytes(data, first, data, start, end - start)


@inner_kernel()
def interned(data, start, end, parent, table, keys, count):  # type: ignore[no-untyped-def]
    """The number of a key. It equals `count` for a new one, which is added. `table` has a power of two places."""
    places = table.shape[0]
    # The last place of `keys` is never taken by a key. It has a secret, so that nobody can write keys that collide.
    hashed = _SEED ^ uint64(parent + 1) ^ (uint64(keys[KEY_START, keys.shape[1] - 1]) << uint64(32))
    for i in range(start, end):
        hashed = (hashed ^ uint64(data[i])) * _PRIME
    place = np.int64((hashed ^ (hashed >> uint64(29))) & uint64(places - 1))
    while table[place] >= 0:
        if same_key(data, start, end, parent, table[place], keys):
            return table[place]
        place = (place + 1) & (places - 1)
    table[place] = count
    keys[PARENT, count], keys[KEY_START, count], keys[KEY_END, count] = parent, start, end
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


@inner_kernel(inline="always")
def is_replacement(data, i, end):  # type: ignore[no-untyped-def]
    """Whether U+FFFD stands at `i`."""
    return data[i] == 0xEF and i + 2 < end and data[i + 1] == 0xBF and data[i + 2] == 0xBD


@njit(cache=True, nogil=True)
def put_unescaped(data, start, end, quoted, out, at, escapes=True, replaces=True):  # type: ignore[no-untyped-def]
    """Write a value without its escapes; returns -1 if one of them is malformed.

    The text is never longer than the value. The replacement character becomes a space, as in Loki, if it `replaces`.
    """
    i = start
    while i < end:
        c = data[i]
        if c == _BACKSLASH and escapes:
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
            if rune == _REPLACEMENT and not replaces:
                out[at], out[at + 1], out[at + 2] = 0xEF, 0xBF, 0xBD
                at += 3
            else:
                at = put_rune(rune, out, at)
            i += taken
        elif replaces and is_replacement(data, i, end):
            out[at] = _SPACE
            at += 1
            i += 3
        else:
            out[at] = c
            at += 1
            i += 1
    return at


@njit(cache=True, nogil=True)
def replaced(data, fields):  # type: ignore[no-untyped-def]
    """Which values of logfmt hold U+FFFD, or an escape that stands for it."""
    found = np.zeros(fields.shape[0], np.bool_)
    for field in range(fields.shape[0]):
        i, end, kind = fields[field, START], fields[field, END], fields[field, KIND]
        while i < end and kind in (QUOTED, BARE) and not found[field]:
            step = 1
            if is_replacement(data, i, end):
                found[field] = True
            elif kind == QUOTED and data[i] == _BACKSLASH:
                step = 2
                if i + 1 < end and data[i + 1] == _U:
                    rune, taken = unicode_escape(data, i, end, True)
                    found[field] = rune == _REPLACEMENT
                    step = max(step, taken)
            i += step
    return found


@njit(cache=True, nogil=True)
def column_sizes(fields, columns, total):  # type: ignore[no-untyped-def]
    """An upper bound of the bytes of each column. Fields of column -1 are left out."""
    sizes = np.zeros(total, np.int64)
    for field in range(columns.shape[0]):
        if columns[field] >= 0:
            sizes[columns[field]] += fields[field, END] - fields[field, START]
    return sizes


@njit(cache=True, nogil=True)
def fill_columns(data, fields, columns, last_wins, offsets, present, out, bases):  # type: ignore[no-untyped-def]
    """Write the texts of all columns in one pass: each line is then in the cache for all of its fields.

    The texts of a column begin at its base in `out`, and its offsets are relative to that. The fields are in order of
    their rows. Of several fields in one cell, the first or the last one counts.
    """
    total, rows = present.shape
    at, filled = bases.copy(), np.zeros(total, np.int64)
    for field in range(columns.shape[0]):
        column, row = columns[field], fields[field, ROW]
        if column < 0:
            continue
        if present[column, row]:
            if not last_wins:
                continue
            at[column] = bases[column] + offsets[column, row]
        present[column, row] = True
        while filled[column] <= row:
            offsets[column, filled[column]] = at[column] - bases[column]
            filled[column] += 1
        kind, start, end, place = fields[field, KIND], fields[field, START], fields[field, END], at[column]
        if kind == AS_IS:
            for i in range(start, end):
                out[place] = data[i]
                place += 1
        elif kind != EMPTY:
            written = put_unescaped(data, start, end, kind == QUOTED, out, place, kind != BARE, kind != JSON_LINE)
            place = max(place, written)
        at[column] = place
    for column in range(total):
        for row in range(filled[column], rows + 1):
            offsets[column, row] = at[column] - bases[column]


@njit(cache=True, nogil=True)
def intern_again(data, old_keys, number, table, keys):  # type: ignore[no-untyped-def]
    """Put keys into a larger table, with the numbers they had."""
    for key in range(number):
        start, end = old_keys[KEY_START, key], old_keys[KEY_END, key]
        interned(data, start, end, old_keys[PARENT, key], table, keys, key)
        for part in (ESCAPED, UNWANTED, BIT):
            keys[part, key] = old_keys[part, key]


@inner_kernel(inline="always")
def put_field(out, used, row, key, start, end, kind):  # type: ignore[no-untyped-def]
    out[used, ROW], out[used, KEY], out[used, KIND] = row, key, kind
    out[used, START], out[used, END] = start, end
    return used + 1
