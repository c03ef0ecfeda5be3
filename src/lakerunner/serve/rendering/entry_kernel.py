"""Writes log entries as JSON, byte by byte in machine code and without the interpreter lock."""

from __future__ import annotations

import numpy as np
from numba import njit

from lakerunner.model.byte_copy import put_bytes

_QUOTE, _BACKSLASH, _COMMA, _ZERO, _MINUS = ord('"'), ord("\\"), ord(","), ord("0"), ord("-")
_OPEN, _MIDDLE, _CLOSE = ord("["), np.frombuffer(b'","', np.uint8), ord("]")
_SPACE, _UNDERSCORE = 32, ord("_")
_NEWLINE, _RETURN, _TAB = 10, 13, 9
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_UNICODE = np.frombuffer(b"\\u00", np.uint8)
#: Upper bound of the punctuation and the time of an entry.
ENTRY_BYTES = 32
#: Upper bound of the numbers of a frame.
FRAME_BYTES = 100


@njit(cache=True, nogil=True)
def escaped_bytes(data, begin, end):  # type: ignore[no-untyped-def]
    """The length of a text inside a JSON string."""
    size = end - begin
    # Places are unsigned, and every byte is looked at in the same way: the compiler takes many at once.
    start, short, long = np.uint64(begin), 0, 0
    for i in range(np.uint64(end - begin)):
        byte = data[start + np.uint64(i)]
        is_short = (byte == _QUOTE) | (byte == _BACKSLASH) | (byte == _NEWLINE) | (byte == _RETURN) | (byte == _TAB)
        short += is_short
        long += (byte < _SPACE) & ~is_short
    return size + short + 5 * long


@njit(cache=True, nogil=True)
def put_escaped(data, begin, end, out, at):  # type: ignore[no-untyped-def]
    """Write a text inside a JSON string."""
    while begin < end:
        plain = begin
        while plain < end:
            byte = data[np.uint64(plain)]
            if byte < _SPACE or byte in (_QUOTE, _BACKSLASH):
                break
            plain += 1
        at = put_bytes(data, begin, plain, out, at)
        if plain < end:
            at = _put_escape(data[plain], out, at)
        begin = plain + 1
    return at


@njit(cache=True, nogil=True)
def _put_escape(byte, out, at):  # type: ignore[no-untyped-def]
    if byte < _SPACE and byte not in (_NEWLINE, _RETURN, _TAB):
        at = put_bytes(_UNICODE, 0, 4, out, at)
        out[at], out[at + 1] = _HEX[byte >> 4], _HEX[byte & 15]
        return at + 2
    out[at] = _BACKSLASH
    if byte == _NEWLINE:
        byte = np.uint8(ord("n"))
    elif byte == _RETURN:
        byte = np.uint8(ord("r"))
    elif byte == _TAB:
        byte = np.uint8(ord("t"))
    out[at + 1] = byte
    return at + 2


@njit(cache=True, nogil=True)
def put_integer(value, out, at):  # type: ignore[no-untyped-def]
    """Write a number in digits."""
    if value < 0:
        out[at] = _MINUS
        at += 1
        value = -value
    digits = 1
    rest = value // 10
    while rest:
        digits += 1
        rest //= 10
    for place in range(digits - 1, -1, -1):
        out[at + place] = _ZERO + value % 10
        value //= 10
    return at + digits


@njit(cache=True, nogil=True)
def total_escaped_bytes(data, offsets):  # type: ignore[no-untyped-def]
    size = 0
    for i in range(len(offsets) - 1):
        size += escaped_bytes(data, offsets[i], offsets[i + 1])
    return size


@njit(cache=True, nogil=True)
def write_streams(  # type: ignore[no-untyped-def]
    order, groups, times, data, offsets, heads, head_offsets, foot, tails, tail_offsets, tail_of, out
):
    """Write one JSON object per group of entries, separated by commas. Returns the length.

    `order` names the entries group by group; `groups` is the group of each entry. A group begins with its head and
    ends with `foot`. An entry is `["time","line"` and its tail, of which there are as many as there are distinct ones.
    """
    at, group = 0, -1
    for i in range(len(order)):
        entry = order[i]
        if groups[entry] != group:
            if group >= 0:
                at = put_bytes(foot, 0, len(foot), out, at)
                out[at] = _COMMA
                at += 1
            group = groups[entry]
            at = put_bytes(heads, head_offsets[group], head_offsets[group + 1], out, at)
        else:
            out[at] = _COMMA
            at += 1
        out[at], out[at + 1] = _OPEN, _QUOTE
        at = put_integer(times[entry], out, at + 2)
        at = put_bytes(_MIDDLE, 0, 3, out, at)
        at = put_escaped(data, offsets[entry], offsets[entry + 1], out, at)
        out[at] = _QUOTE
        tail = tail_of[entry]
        at = put_bytes(tails, tail_offsets[tail], tail_offsets[tail + 1], out, at + 1)
        out[at] = _CLOSE
        at += 1
    if group >= 0:
        at = put_bytes(foot, 0, len(foot), out, at)
    return at


@njit(cache=True, nogil=True)
def write_frames(  # type: ignore[no-untyped-def]
    times, times_ms, places, sent, data, offsets, labels, label_offsets, label_of, stem, texts, text_offsets, out
):
    """Write one server-sent event per entry. Returns the length. `texts` are the constant parts of a frame."""
    at = 0
    for entry in range(len(times)):
        at = put_bytes(texts, text_offsets[0], text_offsets[1], out, at)
        at = put_bytes(stem, 0, len(stem), out, at)
        at = put_integer(times[entry], out, at)
        out[at] = _UNDERSCORE
        at = put_integer(places[entry], out, at + 1)
        out[at] = _UNDERSCORE
        at = put_integer(sent + entry + 1, out, at + 1)
        at = put_bytes(texts, text_offsets[1], text_offsets[2], out, at)
        at = put_integer(times_ms[entry], out, at)
        at = put_bytes(texts, text_offsets[2], text_offsets[3], out, at)
        at = put_integer(times[entry], out, at)
        at = put_bytes(texts, text_offsets[3], text_offsets[4], out, at)
        at = put_escaped(data, offsets[entry], offsets[entry + 1], out, at)
        at = put_bytes(texts, text_offsets[4], text_offsets[5], out, at)
        label = label_of[entry]
        at = put_bytes(labels, label_offsets[label], label_offsets[label + 1], out, at)
        at = put_bytes(texts, text_offsets[5], text_offsets[6], out, at)
    return at
