"""Kernels that find the fields of JSON lines, in the way of the parser that Loki uses.

That parser is lenient. An object ends where its braces balance, whatever stands between them. A number is everything up
to the next separator. Fields before an error count, and text after the first object is ignored. So a strict JSON reader
would give other labels.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from lakerunner.model.byte_vectors import SHORT_BLOCK, lowest_bit, places_of_any
from lakerunner.model.inner_kernel import inner_kernel
from lakerunner.query.logql.stages.field_kernels import (
    AS_IS,
    BIT,
    END,
    ESCAPED,
    FOLLOW,
    JSON_ESCAPED,
    KEY_END,
    KEY_START,
    NO_KEY_ROOM,
    NO_ROOM,
    ROOT,
    START,
    UNWANTED,
    interned,
    put_field,
    same_bytes,
    same_key,
    simple_escape,
    unicode_escape,
)

#: Objects within objects. Each level is scanned once more, so the depth limits the cost of a line.
MAX_DEPTH = 100
#: What is wrong with a line; ERRORS says it in words.
FINE, BAD_JSON, BAD_STRING, BAD_ARRAY, BAD_OBJECT, BAD_VALUE, BAD_ESCAPE, TOO_DEEP = range(8)
#: What the quick way through a line leaves to the exact one.
DOUBTFUL = 99

ERRORS = (
    "",
    "Malformed JSON error",
    "Value is string, but can't find closing '\"' symbol",
    "Value is array, but can't find closing ']' symbol",
    "Value looks like object, but can't find closing '}' symbol",
    "Unknown value type",
    "Encountered an invalid escape sequence in a string",
    f"objects are nested deeper than {MAX_DEPTH} levels",
)

_QUOTE, _BACKSLASH, _COMMA, _COLON, _U = ord('"'), ord("\\"), ord(","), ord(":"), ord("u")
_OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = ord("{"), ord("}"), ord("["), ord("]")
_TRUE, _FALSE, _NULL = (np.frombuffer(word, np.uint8) for word in (b"true", b"false", b"null"))
#: Types of a value.
STRING, NUMBER, OBJECT, ARRAY, BOOLEAN, NULL = range(1, 7)

#: The byte with which U+FFFD may begin.
_REPLACES = 0xEF
_BLANK = np.zeros(256, np.bool_)
_BLANK[[0x20, 0x09, 0x0A, 0x0D]] = True
_ENDS_TOKEN = _BLANK.copy()
_ENDS_TOKEN[[_COMMA, _CLOSE, _CLOSE_LIST]] = True


@inner_kernel(inline="always")
def after_blanks(data, i, stop):  # type: ignore[no-untyped-def]
    while i < stop and _BLANK[data[i]]:
        i += 1
    return i


@inner_kernel()
def text_end(data, i, stop):  # type: ignore[no-untyped-def]
    """The index of the quote that ends a text, or -1; whether the text must be unescaped, and has escapes."""
    special, escaped = False, False
    while i < stop:
        if i + SHORT_BLOCK <= len(data):
            places = places_of_any(data, i, _QUOTE, _BACKSLASH, _REPLACES)
            if not places:
                i += SHORT_BLOCK
                continue
            i += lowest_bit(places)
            if i >= stop:
                break
        c = data[i]
        if c == _QUOTE:
            return i, special, escaped
        if c == _BACKSLASH:
            special = escaped = True
            i += 1
        elif c == _REPLACES:
            special = True
        i += 1
    return -1, special, escaped


@inner_kernel()
def block_end(data, i, stop, opening, closing):  # type: ignore[no-untyped-def]
    """The index behind the bracket that closes the one at `i`, or -1. Other brackets do not count."""
    level = 0
    while i < stop:
        c = data[i]
        if c == _QUOTE:
            i, _, _ = text_end(data, i + 1, stop)
            if i < 0:
                return -1
        elif c == opening:
            level += 1
        elif c == closing:
            level -= 1
            if level == 0:
                return i + 1
        i += 1
    return -1


@inner_kernel()
def _is_word(data, start, end, word):  # type: ignore[no-untyped-def]
    return end - start == word.shape[0] and same_bytes(data, start, word, 0, end - start)


@inner_kernel()
def token(data, i, stop):  # type: ignore[no-untyped-def]
    """The end and the type of a number, a boolean or null; the type is 0 if it is none of them."""
    end = i
    while end < stop and not _ENDS_TOKEN[data[end]]:
        end += 1
    c = data[i]
    if 0x30 <= c <= 0x39 or c == 0x2D:
        return end, NUMBER
    if _is_word(data, i, end, _TRUE) or _is_word(data, i, end, _FALSE):
        return end, BOOLEAN
    if _is_word(data, i, end, _NULL):
        return end, NULL
    return end, 0


@inner_kernel()
def value_at(data, i, stop):  # type: ignore[no-untyped-def]
    """The value that begins at or behind `i`: an error, its type, start, end, and how it becomes a text.

    A text is without its quotes, so it ends one byte later than its `end`.
    """
    i = after_blanks(data, i, stop)
    if i >= stop:
        return BAD_JSON, 0, i, i, AS_IS
    c = data[i]
    if c == _QUOTE:
        end, special, _ = text_end(data, i + 1, stop)
        if end < 0:
            return BAD_STRING, STRING, i, i, AS_IS
        return FINE, STRING, i + 1, end, JSON_ESCAPED if special else AS_IS
    if c == _OPEN:
        end = block_end(data, i, stop, _OPEN, _CLOSE)
        return (BAD_OBJECT if end < 0 else FINE), OBJECT, i, end, AS_IS
    if c == _OPEN_LIST:
        end = block_end(data, i, stop, _OPEN_LIST, _CLOSE_LIST)
        return (BAD_ARRAY if end < 0 else FINE), ARRAY, i, end, AS_IS
    end, kind = token(data, i, stop)
    return (FINE if kind else BAD_VALUE), kind, i, end, AS_IS


@inner_kernel()
def well_escaped(data, start, end, quoted):  # type: ignore[no-untyped-def]
    """Whether all escapes of a text are well-formed."""
    i = start
    while i < end:
        if data[i] != _BACKSLASH:
            i += 1
            continue
        if i + 1 >= end:
            return False
        if simple_escape(data[i + 1], quoted):
            i += 2
            continue
        if data[i + 1] != _U:
            return False
        _, taken = unicode_escape(data, i, end, quoted)
        if taken == 0:
            return False
        i += taken
    return True


@njit(cache=True, nogil=True)
def malformed(data, fields):  # type: ignore[no-untyped-def]
    """Which fields have a malformed escape."""
    found = np.zeros(fields.shape[0], np.bool_)
    for field in range(fields.shape[0]):
        start, end = fields[field, START], fields[field, END]
        found[field] = not well_escaped(data, start, end, False)
    return found


@inner_kernel(inline="always")
def _key_at(data, i, stop, parent, previous, table, keys, count):  # type: ignore[no-untyped-def]
    """The key whose text begins at `i`: an error, its number, and the index behind its closing quote.

    Lines of one source have the same keys in the same order, so the key that followed `previous` last time is tried
    first. That saves finding the end of the text, and hashing it.
    """
    guess = keys[FOLLOW, previous + 1]
    if guess >= 0 and not keys[ESCAPED, guess]:
        end = i + keys[KEY_END, guess] - keys[KEY_START, guess]
        if end < stop and data[end] == _QUOTE and same_key(data, i, end, parent, guess, keys):
            return FINE, guess, end + 1
    end, _, escaped = text_end(data, i, stop)
    if end < 0:
        return BAD_JSON, -1, i
    if escaped and not well_escaped(data, i, end, False):
        return BAD_ESCAPE, -1, i
    # The last place is for what follows the last key, and for the secret of the table.
    if count + 1 >= keys.shape[1]:
        return NO_KEY_ROOM, -1, i
    key = interned(data, i, end, parent, table, keys, count)
    keys[ESCAPED, key] = escaped
    keys[FOLLOW, previous + 1] = key
    return FINE, key, end + 1


@inner_kernel()
def _list_end(data, i, stop):  # type: ignore[no-untyped-def]
    """The index behind the array at `i`, or -1 if it is malformed or its braces do not balance."""
    level, braces = 0, 0
    while i < stop:
        c = data[i]
        if c == _QUOTE:
            i, _, _ = text_end(data, i + 1, stop)
            if i < 0:
                return -1
        elif c == _OPEN:
            braces += 1
        elif c == _CLOSE:
            braces -= 1
            if braces < 0:
                return -1
        elif c == _OPEN_LIST:
            level += 1
        elif c == _CLOSE_LIST:
            level -= 1
            if level == 0:
                return i + 1 if braces == 0 else -1
        i += 1
    return -1


@inner_kernel()
def _value_quickly(data, i, stop):  # type: ignore[no-untyped-def]
    """As `value_at`, but an object ends at once, to be read in place. DOUBTFUL for all that may be malformed."""
    i = after_blanks(data, i, stop)
    if i >= stop:
        return DOUBTFUL, 0, i, i, AS_IS
    c = data[i]
    if c == _QUOTE:
        end, special, _ = text_end(data, i + 1, stop)
        return (DOUBTFUL if end < 0 else FINE), STRING, i + 1, end, JSON_ESCAPED if special else AS_IS
    if c == _OPEN:
        return FINE, OBJECT, i, stop, AS_IS
    if c == _OPEN_LIST:
        end = _list_end(data, i, stop)
        return (DOUBTFUL if end < 0 else FINE), ARRAY, i, end, AS_IS
    end, kind = token(data, i, stop)
    for place in range(i, end):
        if data[place] == _OPEN or data[place] == _QUOTE:
            return DOUBTFUL, kind, i, end, AS_IS
    return (FINE if kind else DOUBTFUL), kind, i, end, AS_IS


@inner_kernel()
def _flatten_line(  # type: ignore[no-untyped-def]
    data, i, stop, row, packed, quick, table, keys, count, enough, out, used, stops, above
):
    """Find the fields of one line: an error, and how many fields and keys there are now.

    `quick` reads nested objects in place, without finding their ends first. It gives up with an error if anything may
    be malformed; what it found then means nothing.
    """
    parent, depth, previous, found = ROOT, 0, -1, 0
    i = after_blanks(data, i, stop)
    if i >= stop or data[i] != _OPEN:
        return BAD_OBJECT, used, count
    opened = True
    while True:
        if opened:
            i = after_blanks(data, i + 1, stop)
            if i >= stop:
                return BAD_JSON, used, count
            opened = False
        if i >= stop:
            return BAD_OBJECT, used, count
        closed = data[i] == _CLOSE
        if not closed:
            if data[i] != _QUOTE:
                return BAD_OBJECT, used, count
            error, key, i = _key_at(data, i + 1, stop, parent, previous, table, keys, count)
            if error:
                return error, used, count
            count, previous = max(count, key + 1), key
            i = after_blanks(data, i, stop)
            if i >= stop or data[i] != _COLON:
                return BAD_JSON, used, count
            if quick:
                error, kind, start, end, how = _value_quickly(data, i + 1, stop)
            else:
                error, kind, start, end, how = value_at(data, i + 1, stop)
            if error:
                return error, used, count
            if kind == OBJECT and not packed:
                if depth == MAX_DEPTH:
                    return TOO_DEEP, used, count
                stops[depth], above[depth] = stop, parent
                depth += 1
                i, stop, parent, opened = start, end, key, True
                continue
            wanted = kind == STRING or (not packed and (kind in (NUMBER, BOOLEAN)))
            if wanted and not keys[UNWANTED, key]:
                if used >= out.shape[0]:
                    return NO_ROOM, used, count
                used = put_field(out, used, row, key, start, end, how)
                found |= keys[BIT, key]
                if found == enough:
                    return FINE, used, count
            i = end + 1 if kind == STRING else end
        while True:
            if closed:
                if depth == 0:
                    return FINE, used, count
                depth -= 1
                i = i + 1 if quick else stop
                stop, parent = stops[depth], above[depth]
            i = after_blanks(data, i, stop)
            if i >= stop:
                return BAD_ARRAY, used, count
            closed = data[i] == _CLOSE
            if not closed:
                break
        if data[i] != _COMMA:
            return BAD_OBJECT, used, count
        # A brace may follow the comma.
        i = after_blanks(data, i + 1, stop)
        if i >= stop:
            return BAD_ARRAY, used, count


@njit(cache=True, nogil=True)
def flatten(data, offsets, begin, end, packed, table, keys, count, enough, out, errors):  # type: ignore[no-untyped-def]
    """Find the fields of the lines from `begin` up to `end`.

    Returns the line at which it stopped, the numbers of fields and keys, and 0 or what there was no room for.
    `packed`: only the texts of the outermost object count. `enough` has the bits of all wanted labels: a line in which
    they are found is read no further. With -1, every line is read to its end.
    """
    used = 0
    stops, above = np.empty(MAX_DEPTH, np.int64), np.empty(MAX_DEPTH, np.int64)
    for row in range(begin, end):
        i, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        error, now, count = _flatten_line(
            data, i, stop, row, packed, not packed, table, keys, count, enough, out, used, stops, above
        )
        if error and error < NO_ROOM and not packed:
            error, now, count = _flatten_line(
                data, i, stop, row, packed, False, table, keys, count, enough, out, used, stops, above
            )
        if error >= NO_ROOM:
            return row, used, count, error
        errors[row] = error
        used = now
    return end, used, count, FINE
