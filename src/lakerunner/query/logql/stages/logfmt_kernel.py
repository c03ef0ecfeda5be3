"""A kernel that finds the `key=value` pairs of logfmt lines.

A broken pair is skipped. For a strict stage it ends the line.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from lakerunner.query.logql.stages.field_kernels import (
    AS_IS,
    BARE,
    BIT,
    EMPTY,
    FOLLOW,
    KEY_END,
    KEY_START,
    NO_KEY_ROOM,
    NO_ROOM,
    QUOTED,
    ROOT,
    UNWANTED,
    interned,
    is_replacement,
    put_field,
    same_key,
)
from lakerunner.query.logql.stages.json_kernel import well_escaped

#: What is wrong with a line; ERRORS says it in words.
FINE, BAD_KEY, STRAY_EQUALS, STRAY_QUOTE, NOT_CLOSED, BAD_QUOTED = range(6)
ERRORS = (
    "",
    "invalid key",
    "unexpected '='",
    "unexpected '\"'",
    "unterminated quoted value",
    "invalid quoted value",
)

_BLANK, _QUOTE, _EQUALS, _BACKSLASH = 0x20, 0x22, 0x3D, 0x5C
#: 0: part of a key or value. 1: a blank or control character. 2: a quote. 3: an equals sign. 4: may begin U+FFFD.
_KIND = np.zeros(256, np.uint8)
_KIND[: _BLANK + 1] = 1
_KIND[_QUOTE], _KIND[_EQUALS], _KIND[0xEF] = 2, 3, 4


@njit(cache=True, nogil=True)
def _has_replacement(data, start, end):  # type: ignore[no-untyped-def]
    while start < end:
        if is_replacement(data, start, end):
            return True
        start += 1
    return False


@njit(cache=True, nogil=True)
def _to_blank(data, i, stop):  # type: ignore[no-untyped-def]
    while i < stop and data[i] > _BLANK:
        i += 1
    return i


@njit(cache=True, nogil=True)
def _key_end(data, i, stop, previous, keys):  # type: ignore[no-untyped-def]
    """The end of the key that begins at `i`, whether it may hold U+FFFD, and its number if it is the one expected."""
    guess = keys[FOLLOW, previous + 1]
    if guess >= 0:
        end = i + keys[KEY_END, guess] - keys[KEY_START, guess]
        if end < stop and data[end] == _EQUALS and same_key(data, i, end, ROOT, guess, keys):
            return end, False, guess
    special = False
    while i < stop:
        kind = _KIND[data[i]]
        if kind == 4:
            special = True
        elif kind:
            break
        i += 1
    return i, special, -1


@njit(cache=True, nogil=True)
def _value_end(data, i, stop):  # type: ignore[no-untyped-def]
    """The bare value that begins at `i`: an error, its end, and how it becomes a text."""
    how = AS_IS
    while i < stop:
        kind = _KIND[data[i]]
        if kind == 1:
            break
        if kind == 4:
            how = BARE
        elif kind:
            return (STRAY_QUOTE if kind == 2 else STRAY_EQUALS), i, how
        i += 1
    return FINE, i, how


@njit(cache=True, nogil=True)
def _quoted_end(data, i, stop):  # type: ignore[no-untyped-def]
    """The quoted value whose text begins at `i`: an error, the index of the closing quote, how it becomes a text."""
    how, escaped, start = AS_IS, False, i
    while i < stop:
        c = data[i]
        if c == _QUOTE:
            if escaped and not well_escaped(data, start, i, True):
                return BAD_QUOTED, i, how
            return FINE, i, how
        if c == _BACKSLASH:
            how, escaped = QUOTED, True
            i += 1
        elif c == 0xEF:
            how = QUOTED
        i += 1
    return NOT_CLOSED, stop, how


@njit(cache=True, nogil=True)
def _pair(data, i, stop, previous, keys):  # type: ignore[no-untyped-def]
    """The pair whose key begins at `i`.

    Returns an error and its place, then the end of the key, its number if known, the value's start and end, how it
    becomes a text, and where the next pair is looked for.
    """
    end, special, key = _key_end(data, i, stop, previous, keys)
    if key < 0:
        if end < stop and data[end] == _QUOTE:
            return STRAY_QUOTE, end, end, key, end, end, EMPTY, _to_blank(data, end, stop)
        equals = end < stop and data[end] == _EQUALS
        if special and _has_replacement(data, i, end):
            return BAD_KEY, end, end, key, end, end, EMPTY, _to_blank(data, end, stop)
        if equals and end == i:
            return STRAY_EQUALS, end, end, key, end, end, EMPTY, _to_blank(data, end, stop)
        if not equals:
            return FINE, 0, end, key, end, end, EMPTY, end
    start = end + 1
    if start >= stop or data[start] <= _BLANK:
        return FINE, 0, end, key, start, start, EMPTY, start
    if data[start] != _QUOTE:
        error, last, how = _value_end(data, start, stop)
        if error:
            return error, last, end, key, start, last, how, _to_blank(data, last, stop)
        return FINE, 0, end, key, start, last, how, last
    error, last, how = _quoted_end(data, start + 1, stop)
    if error == NOT_CLOSED:
        return error, stop, end, key, start, last, how, stop
    if error:
        return error, last + 1, end, key, start, last, how, last + 1
    return FINE, 0, end, key, start + 1, last, how, last + 1


@njit(cache=True, nogil=True)
def pairs(  # type: ignore[no-untyped-def]
    data, offsets, begin, end, strict, keep_empty, table, keys, count, enough, out, errors, places
):
    """Find the pairs of the lines from `begin` up to `end`.

    Returns the line at which it stopped, the numbers of fields and keys, and 0 or what there was no room for.
    `errors` and `places` get the first error of a strict line, and its place. `enough` has the bits of all wanted
    labels: a line in which they are found is read no further. With -1, every line is read to its end.
    """
    used = 0
    for row in range(begin, end):
        i, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        first, mark, previous, found = i, used, -1, 0
        errors[row] = FINE
        while True:
            while i < stop and data[i] <= _BLANK:
                i += 1
            if i >= stop:
                break
            error, place, key_end, key, start, last, how, after = _pair(data, i, stop, previous, keys)
            if error:
                if strict:
                    errors[row], places[row] = error, place - first + 1
                    break
                i = after
                continue
            if key < 0:
                # The last place is for what follows the last key, and for the secret of the table.
                if count + 1 >= keys.shape[1]:
                    return row, mark, count, NO_KEY_ROOM
                key = interned(data, i, key_end, ROOT, table, keys, count)
                count = max(count, key + 1)
                keys[FOLLOW, previous + 1] = key
            previous = key
            i = after
            if keys[UNWANTED, key] or (not keep_empty and (how == EMPTY or start == last)):
                continue
            if used >= out.shape[0]:
                return row, mark, count, NO_ROOM
            used = put_field(out, used, row, key, start, last, how)
            found |= keys[BIT, key]
            if found == enough:
                break
    return end, used, count, FINE
