"""Rows of spans to columns of typed values: the exact values that were sent, wherever they are stored."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import OVERFLOW, keys_of
from lakerunner.formats.spelling import spelled_rows
from lakerunner.model.labels import attribute_column
from lakerunner.model.signals.logs import SPELLED
from lakerunner.query.scan.rows.conditions.evaluate import overflow_values
from lakerunner.query.traceql import ast
from lakerunner.query.traceql.values import BOOL, FLOAT, INT, NIL, Mask, Values, from_python

#: The column that names types which a stored value does not tell.
SENT = "sent_types"
PREFIXES = {"span": "attr", "resource": "resource", "instrumentation": "scope"}
#: Whole numbers up to here are integers in a column of doubles.
_EXACT = float(1 << 53)


def columns_of(scope: str, name: str) -> tuple[str, ...]:
    """The stored columns from which an attribute of a span, resource or instrumentation scope is read."""
    return (attribute_column(PREFIXES[scope], name), OVERFLOW, SPELLED, SENT)


def attributes_in(batch: pa.RecordBatch) -> list[ast.Attribute]:
    """The attributes that the rows may have."""
    found: list[ast.Attribute] = []
    for column, keys in keys_of(batch.schema).items():
        scope = next((scope for scope, prefix in PREFIXES.items() if column.startswith(f"{prefix}_")), None)
        if scope is not None:
            found += [ast.Attribute(scope, key) for key in keys]
    return found


class AttributeReader:
    """Reads attributes from one batch of rows.

    What queries cannot compare (maps, bytes, mixed arrays) is nil. With `whole`, it is an array without elements.
    """

    def __init__(self, batch: pa.RecordBatch, *, whole: bool = False) -> None:
        self._batch = batch
        self._whole = whole
        self._names = set(batch.schema.names)
        self._keys = keys_of(batch.schema)
        self._sent = spelled_rows(batch.column(SENT)) if SENT in self._names else {}
        self._spelled = spelled_rows(batch.column(SPELLED)) if SPELLED in self._names else {}

    def values(self, scope: str, name: str) -> Values:
        column = attribute_column(PREFIXES[scope], name)
        size = self._batch.num_rows
        found = Values.nil(size)
        if column in self._names:
            found = self._stored(column)
        if OVERFLOW in self._names:
            maps = self._batch.column(OVERFLOW)
            spilled = overflow_values(maps, column)
            if spilled.null_count < size:
                found = found.or_else(self._typed(spilled, self._sent.get(column, {})))
        found = found.only(self._has_key(column, name))
        if scope == "instrumentation" and name in ("name", "version"):
            return self._shared(column)
        second = f"{PREFIXES[scope]}_{name}"
        if second != column and OVERFLOW in self._names:
            spilled = overflow_values(self._batch.column(OVERFLOW), second)
            if spilled.null_count < size:
                found = found.or_else(self._typed(spilled, self._sent.get(second, {})))
        return found

    def _shared(self, column: str) -> Values:
        """An attribute that is called as the name or version of its scope, which has the column unless it is marked."""
        size = self._batch.num_rows
        marked = np.logical_or.reduce([np.zeros(size, np.bool_), *self._sent.get(column, {}).values()])
        own = self._stored(column).only(marked) if column in self._names else Values.nil(size)
        if OVERFLOW not in self._names:
            return own
        return own.or_else(Values.of_texts(overflow_values(self._batch.column(OVERFLOW), column)).only(~marked))

    def _has_key(self, column: str, name: str) -> Mask:
        """The rows whose value in the column has this key, not another one of the same column."""
        size = self._batch.num_rows
        keys = self._keys.get(column, [name])
        marked = self._spelled.get(column, {})
        other = np.zeros(size, np.bool_)
        for rows in marked.values():
            other |= rows
        mine = marked.get(name, np.zeros(size, np.bool_))
        return mine | ~other if keys[0] == name else mine

    def _stored(self, column: str) -> Values:
        array = self._batch.column(column)
        kinds = self._sent.get(column, {})
        plain = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
        if pa.types.is_string(plain) or pa.types.is_large_string(plain):
            return self._typed(array, kinds)
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        if pa.types.is_boolean(plain):
            numbers = pc.fill_null(array, False).to_numpy(zero_copy_only=False)
            return self._retyped(Values.numbers(BOOL, numbers.astype(np.float64), valid), array, kinds)
        if pa.types.is_integer(plain):
            numbers = pc.fill_null(array, 0).to_numpy(zero_copy_only=False).astype(np.int64)
            return self._retyped(Values.numbers(INT, numbers, valid), array, kinds)
        numbers = pc.fill_null(array, 0.0).to_numpy(zero_copy_only=False)
        with np.errstate(invalid="ignore"):
            whole = (np.floor(numbers) == numbers) & (np.abs(numbers) <= _EXACT)
        is_double = kinds.get("double")
        if is_double is not None:
            whole &= ~is_double
        code = np.where(valid, np.where(whole, INT, FLOAT), NIL).astype(np.int8)
        exact = np.where(whole, numbers, 0).astype(np.int64)
        made = Values(code, numbers.astype(np.float64), exact, np.zeros(len(code), np.int64))
        others = {kind: rows for kind, rows in kinds.items() if kind not in ("int", "double")}
        return self._retyped(made, array, others)

    def _typed(self, array: pa.Array, kinds: dict[str, Mask]) -> Values:
        """Texts; those that were sent as something else are read as that."""
        return self._retyped(Values.of_texts(array), array, kinds)

    def _retyped(self, values: Values, array: pa.Array, kinds: dict[str, Mask]) -> Values:
        """The values, with those of rows that were sent with another type read from their text."""
        out = values
        for kind, marked in kinds.items():
            rows = np.flatnonzero(marked & (out.kind != NIL))
            if not len(rows):
                continue
            texts = _texts(array.take(pa.array(rows)))
            used, inverse = np.unique(texts, return_inverse=True)
            read = from_python([_read(kind, text) for text in used.tolist()])
            if self._whole:
                read = read.or_else(from_python([[]]).spread(len(read)))
            place = np.zeros(len(out), np.int64)
            place[rows] = inverse
            is_changed = np.zeros(len(out), np.bool_)
            is_changed[rows] = True
            changed = read.take(place) if len(read) > 1 else read.spread(len(out))
            out = out.only(~is_changed).or_else(changed.only(is_changed))
        return out


def _texts(array: pa.Array) -> Any:
    plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    if pa.types.is_floating(plain.type):
        return np.array([str(int(each)) if each.is_integer() else repr(each) for each in plain.to_pylist()], dtype=str)
    if pa.types.is_boolean(plain.type):
        return np.array(["true" if each else "false" for each in plain.to_pylist()], dtype=str)
    return np.array([str(each) for each in plain.to_pylist()], dtype=object)


def _read(kind: str, text: str) -> Any:
    """A value that was sent with this type. Maps, bytes and empty values cannot be queried: they are nil."""
    try:
        match kind:
            case "string":
                return text
            case "int":
                return int(text)
            case "double":
                return float(text)
            case "bool":
                return text == "true"
            case "array":
                return orjson.loads(text)
    except ValueError:
        pass
    return None


def json_values(documents: pa.Array, name: str) -> Values:
    """One attribute of events or links, whose attributes are JSON objects. Each distinct object is read once."""
    encoded = documents.dictionary_encode()
    codes = pc.fill_null(encoded.indices, len(encoded.dictionary)).to_numpy(zero_copy_only=False).astype(np.int64)
    items = [_member(text, name) for text in encoded.dictionary.to_pylist()]
    read = from_python([*items, None])
    return read.take(codes) if len(read) > 1 else read.spread(len(codes))


def _member(text: str, name: str) -> Any:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    value = found.get(name) if isinstance(found, dict) else None
    return value
