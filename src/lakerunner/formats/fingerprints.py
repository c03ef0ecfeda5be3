"""Patterns of messages: the text with holes for what varies, and a fingerprint of it.

A word with a digit varies, and so do hex words of ids and addresses, and quoted texts that are no key. Neighbouring
holes become one, so `10.0.0.1:80`, a date and a UUID are one hole each. Messages of one pattern have the same
fingerprint; the pattern's text can be made from any of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit, uint8, uint64

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

#: Patterns are made of the first bytes of a message. Few log lines are longer, and a dump of a whole request would
#: have no pattern anyway.
MAX_BYTES = 1_024
HOLE = "<_>"
#: Longer words of hex digits are ids even without a digit from 0 to 9.
_HEX_WORD = 8

_OTHER, _LETTER, _HEX_LETTER, _DIGIT = 0, 1, 2, 3
_APOSTROPHE, _BACKSLASH, _COLON, _BLANK = ord("'"), ord("\\"), ord(":"), ord(" ")
_HOLE_BYTE = 0
_MIX, _MIX_AGAIN = uint64(0x9E3779B97F4A7C15), uint64(0xD6E8FEB86659FD93)


def _classes() -> Bytes:
    """The class of every byte. Bytes of other alphabets are letters."""
    classes = np.zeros(256, np.uint8)
    for byte in range(256):
        character = chr(byte)
        if byte >= 128 or character == "_" or (character.isascii() and character.isalpha()):
            classes[byte] = _HEX_LETTER if character in "abcdefABCDEF" else _LETTER
        elif character.isdigit() and character.isascii():
            classes[byte] = _DIGIT
    return classes


def _flags(characters: str) -> npt.NDArray[np.bool_]:
    flags = np.zeros(256, np.bool_)
    flags[list(characters.encode())] = True
    return flags


_CLASS = _classes()
#: Characters between two holes that are part of one value, such as an address or a time.
_JOINS = _flags(".:-/+,%#@")
_SIGNS = _flags("+-")
_QUOTES = _flags("\"'")


def fingerprints(messages: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the fingerprint of each message, null for a null."""
    return pa.chunked_array([_fingerprints(chunk) for chunk in messages.chunks], pa.int64())


def pattern_text(message: str) -> str:
    """Return the pattern of a message.

    >>> pattern_text('10.0.3.7 - - [01/Nov/2026:10:00:24 +0000] "GET /cart" 200 took 12ms')
    '<_> - - [<_>/Nov/<_> <_>] <_> <_> took <_>'
    >>> pattern_text('{"level":"info","id":1000}')
    '{"level":<_>,"id":<_>}'
    """
    data = np.frombuffer(message.encode()[:MAX_BYTES], np.uint8)
    out = np.zeros(len(data) + 1, np.uint8)
    made = out[: template_of(data, 0, len(data), out)].tobytes()
    return made.replace(bytes([_HOLE_BYTE]), HOLE.encode()).decode("utf-8", "ignore")


def warm() -> None:
    """Compile or load the kernels for the types that ingest and queries use."""
    fingerprints(pa.chunked_array([["took 12ms"]]))
    pattern_text("took 12ms")


def _fingerprints(messages: pa.Array) -> pa.Array:
    found = np.zeros(len(messages), np.int64)
    _, offsets, data = messages.buffers()
    if data is not None and len(messages):
        ends = np.frombuffer(offsets, np.int32)[messages.offset : messages.offset + len(messages) + 1]
        add_fingerprints(np.frombuffer(data, np.uint8), ends, found)
    return pa.array(found, mask=messages.is_null().to_numpy(zero_copy_only=False) if messages.null_count else None)


@njit(cache=True, nogil=True)
def add_fingerprints(data: Bytes, offsets: npt.NDArray[np.int32], found: Ints) -> None:
    """Write the fingerprint of every text to `found`."""
    out = np.zeros(MAX_BYTES + 1, np.uint8)
    for row in range(len(offsets) - 1):
        begin = offsets[row]
        length = template_of(data, begin, min(offsets[row + 1], begin + MAX_BYTES), out)
        found[row] = np.int64(_hash(out, length))


