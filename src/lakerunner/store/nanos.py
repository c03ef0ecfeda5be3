"""Store nanoseconds as a microsecond timestamp, which every reader knows, and a column with the remainder.

Parquet has nanosecond timestamps, but Spark refuses a file with one unless a legacy option is set. So a nanosecond
column is written as microseconds under its own name, and the remainder, 0 to 999, as `{name}_nanos`. Nothing is lost,
every reader sees timestamps, and if the sender counts in microseconds the remainder costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

SUFFIX = "_nanos"
_NS = pa.timestamp("ns", "UTC")
_US = pa.timestamp("us", "UTC")
_NANOS = pa.int16()

#: Maps one field and its values to the fields and values that replace it.
Change = Callable[[pa.Field, pa.Array], list[tuple[pa.Field, pa.Array]]]


def split_nanos(table: pa.Table) -> pa.Table:
    """Return the table as it is written. Also splits columns in lists of structs (the events of a span)."""
    columns = [
        pair
        for field, column in zip(table.schema, table.columns, strict=True)
        for pair in _split(field, column.combine_chunks())
    ]
    schema = pa.schema([field for field, _ in columns], metadata=table.schema.metadata)
    return pa.Table.from_arrays([array for _, array in columns], schema=schema)


def join_nanos(table: pa.Table) -> pa.Table:
    """Undo `split_nanos`. A timestamp whose remainder column was not read stays in microseconds."""
    columns: list[tuple[pa.Field, pa.Array]] = []
    arrays = {field.name: column.combine_chunks() for field, column in zip(table.schema, table.columns, strict=True)}
    for field in table.schema:
        if field.name.removesuffix(SUFFIX) in arrays and field.name.endswith(SUFFIX):
            continue
        columns.append(_joined(field, arrays[field.name], arrays.get(field.name + SUFFIX)))
    schema = pa.schema([field for field, _ in columns], metadata=table.schema.metadata)
    return pa.Table.from_arrays([array for _, array in columns], schema=schema)


def _split(field: pa.Field, array: pa.Array) -> list[tuple[pa.Field, pa.Array]]:
    if field.type == _NS:
        whole, rest = _divided(array)
        return [(field.with_type(_US), whole), (pa.field(field.name + SUFFIX, _NANOS, field.nullable), rest)]
    if pa.types.is_list(field.type) and pa.types.is_struct(field.type.value_type):
        return [_over_struct(field, array, _split)]
    return [(field, array)]


def _joined(field: pa.Field, array: pa.Array, rest: pa.Array | None) -> tuple[pa.Field, pa.Array]:
    if field.type == _US and rest is not None:
        total = pc.add(pc.multiply(array.cast(pa.int64()), 1_000), rest.cast(pa.int64()))
        return field.with_type(_NS), total.cast(_NS)
    if pa.types.is_list(field.type) and pa.types.is_struct(field.type.value_type):
        kind = field.type.value_type
        values = {kind.field(i).name: array.values.field(i) for i in range(kind.num_fields)}

        def join(part: pa.Field, value: pa.Array) -> list[tuple[pa.Field, pa.Array]]:
            if part.name.endswith(SUFFIX) and part.name.removesuffix(SUFFIX) in values:
                return []
            return [_joined(part, value, values.get(part.name + SUFFIX))]

        return _over_struct(field, array, join)
    return field, array


def _over_struct(field: pa.Field, array: pa.Array, change: Change) -> tuple[pa.Field, pa.Array]:
    """Apply `change` to each field of a list of structs; offsets and nulls stay."""
    values = array.values
    kind = field.type.value_type
    parts = [pair for i in range(kind.num_fields) for pair in change(kind.field(i), values.field(i))]
    fields = [part for part, _ in parts]
    mask = values.is_null() if values.null_count else None
    struct = pa.StructArray.from_arrays([each for _, each in parts], fields=fields, mask=mask)
    changed = pa.ListArray.from_arrays(array.offsets, struct, mask=array.is_null() if array.null_count else None)
    type_ = pa.list_(pa.field("item", struct.type))
    return field.with_type(type_), changed.cast(type_)


def _divided(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return microseconds, rounded down, and the remainder, which is never negative, also before 1970."""
    total = array.cast(pa.int64())
    whole = pc.divide(total, 1_000)
    rest = pc.subtract(total, pc.multiply(whole, 1_000))
    below = pc.less(rest, 0)
    whole = pc.subtract(whole, below.cast(pa.int64()))
    rest = pc.add(rest, pc.multiply(below.cast(pa.int64()), 1_000))
    return whole.cast(_US), rest.cast(_NANOS)
