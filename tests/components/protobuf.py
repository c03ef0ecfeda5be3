"""Encode and decode the protobuf wire format by field, for messages that do not merit a compiled schema."""

from __future__ import annotations

import struct


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag(value: int) -> int:
    """Encode a signed number as sint32 and sint64 do."""
    return value << 1 if value >= 0 else (-value << 1) - 1


def integer(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def double(field: int, value: float) -> bytes:
    return varint(field << 3 | 1) + struct.pack("<d", value)


def lengthy(field: int, value: bytes) -> bytes:
    """Encode a length-delimited field: bytes, text, a message or packed numbers."""
    return varint(field << 3 | 2) + varint(len(value)) + value


def read_varint(raw: bytes, at: int) -> tuple[int, int]:
    """Return the number and the position after it."""
    value = shift = 0
    while True:
        value |= (raw[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if raw[at - 1] < 0x80:
            return value, at


def read_fields(raw: bytes) -> list[tuple[int, object]]:
    """Return the numbers and values of a message's fields: int, float (for doubles) or bytes."""
    found: list[tuple[int, object]] = []
    at = 0
    while at < len(raw):
        tag, at = read_varint(raw, at)
        if tag & 7 == 0:
            value, at = read_varint(raw, at)
            found.append((tag >> 3, value))
        elif tag & 7 == 1:
            found.append((tag >> 3, struct.unpack_from("<d", raw, at)[0]))
            at += 8
        else:
            length, at = read_varint(raw, at)
            found.append((tag >> 3, raw[at : at + length]))
            at += length
    return found
