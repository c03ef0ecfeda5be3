"""The rules of the JSON parser that Loki uses, written as plainly as possible, to compare the kernel with."""

from __future__ import annotations

import re
from collections.abc import Iterator

_BLANKS = b" \t\n\r"
_ENDS_TOKEN = _BLANKS + b",}]"
_ESCAPE = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')

BAD_JSON = "Malformed JSON error"
BAD_STRING = "Value is string, but can't find closing '\"' symbol"
BAD_ARRAY = "Value is array, but can't find closing ']' symbol"
BAD_OBJECT = "Value looks like object, but can't find closing '}' symbol"
BAD_VALUE = "Unknown value type"
BAD_ESCAPE = "Encountered an invalid escape sequence in a string"


class Malformed(Exception):
    pass


def leaves(line: bytes, path: tuple[bytes, ...] = ()) -> Iterator[tuple[tuple[bytes, ...], bytes]]:
    """The path and the raw value of each text, number and boolean of an object; raises where the line is malformed."""
    at = _next(line, 0, BAD_OBJECT)
    if line[at : at + 1] != b"{":
        raise Malformed(BAD_OBJECT)
    at = _next(line, at + 1, BAD_JSON)
    while True:
        if at >= len(line):
            raise Malformed(BAD_OBJECT)
        if line[at : at + 1] == b"}":
            return
        if line[at : at + 1] != b'"':
            raise Malformed(BAD_OBJECT)
        end = _text_end(line, at + 1)
        if end is None:
            raise Malformed(BAD_JSON)
        key = line[at + 1 : end]
        if b"\\" in _ESCAPE.sub(b"", key):
            raise Malformed(BAD_ESCAPE)
        at = _next(line, end + 1, BAD_JSON)
        if line[at : at + 1] != b":":
            raise Malformed(BAD_JSON)
        start = _next(line, at + 1, BAD_JSON)
        value, at = _value(line, start)
        first = line[start : start + 1]
        if first == b"{":
            yield from leaves(value, (*path, key))
        elif (first != b"[" and value != b"null") or first == b'"':
            yield (*path, key), value
        at = _next(line, at, BAD_ARRAY)
        if line[at : at + 1] == b"}":
            return
        if line[at : at + 1] != b",":
            raise Malformed(BAD_OBJECT)
        at = _next(line, at + 1, BAD_ARRAY)


def _next(line: bytes, at: int, error: str) -> int:
    while at < len(line) and line[at] in _BLANKS:
        at += 1
    if at >= len(line):
        raise Malformed(error)
    return at


def _text_end(line: bytes, at: int) -> int | None:
    while at < len(line):
        if line[at : at + 1] == b'"':
            return at
        at += 2 if line[at : at + 1] == b"\\" else 1
    return None


def _block_end(line: bytes, at: int, opening: bytes, closing: bytes) -> int | None:
    level = 0
    while at < len(line):
        c = line[at : at + 1]
        if c == b'"':
            end = _text_end(line, at + 1)
            if end is None:
                return None
            at = end
        level += (c == opening) - (c == closing)
        if c == closing and level == 0:
            return at + 1
        at += 1
    return None


def _value(line: bytes, at: int) -> tuple[bytes, int]:
    """The raw value at `at`, texts with their quotes, and the index behind it."""
    first = line[at : at + 1]
    if first == b'"':
        end = _text_end(line, at + 1)
        if end is None:
            raise Malformed(BAD_STRING)
        return line[at : end + 1], end + 1
    for opening, closing, error in ((b"{", b"}", BAD_OBJECT), (b"[", b"]", BAD_ARRAY)):
        if first == opening:
            end = _block_end(line, at, opening, closing)
            if end is None:
                raise Malformed(error)
            return line[at:end], end
    end = at
    while end < len(line) and line[end] not in _ENDS_TOKEN:
        end += 1
    token = line[at:end]
    if token in (b"true", b"false", b"null") or first in (b"-", *(b"%d" % digit for digit in range(10))):
        return token, end
    raise Malformed(BAD_VALUE)
