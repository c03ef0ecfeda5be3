"""Convert OTLP JSON to protobuf bytes, so that one decoder serves both.

The mapping is protobuf's JSON mapping with OTLP's exceptions: trace and span ids are hex, enums are numbers. Keys are
lowerCamelCase; the names of the .proto files are accepted too. Unknown keys are ignored, as OTLP requires.
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

#: (JSON value, remaining nesting depth) -> its bytes on the wire, without the tag.
_Encode = Callable[[Any, int], bytes]
_HEX_FIELDS = {"trace_id", "span_id", "parent_span_id"}
#: Longer values seldom repeat, so they are not cached.
_CACHED_CHARS = 64
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


class _InvalidValue(Exception):
    """A value that its field cannot hold. Each encoder on the way up adds its key to the path."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str] = []


class _TooDeep(Exception):
    pass


def to_wire(document: Any, signal: str, limits: Limits) -> bytes:
    """Encode an export request, already parsed from JSON, as protobuf bytes."""
    try:
        return _message(ROOTS[signal].DESCRIPTOR)(document, limits.nesting_depth)
    except _InvalidValue as invalid:
        path = ".".join(reversed(invalid.path)) or "the top"
        raise BadInput(f"cannot read OTLP JSON {signal}: {invalid.reason}", where=path) from None
    except _TooDeep:
        raise refuse("nesting_depth", limits.nesting_depth, "its JSON is nested deeper") from None


def looks_like(document: Any, signal: str) -> bool:
    """Return whether a parsed JSON document is an export request of the signal."""
    field = ROOTS[signal].DESCRIPTOR.fields[0]
    return isinstance(document, dict) and (field.json_name in document or field.name in document)


@functools.cache
def _message(descriptor: Descriptor) -> _Encode:
    """Return the encoder of a message type. Its table of keys is filled on first use, because types are recursive."""
    table: dict[str, tuple[bytes, _Encode, bool]] = {}

    def encode(value: Any, depth: int) -> bytes:
        if not isinstance(value, dict):
            raise _InvalidValue(f"expected an object, found {_type_name(value)}")
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
                        raise _InvalidValue(f"expected an array, found {_type_name(item)}")
                    for element in item:
                        parts += (tag, encoder(element, depth - 1))
                else:
                    parts += (tag, encoder(item, depth - 1))
            except _InvalidValue as invalid:
                invalid.path.append(key)
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
    """Return an encoder of attributes with a cache, since most of them repeat: twice as fast on a batch of logs."""

    @functools.lru_cache(maxsize=65_536)
    def cached(key: str, member: str, content: str) -> bytes:
        # An attribute needs two more levels, and the caller has checked that they are left.
        return encode({"key": key, "value": {member: content}}, 3)

    def attribute(value: Any, depth: int) -> bytes:
        if type(value) is dict and len(value) == 2 and depth > 2:
            key, inner = value.get("key"), value.get("value")
            if type(key) is str and type(inner) is dict and len(inner) == 1:
                ((member, content),) = inner.items()
                if type(content) is str and len(content) <= _CACHED_CHARS:
                    return cached(key, member, content)
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
            raise _InvalidValue(f"{number} is out of range")
        return pack(number)

    return encode


def _zigzag(number: int) -> bytes:
    return _varint((number << 1) ^ (number >> 31))


def _two_complement(number: int) -> bytes:
    return _varint(number & (1 << 64) - 1)


def _whole(value: Any) -> int:
    if isinstance(value, bool):
        raise _InvalidValue("expected a whole number, found a boolean")
    if isinstance(value, int):
        return value
    try:
        if isinstance(value, str):
            # Every 64-bit number has at most twenty digits; int() of a million digits takes seconds.
            return int(value) if len(value) <= 20 and value.isascii() else int("not a number")
        if isinstance(value, float) and value.is_integer():
            return int(value)
    except ValueError:
        pass
    raise _InvalidValue(f"expected a whole number, found {_type_name(value)} {str(value)[:40]!r}")


def _string(value: Any, depth: int) -> bytes:
    if not isinstance(value, str):
        raise _InvalidValue(f"expected a string, found {_type_name(value)}")
    return _delimited(value.encode())


def _hex(value: Any, depth: int) -> bytes:
    try:
        return _delimited(bytes.fromhex(value))
    except (ValueError, TypeError):
        raise _InvalidValue(f"expected hex digits, found {str(value)[:40]!r}") from None


def _base64(value: Any, depth: int) -> bytes:
    try:
        text = value.replace("-", "+").replace("_", "/")
        return _delimited(base64.b64decode(text + "=" * (-len(text) % 4), validate=True))
    except (binascii.Error, ValueError, AttributeError, TypeError):
        raise _InvalidValue(f"expected base64, found {str(value)[:40]!r}") from None


def _double(value: Any, depth: int) -> bytes:
    if isinstance(value, str):
        try:
            value = _INFINITIES[value] if value in _INFINITIES else float(value)
        except ValueError:
            raise _InvalidValue(f"expected a number, found {value[:40]!r}") from None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _InvalidValue(f"expected a number, found {_type_name(value)}")
    return struct.pack("<d", value)


def _bool(value: Any, depth: int) -> bytes:
    if not isinstance(value, bool):
        raise _InvalidValue(f"expected true or false, found {_type_name(value)}")
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


def _type_name(value: Any) -> str:
    names = {
        dict: "an object",
        list: "an array",
        str: "a string",
        bool: "a boolean",
        int: "a number",
        float: "a number",
    }
    return names.get(type(value), "null")
