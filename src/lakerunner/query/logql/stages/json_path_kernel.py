"""A kernel that finds the values at given paths of JSON lines, in the way of the parser that Loki uses.

The line is scanned from the front until all paths are found. Nothing behind the last of them is looked at, and most
malformed lines just have no value, so the answer for a malformed line depends on this order.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from lakerunner.query.logql.stages.field_kernels import (
    AS_IS,
    EMPTY,
    JSON_ESCAPED,
    NO_ROOM,
    put_field,
    put_unescaped,
    same_bytes,
)
from lakerunner.query.logql.stages.json_kernel import (
    ARRAY,
    BAD_JSON,
    FINE,
    NULL,
    NUMBER,
    STRING,
    after_blanks,
    block_end,
    text_end,
    value_at,
    well_escaped,
)

#: The line is no JSON from its first byte on.
NO_START = 50

_QUOTE, _COMMA, _COLON = ord('"'), ord(","), ord(":")
_OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = ord("{"), ord("}"), ord("["), ord("]")


@njit(cache=True, nogil=True)
def _is_step(data, start, end, escaped, paths, step):  # type: ignore[no-untyped-def]
    """Whether a key of the line is the key of this step."""
    text, bounds = paths[0], paths[1]
    first, size = bounds[step], bounds[step + 1] - bounds[step]
    if escaped:
        plain = np.empty(end - start, np.uint8)
        written = put_unescaped(data, start, end, False, plain, 0)
        return written == size and same_bytes(plain, 0, text, first, size)
    return end - start == size and same_bytes(data, start, text, first, size)


@njit(cache=True, nogil=True)
def _in_tree(data, path, level, paths, at):  # type: ignore[no-untyped-def]
    """Whether the keys around the current place are the first steps of the path."""
    steps = paths[2]
    for depth in range(min(level, steps[path + 1] - steps[path])):
        if not _is_step(data, at[depth, 0], at[depth, 1], at[depth, 2] != 0, paths, steps[path] + depth):
            return False
    return True


@njit(cache=True, nogil=True)
def _element(data, i, stop, wanted):  # type: ignore[no-untyped-def]
    """The element of an array that begins at `i`: whether it is there, its type, start, end, how it becomes a text."""
    number = 0
    i = after_blanks(data, i + 1, stop)
    if i >= stop or data[i] == _CLOSE_LIST:
        return False, 0, i, i, AS_IS
    while True:
        error, kind, start, end, how = value_at(data, i, stop)
        if error:
            return False, 0, i, i, AS_IS
        if number == wanted:
            return True, kind, start, end, how
        number += 1
        i = after_blanks(data, end + 1 if kind == STRING else end, stop)
        if i >= stop or data[i] != _COMMA:
            return False, 0, i, i, AS_IS
        i += 1


@njit(cache=True, nogil=True)
def _array_end(data, i, stop):  # type: ignore[no-untyped-def]
    """Where the elements of an array that begins at `i` end: its closing bracket, or what is no element."""
    i = after_blanks(data, i + 1, stop)
    if i >= stop or data[i] == _CLOSE_LIST:
        return i
    while True:
        error, kind, _, end, _ = value_at(data, i, stop)
        if error:
            return i
        i = after_blanks(data, end + 1 if kind == STRING else end, stop)
        if i >= stop or data[i] != _COMMA:
            return i
        i += 1


@njit(cache=True, nogil=True)
def _search(data, i, stop, first, last, paths):  # type: ignore[no-untyped-def]
    """The place behind the keys of the steps from `first` to `last` within a value, or -1."""
    indexes = paths[3]
    matched, level, last_matched = 0, 0, True
    while first < last and i < stop:
        c = data[i]
        if c == _QUOTE:
            start = i + 1
            end, _, escaped = text_end(data, start, stop)
            if end < 0:
                return -1
            i = after_blanks(data, end + 1, stop)
            if i >= stop:
                return -1
            if data[i] == _COLON:
                if level < 1 or level > last - first or (escaped and not well_escaped(data, start, end, False)):
                    return -1
                last_matched = _is_step(data, start, end, escaped, paths, first + level - 1)
                if last_matched and matched == level - 1:
                    matched += 1
                    if matched == last - first:
                        return i + 1
            else:
                i -= 1
        elif c == _OPEN:
            if last_matched:
                level += 1
            else:
                end = block_end(data, i, stop, _OPEN, _CLOSE)
                if end < 0:
                    return -1
                i = end - 1
        elif c == _CLOSE:
            level -= 1
            if level == matched:
                matched -= 1
        elif c == _OPEN_LIST:
            if matched == level and level >= 0 and indexes[first + level] >= 0:
                found, kind, start, end, _ = _element(data, i, stop, indexes[first + level])
                if not found:
                    return -1
                if kind == STRING:
                    start, end = start - 1, end + 1
                i, stop, first = start, end, first + level + 1
                matched, level, last_matched = 0, 0, True
                continue
            end = block_end(data, i, stop, _OPEN_LIST, _CLOSE_LIST)
            if end < 0:
                return -1
            i = end - 1
        elif c == _COLON:
            return -1
        i += 1
    return i if first == last else -1


@njit(cache=True, nogil=True)
def _put(out, used, row, path, kind, start, end, how):  # type: ignore[no-untyped-def]
    if kind == NULL:
        how = EMPTY
    elif kind in (ARRAY, NUMBER):
        # What begins like a number goes on to the next separator, and may hold anything.
        how = JSON_ESCAPED
    return put_field(out, used, row, path, start, end, how)


@njit(cache=True, nogil=True)
def _elements(data, i, stop, level, row, paths, at, done, out, used):  # type: ignore[no-untyped-def]
    """Look up the paths that lead into the array at `i`: the number of such paths, of fields, and an error."""
    steps, indexes = paths[2], paths[3]
    entered, error = 0, FINE
    for path in range(done.shape[0]):
        if done[path] or steps[path + 1] - steps[path] < level + 1 or indexes[steps[path] + level] < 0:
            continue
        if not _in_tree(data, path, level, paths, at):
            continue
        entered += 1
        found, kind, start, end, how = _element(data, i, stop, indexes[steps[path] + level])
        if not found:
            continue
        done[path] = True
        rest = steps[path] + level + 1
        if rest == steps[path + 1]:
            used = _put(out, used, row, path, kind, start, end, how)
            continue
        place = _search(data, start, end, rest, steps[path + 1], paths)
        if place >= 0:
            wrong, kind, start, end, how = value_at(data, place, end)
            if wrong:
                error = wrong
            else:
                used = _put(out, used, row, path, kind, start, end, how)
    return entered, used, error


@njit(cache=True, nogil=True)
def _line(data, i, stop, row, paths, deepest, at, done, out, used):  # type: ignore[no-untyped-def]
    """Find the paths in one line: an error, and the number of fields."""
    steps = paths[2]
    level, error, total = 0, FINE, done.shape[0]
    done[:], at[:] = False, 0
    while i < stop:
        c = data[i]
        if c == _QUOTE:
            start = i + 1
            end, _, escaped = text_end(data, start, stop)
            if end < 0:
                return error, used
            i = after_blanks(data, end + 1, stop)
            if i >= stop:
                return error, used
            if data[i] == _COLON:
                if escaped and not well_escaped(data, start, end, False):
                    return error, used
                if level <= deepest:
                    if level < 1:
                        return BAD_JSON, used
                    at[level - 1, 0], at[level - 1, 1], at[level - 1, 2] = start, end, escaped
                    for path in range(total):
                        if done[path] or steps[path + 1] - steps[path] != level:
                            continue
                        if not _in_tree(data, path, level, paths, at):
                            continue
                        done[path] = True
                        wrong, kind, start, end, how = value_at(data, i + 1, stop)
                        if wrong:
                            error = wrong
                        else:
                            used = _put(out, used, row, path, kind, start, end, how)
                    if done.all():
                        return error, used
            else:
                i -= 1
        elif c == _OPEN:
            level += 1
        elif c in (_CLOSE, _CLOSE_LIST):
            level -= 1
        elif c == _OPEN_LIST:
            if level < 0:
                return BAD_JSON, used
            entered, used, wrong = _elements(data, i, stop, level, row, paths, at, done, out, used)
            error = wrong if wrong else error
            if entered:
                if done.all():
                    return error, used
                level += 1
                i = _array_end(data, i, stop) - 1
            else:
                end = block_end(data, i, stop, _OPEN_LIST, _CLOSE_LIST)
                if end < 0:
                    return error, used
                i = end - 1
        i += 1
    return error, used


@njit(cache=True, nogil=True)
def values_at(data, offsets, begin, end, paths, out, errors):  # type: ignore[no-untyped-def]
    """Find the values at the paths in the lines from `begin` up to `end`, in the order in which they stand there.

    `paths`: the keys one after the other, where each begins, where the steps of each path begin, and the indexes of
    arrays, or -1. Returns the line at which it stopped, the number of fields, and NO_ROOM if it stopped early.
    """
    steps = paths[2]
    total, deepest, used = steps.shape[0] - 1, 0, 0
    for path in range(total):
        deepest = max(deepest, steps[path + 1] - steps[path])
    at, done = np.zeros((deepest, 3), np.int64), np.zeros(total, np.bool_)
    for row in range(begin, end):
        i, stop = offsets[row], offsets[row + 1]
        if i == stop:
            continue
        if data[i] != _QUOTE and data[i] != _OPEN and data[i] != _OPEN_LIST:
            errors[row] = NO_START
            continue
        if used + total > out.shape[0]:
            return row, used, NO_ROOM
        errors[row], used = _line(data, i, stop, row, paths, deepest, at, done, out, used)
    return end, used, FINE
