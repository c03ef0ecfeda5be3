"""OTLP JSON written again as protobuf bytes, so that one decoder serves both.

The mapping is protobuf's own, with OTLP's exceptions: trace and span ids are hex, enums are numbers. Keys are
lowerCamelCase, and the names of the .proto files are taken too; unknown keys are passed over, as OTLP asks.
"""

from __future__ import annotations

import base64
import binascii
import functools
import struct
from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from lakerunner.formats.limits import Limits, refuse
from lakerunner.formats.otlp.wire import ROOTS
from lakerunner.model.errors import BadInput

#: A JSON value, the nesting depth left -> its bytes on the wire, without tag.
_Encode = Callable[[Any, int], bytes]
_HEX_FIELDS = {"trace_id", "span_id", "parent_span_id"}
#: Longer values are seldom seen twice.
_REMEMBERED_CHARS = 64
_WIRE_TYPES = {
    FieldDescriptor.TYPE_DOUBLE: 1,
    FieldDescriptor.TYPE_FIXED64: 1,
    FieldDescriptor.TYPE_SFIXED64: 1,
    FieldDescriptor.TYPE_FIXED32: 5,
    FieldDescriptor.TYPE_STRING: 2,
    FieldDescriptor.TYPE_BYTES: 2,
    FieldDescriptor.TYPE_MESSAGE: 2,
}
_RANGES = {
    FieldDescriptor.TYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.TYPE_SFIXED64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.TYPE_UINT64: (0, (1 << 64) - 1),
    FieldDescriptor.TYPE_FIXED64: (0, (1 << 64) - 1),
    FieldDescriptor.TYPE_SINT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.TYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.TYPE_ENUM: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.TYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.TYPE_FIXED32: (0, (1 << 32) - 1),
}
_INFINITIES = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class _Wrong(Exception):
    """A value that its field cannot hold. The path is put together on the way out."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str] = []


class _TooDeep(Exception):
    pass


def to_wire(document: Any, signal: str, limits: Limits) -> bytes:
    """One export request, already parsed from JSON, as protobuf bytes."""
    try:
        return _message(ROOTS[signal].DESCRIPTOR)(document, limits.nesting_depth)
    except _Wrong as wrong:
        path = ".".join(reversed(wrong.path)) or "the top"
        raise BadInput(f"cannot read OTLP JSON {signal}: {wrong.reason}", where=path) from None
    except _TooDeep:
        raise refuse("nesting_depth", limits.nesting_depth, "its JSON is nested deeper") from None


def looks_like(document: Any, signal: str) -> bool:
    """Whether a parsed JSON document is an export request of the signal."""
    field = ROOTS[signal].DESCRIPTOR.fields[0]
    return isinstance(document, dict) and (field.json_name in document or field.name in document)


@functools.cache
def _message(descriptor: Descriptor) -> _Encode:
    """The encoder of a message: a table from key to tag and encoder, filled on first use, for messages recur."""
    table: dict[str, tuple[bytes, _Encode, bool]] = {}

    def encode(value: Any, depth: int) -> bytes:
        if not isinstance(value, dict):
            raise _Wrong(f"expected an object, found {_name_of(value)}")
        if depth <= 0:
            raise _TooDeep
        if not table:
            table.update(_table(descriptor))
        parts: list[bytes] = []
        for key, item in value.items():
            known = table.get(key)
            if known is None or item is None:
                continue
            tag, encoder, repeated = known
            try:
                if repeated:
                    if not isinstance(item, list):
                        raise _Wrong(f"expected an array, found {_name_of(item)}")
                    for element in item:
                        parts += (tag, encoder(element, depth - 1))
                else:
                    parts += (tag, encoder(item, depth - 1))
            except _Wrong as wrong:
                wrong.path.append(key)
                raise
        return b"".join(parts)

    return encode


def _table(descriptor: Descriptor) -> dict[str, tuple[bytes, _Encode, bool]]:
    table = {}
    for field in descriptor.fields:
        tag = _varint(field.number << 3 | _WIRE_TYPES.get(field.type, 0))
        entry = (tag, _encoder(field), field.is_repeated)
        table[field.json_name] = table[field.name] = entry
    return table


def _encoder(field: FieldDescriptor) -> _Encode:
    match field.type:
        case FieldDescriptor.TYPE_MESSAGE:
            inner: _Encode = _message(field.message_type)
            if field.message_type is not None and field.message_type.name == "KeyValue":
                inner = _attribute(inner)
            return lambda value, depth: _delimited(inner(value, depth))
        case FieldDescriptor.TYPE_STRING:
            return _string
        case FieldDescriptor.TYPE_BYTES:
            return _hex if field.name in _HEX_FIELDS else _base64
        case FieldDescriptor.TYPE_DOUBLE:
            return _double
        case FieldDescriptor.TYPE_BOOL:
            return _bool
        case _:
            return _integer(field)


def _attribute(encode: _Encode) -> _Encode:
    """The encoder of attributes, most of which were seen before: twice as fast on a batch of logs."""

    @functools.lru_cache(maxsize=65_536)
    def remembered(key: str, member: str, content: str) -> bytes:
        # Two levels below the list they stand in: the limit cannot stop them here, and has been asked already.
        return encode({"key": key, "value": {member: content}}, 3)

    def attribute(value: Any, depth: int) -> bytes:
        if type(value) is dict and len(value) == 2 and depth > 2:
            key, inner = value.get("key"), value.get("value")
            if type(key) is str and type(inner) is dict and len(inner) == 1:
                ((member, content),) = inner.items()
                if type(content) is str and len(content) <= _REMEMBERED_CHARS:
                    return remembered(key, member, content)
        return encode(value, depth)

    return attribute


def _integer(field: FieldDescriptor) -> _Encode:
    low, high = _RANGES[field.type]
    names = {value.name: value.number for value in field.enum_type.values} if field.enum_type else {}
    packers: dict[int, Callable[[int], bytes]] = {
        FieldDescriptor.TYPE_FIXED64: struct.Struct("<Q").pack,
        FieldDescriptor.TYPE_SFIXED64: struct.Struct("<q").pack,
        FieldDescriptor.TYPE_FIXED32: struct.Struct("<I").pack,
        FieldDescriptor.TYPE_SINT32: _zigzag,
    }
    pack = packers.get(field.type, _two_complement)

    def encode(value: Any, depth: int) -> bytes:
        number = names[value] if isinstance(value, str) and value in names else _whole(value)
        if not low <= number <= high:
            raise _Wrong(f"{number} is out of range")
        return pack(number)

    return encode


def _zigzag(number: int) -> bytes:
    return _varint((number << 1) ^ (number >> 31))


def _two_complement(number: int) -> bytes:
    return _varint(number & (1 << 64) - 1)


def _whole(value: Any) -> int:
    if isinstance(value, bool):
        raise _Wrong("expected a whole number, found a boolean")
    if isinstance(value, int):
        return value
    try:
        if isinstance(value, str):
            # Twenty digits hold every 64-bit number; int() of a million digits takes seconds.
            return int(value) if len(value) <= 20 and value.isascii() else int("not a number")
        if isinstance(value, float) and value.is_integer():
            return int(value)
    except ValueError:
        pass
    raise _Wrong(f"expected a whole number, found {_name_of(value)} {str(value)[:40]!r}")


def _string(value: Any, depth: int) -> bytes:
    if not isinstance(value, str):
        raise _Wrong(f"expected a string, found {_name_of(value)}")
    return _delimited(value.encode())


def _hex(value: Any, depth: int) -> bytes:
    try:
        return _delimited(bytes.fromhex(value))
    except (ValueError, TypeError):
        raise _Wrong(f"expected hex digits, found {str(value)[:40]!r}") from None


def _base64(value: Any, depth: int) -> bytes:
    try:
        text = value.replace("-", "+").replace("_", "/")
        return _delimited(base64.b64decode(text + "=" * (-len(text) % 4), validate=True))
    except (binascii.Error, ValueError, AttributeError, TypeError):
        raise _Wrong(f"expected base64, found {str(value)[:40]!r}") from None


def _double(value: Any, depth: int) -> bytes:
    if isinstance(value, str):
        try:
            value = _INFINITIES[value] if value in _INFINITIES else float(value)
        except ValueError:
            raise _Wrong(f"expected a number, found {value[:40]!r}") from None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Wrong(f"expected a number, found {_name_of(value)}")
    return struct.pack("<d", value)


def _bool(value: Any, depth: int) -> bytes:
    if not isinstance(value, bool):
        raise _Wrong(f"expected true or false, found {_name_of(value)}")
    return b"\x01" if value else b"\x00"


def _delimited(content: bytes) -> bytes:
    return _varint(len(content)) + content


def _varint(number: int) -> bytes:
    if number < 0x80:
        return _ONE_BYTE[number]
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


_ONE_BYTE = [bytes([number]) for number in range(0x80)]


def _name_of(value: Any) -> str:
    names = {
        dict: "an object",
        list: "an array",
        str: "a string",
        bool: "a boolean",
        int: "a number",
        float: "a number",
    }
    return names.get(type(value), "null")
