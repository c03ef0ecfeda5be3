"""Encoding by the thousand: a record is encoded once with holes, and the holes are filled as columns.

The prototype is made with the real protobuf classes and recognisable values where a record will differ, so its
encoding is right by construction. Filling is one numpy assignment a hole for all records of the same shape, which
is why every varying value has a fixed width on the wire (ids, fixed64 times, digits, varints of a known length).
Measured on a busy machine, 2026-11, CPU time of an access line with five attributes: 1.2 µs a record this way, its
columns included; 13 µs as a protobuf object. The whole of the logs comes to 250 to 440 thousand records a second.
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
#: By hole name: one row of bytes a record.
Columns = Mapping[str, Bytes]
Attribute = tuple[str, "str | int | float | bool | Varying"]

_PLACE = re.compile(r"<([a-z_]+)>")
_HEX = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)

#: Widths of what may vary inside a text, as `<name>`.
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
#: Widths of what may vary as a binary field.
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
    """The name of a hole that is not text: an attribute with this value is a number that differs by record."""

    __slots__ = ()


def _text_sentinel(name: str) -> str:
    mark = chr(ord("A") + list(TEXT_WIDTH).index(name))
    return "~" + mark * (TEXT_WIDTH[name] - 2) + "~"


def field_sentinel(name: str) -> bytes:
    """Bytes that stand for a field in the prototype; the first and last occur nowhere else in a record."""
    mark = 0x80 + list(FIELD_WIDTH).index(name)
    return b"\xa7" + bytes([mark]) * (FIELD_WIDTH[name] - 2) + b"\x7e"


def fixed_sentinel(name: str) -> int:
    """The same, for a fixed64 field."""
    return int.from_bytes(field_sentinel(name), "little")


def double_sentinel(name: str) -> float:
    """The same, for a double."""
    return float(np.frombuffer(field_sentinel(name), dtype="<f8")[0])


#: Encoded, its two bytes are the sentinel of `size`: the second of a varint of two bytes lies below 0x80.
_SIZE_SENTINEL = (0x7E << 7) | (0xA7 & 0x7F)


def text(template: str) -> str:
    """The template with sentinels in its places."""
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


class Stamp:
    """One encoded record and where its holes are."""

    __slots__ = ("_holes", "_prototype")

    def __init__(self, prototype: bytes, sentinels: Mapping[str, bytes] | None = None) -> None:
        self._prototype = np.frombuffer(prototype, dtype=np.uint8)
        found = {name: _text_sentinel(name).encode() for name in TEXT_WIDTH}
        found |= {name: field_sentinel(name) for name in FIELD_WIDTH}
        found |= sentinels or {}
        # The sentinel of `size` is the ends of every other one joined: only the int_value tag before it tells.
        found["size"] = b"\x18" + found["size"]
        self._holes = tuple(
            (name, match.end() - len(sentinel.removeprefix(b"\x18")), match.end())
            for name, sentinel in found.items()
            for match in re.finditer(re.escape(sentinel), prototype)
        )

    def fill(self, count: int, columns: Columns, rows: Ints | None = None) -> list[bytes]:
        """That many records; with `rows`, the records are made of those rows of the columns."""
        width = len(self._prototype)
        out = np.empty((count, width), dtype=np.uint8)
        out[:] = self._prototype
        for name, begin, end in self._holes:
            column = columns[name]
            out[:, begin:end] = column if rows is None else column[rows]
        flat = out.tobytes()
        return [flat[at : at + width] for at in range(0, count * width, width)]


def digits(values: Ints, width: int) -> Bytes:
    """Decimal text, zero-padded."""
    powers = 10 ** np.arange(width - 1, -1, -1, dtype=np.int64)
    return (values[:, None] // powers % 10 + ord("0")).astype(np.uint8)


def hexed(raw: Bytes) -> Bytes:
    """Lower-case hexadecimal text of rows of bytes."""
    out = np.empty((len(raw), raw.shape[1] * 2), dtype=np.uint8)
    out[:, 0::2] = _HEX[raw >> 4]
    out[:, 1::2] = _HEX[raw & 15]
    return out


def fixed64(values: Ints) -> Bytes:
    return np.ascontiguousarray(values, dtype="<i8").view(np.uint8).reshape(len(values), -1)


def doubles(values: Floats) -> Bytes:
    return np.ascontiguousarray(values, dtype="<f8").view(np.uint8).reshape(len(values), -1)


def varint2(values: Ints) -> Bytes:
    """Varints of exactly two bytes: values from 128 to 16,383."""
    return np.stack([values & 0x7F | 0x80, values >> 7], axis=1).astype(np.uint8)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


#: Nearly all lengths are short, and looked up.
_SHORT = tuple(_varint(value) for value in range(1 << 12))


def varint(value: int) -> bytes:
    return _SHORT[value] if value < len(_SHORT) else _varint(value)


def field(number: int, payload: bytes) -> bytes:
    """A length-delimited field, as every message, string and packed list is."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def block(resource: bytes, scope: bytes, rows: Sequence[bytes]) -> list[bytes]:
    """The pieces of one entry of an export request: a resource, one scope (an encoded field) and its rows.

    In pieces, because nesting by `field` would copy every row three times.
    """
    inner = len(scope) + sum(map(len, rows))
    head, scoped = field(1, resource), b"\x12" + varint(inner)
    return [b"\x0a" + varint(len(head) + len(scoped) + inner), head, scoped, scope, *rows]


def grouped(rows: Sequence[bytes], owner: Ints, time_ns: Ints, limit: int) -> Iterable[list[tuple[int, list[bytes]]]]:
    """The rows of each owner in order of time, in parts of about `limit` rows that do not split an owner's."""
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
