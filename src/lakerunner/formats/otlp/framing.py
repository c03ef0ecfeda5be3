"""Split a file into export requests: one bare message, or many with varint or 4-byte length prefixes.

A bare OTLP message is a sequence of fields with tag 0x0A. A delimited file is a sequence of lengths and messages. Each
reading is checked to the last byte. Both can match only if every length is 10, because 0x0A is also that tag.
"""

from __future__ import annotations

from collections.abc import Callable

#: (data, position) -> (length, position after it), or -1 for the position if there is no length.
_LengthReader = Callable[[bytes, int], tuple[int, int]]
#: Field 1, length-delimited: `resource_logs`, `resource_metrics` and `resource_spans` alike.
_TAG = 0x0A
_MAX_VARINT_BYTES = 10
#: Small enough that pieces skip the extra check that `wire.py` makes on very large messages.
_PIECE_BYTES = 2 << 20


def readings(data: bytes) -> list[list[bytes]]:
    """Return the possible ways to read the bytes as messages, the likeliest first; empty if there is none.

    >>> readings(b"\\x0a\\x02\\x12\\x00")
    [[b'\\n\\x02\\x12\\x00']]
    >>> readings(b"\\x02\\x0a\\x00\\x02\\x0a\\x00")
    [[b'\\n\\x00', b'\\n\\x00']]
    """
    found = []
    if pieces := _bare(data):
        found.append(pieces)
    if messages := _delimited(data, _varint):
        found.append(messages)
    if messages := _delimited(data, _four_bytes):
        found.append(messages)
    return found


def _bare(data: bytes) -> list[bytes]:
    """Cut a large message between its resources. Each piece is a message of its own."""
    pieces = []
    begin = at = 0
    while at < len(data):
        if data[at] != _TAG:
            return []
        length, start = _varint(data, at + 1)
        at = start + length
        if start < 0 or at > len(data):
            return []
        if at - begin >= _PIECE_BYTES:
            pieces.append(data[begin:at])
            begin = at
    if begin < len(data):
        pieces.append(data[begin:] if begin else data)
    return pieces


def _delimited(data: bytes, read_length: _LengthReader) -> list[bytes]:
    messages = []
    at = 0
    while at < len(data):
        length, start = read_length(data, at)
        end = start + length
        if start < 0 or end > len(data) or (length and data[start] != _TAG):
            return []
        messages.append(data[start:end])
        at = end
    return messages if any(messages) else []


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number and the position after it, or (0, -1)."""
    value = 0
    for count, byte in enumerate(data[at : at + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value, at + count + 1
    return 0, -1


def _four_bytes(data: bytes, at: int) -> tuple[int, int]:
    """Read a big-endian length, as the collector's file exporter writes it."""
    if at + 4 > len(data):
        return 0, -1
    return int.from_bytes(data[at : at + 4], "big"), at + 4
