"""Flatten OTLP key-value lists into arrays of keys, kinds and values. The few nested values become JSON."""

from __future__ import annotations

import base64
import enum
import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1 import common_pb2

from lakerunner.formats import sent_types
from lakerunner.formats.attributes import EXACT, Entry, Ints, cut_text
from lakerunner.formats.decoded import Tally
from lakerunner.formats.limits import Limits, cut_key
from lakerunner.formats.number_text import float_text
from lakerunner.formats.otlp.kvlists import PLACE_BITS, FlatLists
from lakerunner.formats.typed_json import typed_json
from lakerunner.model.errors import BadInput


class Kind(enum.IntEnum):
    """The member of the oneof that is set. NONE means a key without a value."""

    NONE = 0
    STRING = 1
    BOOL = 2
    INT = 3
    DOUBLE = 4
    ARRAY = 5
    KVLIST = 6
    BYTES = 7


_FIELDS = {
    Kind.STRING: "string_value",
    Kind.BOOL: "bool_value",
    Kind.INT: "int_value",
    Kind.DOUBLE: "double_value",
    Kind.ARRAY: "array_value",
    Kind.KVLIST: "kvlist_value",
    Kind.BYTES: "bytes_value",
}


_SENT = {
    Kind.STRING: sent_types.STRING,
    Kind.BOOL: sent_types.BOOL,
    Kind.INT: sent_types.INT,
    Kind.DOUBLE: sent_types.DOUBLE,
    Kind.ARRAY: sent_types.ARRAY,
    Kind.KVLIST: sent_types.KVLIST,
    Kind.BYTES: sent_types.BYTES,
}


class Nested(enum.Enum):
    """How arrays and key-value lists are rendered."""

    #: As JSON, in the order of the sender; a double is seen to be one.
    JSON = "json"
    #: As the JSON that Go's OTLP library writes, and so Loki shows: keys sorted, 5.0 as 5.
    GO_JSON = "go json"
    #: Likewise, but key-value lists stay in protobuf, to be flattened.
    FLAT = "flat"
    #: As JSON from which the exact value can be told (`typed_json.py`).
    TYPED = "typed"


class DuplicateOneof(Exception):
    """A oneof has two members set, because its sender wrote it twice. The caller must decode the canonical form."""


@dataclass(frozen=True, slots=True)
class Values:
    """AnyValues: the kind of each, and one array per kind that occurs (text for arrays, lists and bytes)."""

    kinds: npt.NDArray[np.uint8]
    arrays: dict[Kind, pa.Array]

    @classmethod
    def of(cls, struct: pa.StructArray, limits: Limits, tally: Tally, nested: Nested = Nested.JSON) -> Values:
        # flatten() applies the struct's own nulls to its members.
        members = dict(zip((field.name for field in struct.type), struct.flatten(), strict=True))
        kinds = np.zeros(len(struct), np.uint8)
        arrays: dict[Kind, pa.Array] = {}
        present = 0
        for kind, name in _FIELDS.items():
            member = members[name]
            if member.null_count == len(struct):
                continue
            present += len(struct) - member.null_count
            kinds[_valid(member)] = kind
            is_kept = nested is Nested.FLAT and kind == Kind.KVLIST
            arrays[kind] = member if is_kept else _plain(kind, member, nested, limits, tally)
        if present != int(np.count_nonzero(kinds)):
            raise DuplicateOneof
        return cls(kinds, arrays)

    def text(self) -> pa.Array:
        """Return all values as text; null where there is no value."""
        arrays = [_kind_text(kind, array) for kind, array in self.arrays.items()]
        if not arrays:
            return pa.nulls(len(self.kinds), pa.string())
        return arrays[0] if len(arrays) == 1 else pc.coalesce(*arrays)


