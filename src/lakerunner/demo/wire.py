"""Encode many records at once: encode a template once, then fill its placeholders column by column.

The prototype is built with the real protobuf classes and recognisable sentinel values where records differ, so its
encoding is correct by construction. Each placeholder is filled for all records of one shape with a single numpy
assignment, so every varying value has a fixed width on the wire (ids, fixed64 times, digits, varints of known length).
Measured in CPU time on a busy machine, 2026-11, for an access log line with five attributes: 1.2 µs per record
including its columns, against 13 µs as a protobuf object. All logs together reach 250 to 440 thousand records per
second.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
#: By placeholder name: one row of bytes per record.
Columns = Mapping[str, Bytes]
Attribute = tuple[str, "str | int | float | bool | Varying"]

_PLACE = re.compile(r"<([a-z_]+)>")
_HEX = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)

#: Widths of the placeholders inside a text, written as `<name>`.
TEXT_WIDTH = {
    "user": 5,
    "product": 10,
    "order": 36,
    "amount": 6,
    "seconds": 5,
    "session": 16,
    "ip": 12,
    "trace": 32,
    "count": 3,
}
#: Widths of the placeholders that are binary fields.
FIELD_WIDTH = {
    "trace_id": 16,
    "span_id": 8,
    "parent_id": 8,
    "start": 8,
    "end": 8,
    "time": 8,
    "observed": 8,
    "event_time": 8,
    "link_trace": 16,
    "link_span": 8,
    "value": 8,
    "sum": 8,
    "minimum": 8,
    "maximum": 8,
    "total": 8,
    "price": 8,
    "size": 2,
}


class Varying(str):
    """The name of a placeholder that is not text: the attribute is a number that differs by record."""

    __slots__ = ()


def _text_sentinel(name: str) -> str:
    mark = chr(ord("A") + list(TEXT_WIDTH).index(name))
    return "~" + mark * (TEXT_WIDTH[name] - 2) + "~"


def field_sentinel(name: str) -> bytes:
    """Return the bytes that mark a field in the prototype. Its first and last byte occur nowhere else in a record."""
    mark = 0x80 + list(FIELD_WIDTH).index(name)
    return b"\xa7" + bytes([mark]) * (FIELD_WIDTH[name] - 2) + b"\x7e"


def fixed_sentinel(name: str) -> int:
    """Return the sentinel of a fixed64 field."""
    return int.from_bytes(field_sentinel(name), "little")


def double_sentinel(name: str) -> float:
    """Return the sentinel of a double field."""
    return float(np.frombuffer(field_sentinel(name), dtype="<f8")[0])


#: A number whose encoding is the sentinel of `size`: in a two-byte varint, the second byte lies below 0x80.
_SIZE_SENTINEL = (0x7E << 7) | (0xA7 & 0x7F)


def text(template: str) -> str:
    """Replace the placeholders of a text by sentinels."""
    return _PLACE.sub(lambda match: _text_sentinel(match[1]), template)


def any_value(value: str | int | float | bool | Varying) -> AnyValue:
    match value:
        case Varying():
            if value == "size":
                return AnyValue(int_value=_SIZE_SENTINEL)
            return AnyValue(double_value=double_sentinel(value))
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case _:
            return AnyValue(string_value=text(value))


def attributes(pairs: Iterable[Attribute]) -> list[KeyValue]:
    return [KeyValue(key=key, value=any_value(value)) for key, value in pairs]


class RecordTemplate:
    """An encoded record and the positions of its placeholders."""

    __slots__ = ("_placeholders", "_prototype")

    def __init__(self, prototype: bytes, sentinels: Mapping[str, bytes] | None = None) -> None:
        self._prototype = np.frombuffer(prototype, dtype=np.uint8)
        found = {name: _text_sentinel(name).encode() for name in TEXT_WIDTH}
        found |= {name: field_sentinel(name) for name in FIELD_WIDTH}
        found |= sentinels or {}
        # The sentinel of `size` also occurs where two other sentinels meet; the int_value tag before it is unique.
        found["size"] = b"\x18" + found["size"]
        self._placeholders = tuple(
            (name, match.end() - len(sentinel.removeprefix(b"\x18")), match.end())
            for name, sentinel in found.items()
            for match in re.finditer(re.escape(sentinel), prototype)
        )

    def fill(self, count: int, columns: Columns, rows: Ints | None = None) -> list[bytes]:
        """Return `count` records, from all rows of the columns or from the given rows."""
        width = len(self._prototype)
        out = np.empty((count, width), dtype=np.uint8)
        out[:] = self._prototype
        for name, begin, end in self._placeholders:
            column = columns[name]
            out[:, begin:end] = column if rows is None else column[rows]
        flat = out.tobytes()
        return [flat[at : at + width] for at in range(0, count * width, width)]


def digits(values: Ints, width: int) -> Bytes:
    """Format numbers as zero-padded decimal text."""
    powers = 10 ** np.arange(width - 1, -1, -1, dtype=np.int64)
    return (values[:, None] // powers % 10 + ord("0")).astype(np.uint8)


def hexed(raw: Bytes) -> Bytes:
    """Format rows of bytes as lower-case hex."""
    out = np.empty((len(raw), raw.shape[1] * 2), dtype=np.uint8)
    out[:, 0::2] = _HEX[raw >> 4]
    out[:, 1::2] = _HEX[raw & 15]
    return out


def fixed64(values: Ints) -> Bytes:
    return np.ascontiguousarray(values, dtype="<i8").view(np.uint8).reshape(len(values), -1)


def doubles(values: Floats) -> Bytes:
    return np.ascontiguousarray(values, dtype="<f8").view(np.uint8).reshape(len(values), -1)


def varint2(values: Ints) -> Bytes:
    """Encode values from 128 to 16,383 as varints of exactly two bytes."""
    return np.stack([values & 0x7F | 0x80, values >> 7], axis=1).astype(np.uint8)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


#: Nearly all lengths are short, so they are looked up.
_SHORT = tuple(_varint(value) for value in range(1 << 12))


def varint(value: int) -> bytes:
    return _SHORT[value] if value < len(_SHORT) else _varint(value)


def field(number: int, payload: bytes) -> bytes:
    """Encode a length-delimited field: a message, a string or a packed list."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def block(resource: bytes, scope: bytes, rows: Sequence[bytes]) -> list[bytes]:
    """Return the pieces of one entry of an export request: a resource, one scope (an encoded field) and its rows.

    Returned in pieces, because nesting with `field` would copy every row three times.
    """
    inner = len(scope) + sum(map(len, rows))
    head, scoped = field(1, resource), b"\x12" + varint(inner)
    return [b"\x0a" + varint(len(head) + len(scoped) + inner), head, scoped, scope, *rows]


def grouped(rows: Sequence[bytes], owner: Ints, time_ns: Ints, limit: int) -> Iterable[list[tuple[int, list[bytes]]]]:
    """Group rows by owner, ordered by time, and yield parts of about `limit` rows. An owner is never split."""
    if not rows:
        return
    order = np.lexsort((time_ns, owner))
    owners = owner[order]
    edges = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(rows)]
    ordered = [rows[at] for at in order.tolist()]
    part: list[tuple[int, list[bytes]]] = []
    held = 0
    for begin, end in pairwise(edges):
        part.append((int(owners[begin]), ordered[begin:end]))
        held += end - begin
        if held >= limit:
            yield part
            part, held = [], 0
    if part:
        yield part