@njit(cache=True, nogil=True)
def _hash(data: Bytes, length: int) -> Any:
    mixed: Any = uint64(length) * _MIX
    word: Any = uint64(0)
    for at in range(length):
        word = (word << uint64(8)) | uint64(data[at])
        if at & 7 == 7:
            mixed = (mixed ^ word) * _MIX
            mixed ^= mixed >> uint64(32)
            word = uint64(0)
    mixed = (mixed ^ word) * _MIX
    mixed ^= mixed >> uint64(29)
    return mixed * _MIX_AGAIN


@njit(cache=True, nogil=True)
def template_of(data: Bytes, begin: int, end: int, out: Bytes) -> int:
    """Write the pattern of a text to `out`, which is one byte longer than the text, with a zero for each hole."""
    length = 0
    at = begin
    # The position in `out` behind the latest hole, and the number of characters since then that may join two holes.
    behind_hole = -1
    while at < end:
        byte = data[at]
        if _QUOTES[byte]:
            after = _quoted_end(data, at, begin, end)
            if after > 0:
                if _is_key(data, after, end):
                    while at < after:
                        out[length] = data[at]
                        length, at = length + 1, at + 1
                else:
                    length = _add_hole(out, length, behind_hole)
                    behind_hole = length
                    at = after
                continue
        kind = _CLASS[byte]
        if kind == _OTHER:
            out[length] = byte if byte != _HOLE_BYTE else uint8(_BLANK)
            length, at = length + 1, at + 1
            continue
        word = at
        has_digit, is_hex = False, True
        while at < end and kind != _OTHER:
            has_digit |= kind == _DIGIT
            is_hex &= kind != _LETTER
            at += 1
            if at < end:
                kind = _CLASS[data[at]]
        joins = behind_hole >= 0 and length - behind_hole <= 2 and _all_join(out, behind_hole, length)
        if has_digit or (is_hex and (at - word >= _HEX_WORD or (joins and length > behind_hole))):
            if length and _SIGNS[out[length - 1]] and (length < 2 or not _is_text(out[length - 2])) and not joins:
                length -= 1
            length = _add_hole(out, length, behind_hole)
            behind_hole = length
        else:
            while word < at:
                out[length] = data[word]
                length, word = length + 1, word + 1
    return length


@njit(cache=True, nogil=True, inline="always")
def _is_text(byte: Any) -> bool:
    return bool(_CLASS[byte] != _OTHER or byte == _HOLE_BYTE)


@njit(cache=True, nogil=True, inline="always")
def _all_join(out: Bytes, begin: int, end: int) -> bool:
    at = begin
    while at < end and _JOINS[out[at]]:
        at += 1
    return at == end


@njit(cache=True, nogil=True, inline="always")
def _add_hole(out: Bytes, length: int, behind_hole: int) -> int:
    """Write a hole, or make the latest one longer if only joining characters lie between."""
    if behind_hole >= 0 and length - behind_hole <= 2 and _all_join(out, behind_hole, length):
        return behind_hole
    out[length] = _HOLE_BYTE
    return length + 1


@njit(cache=True, nogil=True)
def _quoted_end(data: Bytes, begin: int, first: int, end: int) -> int:
    """Return the position behind the closing quote; 0 if this is no quoted text.

    An apostrophe within a word, as in "can't", quotes nothing.
    """
    quote = data[begin]
    if quote == _APOSTROPHE and begin > first and _CLASS[data[begin - 1]] != _OTHER:
        return 0
    at = begin + 1
    while at < end:
        if data[at] == _BACKSLASH:
            at += 1
        elif data[at] == quote:
            return at + 1
        at += 1
    return 0


@njit(cache=True, nogil=True, inline="always")
def _is_key(data: Bytes, at: int, end: int) -> bool:
    while at < end and data[at] == _BLANK:
        at += 1
    return bool(at < end and data[at] == _COLON)