@dataclass(frozen=True, slots=True)
class Pairs:
    """The attributes of all rows of a level, flattened: pair i belongs to row `rows[i]`."""

    rows: Ints
    codes: npt.NDArray[np.int32]
    keys: list[str]
    values: Values
    size: int
    #: With these, the pairs of nested lists are attributes of their own.
    flat_lists: FlatLists | None = None

    @classmethod
    def of(
        cls,
        lists: pa.ListArray,
        limits: Limits,
        tally: Tally,
        cap: int | None = None,
        *,
        nested: Nested = Nested.JSON,
    ) -> Pairs:
        counts, flat = _flat(lists, limits.attributes_per_row if cap is None else cap, tally)
        encoded = flat.field("key").dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        keys: list[str] = encoded.dictionary.to_pylist()
        if max(map(len, keys), default=0) * 4 > limits.key_bytes:
            uses = np.bincount(codes, minlength=len(keys)).tolist()
            keys = [cut_key(key, count, limits, tally) for key, count in zip(keys, uses, strict=True)]
        values = Values.of(flat.field("value"), limits, tally, nested)
        flat_lists = None
        if nested is Nested.FLAT and Kind.KVLIST in values.arrays:
            flat_lists = FlatLists.of(
                values.arrays[Kind.KVLIST], functools.partial(_parsed, Kind.KVLIST), _nested_json, limits, tally
            )
        return cls(
            rows=np.repeat(np.arange(len(lists)), counts),
            codes=codes,
            keys=keys,
            values=values,
            size=len(lists),
            flat_lists=flat_lists,
        )

    def entries(self, limits: Limits, tally: Tally) -> Iterator[Entry]:
        """Yield the values of each key, one entry per kind of value."""
        # NumPy sorts 16-bit numbers by radix: 10 ns per item instead of 70 for wider ones.
        narrow = self.codes.astype(np.uint16) if len(self.keys) < 1 << 16 else self.codes
        order = np.argsort(narrow, kind="stable")
        ends = np.cumsum(np.bincount(self.codes, minlength=len(self.keys)))
        kinds = self.values.kinds[order]
        start = 0
        for key, end in zip(self.keys, ends.tolist(), strict=True):
            positions = order[start:end]
            found = kinds[start:end]
            start = end
            for kind in _distinct(found):
                if kind == Kind.NONE:
                    continue
                index = positions if len(found) == np.count_nonzero(found == kind) else positions[found == kind]
                if kind == Kind.KVLIST and self.flat_lists is not None:
                    yield from self.flat_lists.entries(key, index, self.rows, limits, tally)
                else:
                    source, place = self.values.arrays[Kind(kind)], index << PLACE_BITS
                    yield Entry(key, self.rows[index], source, index, place, _SENT[Kind(kind)])

    def empty(self) -> list[tuple[str, Ints]]:
        """Return the keys that were sent without a value, each with the rows that have it."""
        without = np.flatnonzero(self.values.kinds == Kind.NONE)
        codes = self.codes[without]
        return [(self.keys[code], self.rows[without[codes == code]]) for code in np.unique(codes).tolist()]


def _distinct(kinds: npt.NDArray[np.uint8]) -> list[int]:
    return [kind for kind, count in enumerate(np.bincount(kinds).tolist()) if count]


def _flat(lists: pa.ListArray, cap: int, tally: Tally) -> tuple[Ints, pa.StructArray]:
    """Return the number of pairs in each list, and all pairs. Pairs beyond the cap are dropped and counted."""
    offsets = lists.offsets.to_numpy().astype(np.int64)
    counts = np.diff(offsets)
    flat = lists.flatten()
    if not len(counts) or int(counts.max()) <= cap:
        return counts, flat
    kept = np.minimum(counts, cap)
    tally.shorten("attributes_per_row", int(np.count_nonzero(counts > cap)))
    place = np.arange(len(flat)) - np.repeat(offsets[:-1] - offsets[0], counts)
    return kept, flat.filter(pa.array(place < cap))


def _valid(array: pa.Array) -> npt.NDArray[np.bool_]:
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    valid: npt.NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _plain(kind: Kind, array: pa.Array, nested: Nested, limits: Limits, tally: Tally) -> pa.Array:
    if kind == Kind.BYTES:
        return _per_distinct(array, lambda value: base64.b64encode(value).decode())
    if kind in (Kind.ARRAY, Kind.KVLIST):
        if nested is Nested.TYPED:
            array = _per_distinct(array, lambda wire: typed_json(_typed(_parsed(kind, wire), kind)))
        else:
            array = _per_distinct(array, functools.partial(_json_of, kind, is_go=nested is not Nested.JSON))
    return cut_text(array, limits, tally) if pa.types.is_string(array.type) else array


