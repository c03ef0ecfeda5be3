"""Unifies the schemas of many segments, and converts their rows to the common schema.

- Columns of the signal have the signal's type. The event time comes first if the caller did not request it.
- Attribute columns are the union of those of all segments, by name. Equal types stay, int64 and double become double
  (whole numbers beyond 2^53 are rounded), anything else becomes text.
- A column that a segment lacks is null there. A column that no segment has is null text.
- If all columns are requested, the overflow comes last, as a map of attributes that have no column in that segment.
- Dictionaries are decoded to plain text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import OVERFLOW, OVERFLOW_TYPE, as_text
from lakerunner.model.signal import Signal
from lakerunner.query.scan.rows.conditions.compare import has_text


def output_schema(signal: Signal, columns: Sequence[str] | None, stored: Iterable[pa.Schema]) -> pa.Schema:
    """The schema of the answer, from the schemas of segments or of other answers to the same scan."""
    types: dict[str, pa.DataType] = {}
    for schema in stored:
        for field in schema:
            kind = _plain(field.type)
            types[field.name] = _common(types[field.name], kind) if field.name in types else kind
    fixed = {column.name: column.type for column in signal.rows.columns}
    time = signal.time_column
    if columns is None:
        attributes = sorted(name for name in types if name not in fixed and name != OVERFLOW)
        names = [*fixed, *attributes, *([OVERFLOW] if OVERFLOW in types else [])]
    else:
        names = list(dict.fromkeys(columns if time in columns else (time, *columns)))
    return pa.schema(
        [
            pa.field(name, fixed[name] if name in fixed else OVERFLOW_TYPE if name == OVERFLOW else _known(types, name))
            for name in names
        ]
    )


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch, converted to the columns and types of the schema."""
    if batch.schema == schema:
        return batch
    names = set(batch.schema.names)
    arrays = [
        fitted(batch.column(field.name), field.type) if field.name in names else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def fitted(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values, converted to the wider type."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.type == kind:
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), kind)
    if pa.types.is_string(kind) and has_text(array.type):
        return as_text(array)
    return pc.cast(array, kind, safe=False)


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _known(types: dict[str, pa.DataType], name: str) -> pa.DataType:
    kind = types.get(name, pa.string())
    return pa.string() if pa.types.is_null(kind) else kind


def _common(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    numbers = {pa.int64(), pa.float64()}
    return pa.float64() if {one, other} <= numbers else pa.string()