def _per_distinct(array: pa.Array, render: Any) -> pa.Array:
    encoded = array.dictionary_encode()
    texts = pa.array([render(value) for value in encoded.dictionary.to_pylist()], pa.string())
    return texts.take(encoded.indices)


def _kind_text(kind: Kind, array: pa.Array) -> pa.Array:
    if kind == Kind.DOUBLE:
        return _per_distinct(array, float_text)
    if kind == Kind.KVLIST and pa.types.is_binary(array.type):
        return _per_distinct(array, functools.partial(_json_of, kind, is_go=True))
    return pc.cast(array, pa.string())


@functools.cache
def _loose_classes() -> dict[Kind, Any]:
    """Build message classes with bytes in place of text, so that invalid UTF-8 does not fail the whole value."""
    file = descriptor_pb2.FileDescriptorProto()
    common_pb2.DESCRIPTOR.CopyToProto(file)
    for message in file.message_type:
        for field in message.field:
            if field.type == descriptor_pb2.FieldDescriptorProto.TYPE_STRING:
                field.type = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = {Kind.ARRAY: "ArrayValue", Kind.KVLIST: "KeyValueList"}
    return {
        kind: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.{name}"))
        for kind, name in names.items()
    }


def _json_of(kind: Kind, wire: bytes, is_go: bool = False) -> str:
    message = _parsed(kind, wire)
    value = [_python(v) for v in message.values] if kind == Kind.ARRAY else _dict(message.values)
    return _go_json(value) if is_go else orjson.dumps(value).decode()


def _parsed(kind: Kind, wire: bytes) -> Any:
    message = _loose_classes()[kind]()
    try:
        message.ParseFromString(wire)
    except DecodeError:
        raise BadInput(
            "cannot read a nested attribute value: its bytes are corrupt, or nested deeper than protobuf allows",
            where=f"a value of {len(wire)} bytes",
            hint=f"it begins with {wire[:16].hex(' ')}",
        ) from None
    return message


def _nested_json(value: Any) -> str:
    return _go_json(_python(value))


def _go_json(value: Any) -> str:
    return orjson.dumps(_with_whole_numbers(value), option=orjson.OPT_SORT_KEYS).decode()


def _with_whole_numbers(value: Any) -> Any:
    """Return the value with whole doubles as integers."""
    match value:
        case dict():
            return {key: _with_whole_numbers(member) for key, member in value.items()}
        case list():
            return [_with_whole_numbers(item) for item in value]
        case float() if value.is_integer() and abs(value) <= EXACT:
            return int(value)
        case _:
            return value


def _typed(message: Any, kind: Kind) -> Any:
    """Return a nested value as Python values, bytes and all."""
    if kind == Kind.ARRAY:
        return [_typed_value(value) for value in message.values]
    return {pair.key.decode("utf-8", "replace"): _typed_value(pair.value) for pair in message.values}


def _typed_value(value: Any) -> Any:
    match value.WhichOneof("value"):
        case "string_value":
            return value.string_value.decode("utf-8", "replace")
        case "array_value":
            return _typed(value.array_value, Kind.ARRAY)
        case "kvlist_value":
            return _typed(value.kvlist_value, Kind.KVLIST)
        case None | "string_value_strindex":
            return None
        case member:
            return getattr(value, member)


def _dict(pairs: Any) -> dict[str, Any]:
    return {pair.key.decode("utf-8", "replace"): _python(pair.value) for pair in pairs}


def _python(value: Any) -> Any:
    match value.WhichOneof("value"):
        case "string_value":
            return value.string_value.decode("utf-8", "replace")
        case "array_value":
            return [_python(item) for item in value.array_value.values]
        case "kvlist_value":
            return _dict(value.kvlist_value.values)
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode()
        case "double_value" if not math.isfinite(value.double_value):
            return float_text(value.double_value)
        case None | "string_value_strindex":
            return None
        case member:
            return getattr(value, member)
