"""Concatenate the tables of several objects into one that has the attribute columns of all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import (
    MAX_PROMOTED_COLUMNS,
    OVERFLOW,
    OVERFLOW_TYPE,
    Entry,
    Level,
    as_text,
    keys_of,
    spill,
    with_keys,
)
from lakerunner.formats.decoded import Tally
from lakerunner.model.signal import Table


def unify_tables(tables: Sequence[pa.Table], description: Table, cap: int = MAX_PROMOTED_COLUMNS) -> pa.Table:
    """Return the rows of all tables, in order, with the attribute columns of all.

    A column that has two types becomes text. Columns beyond `cap` go to the overflow.
    """
    fixed = set(description.schema().names)
    present: dict[str, int] = {}
    types: dict[str, set[pa.DataType]] = {}
    for table in tables:
        for name in table.column_names:
            if name not in fixed and name != OVERFLOW:
                column = table.column(name)
                present[name] = present.get(name, 0) + len(column) - column.null_count
                types.setdefault(name, set()).add(column.type)
    ranked = sorted(present, key=lambda name: (-present[name], name))
    kept, lost = sorted(ranked[:cap]), ranked[cap:]
    schema = pa.schema([*description.schema(), *(pa.field(name, _common(types[name])) for name in kept)])
    parts = []
    overflows = bool(lost) or any(OVERFLOW in table.column_names for table in tables)
    for table in tables:
        part = pa.Table.from_arrays([_column(table, field) for field in schema], schema=schema)
        if overflows:
            part = part.append_column(pa.field(OVERFLOW, OVERFLOW_TYPE), _overflow(table, lost))
        parts.append(part)
    keys: dict[str, set[str]] = {}
    for table in tables:
        for name, originals in keys_of(table.schema).items():
            keys.setdefault(name, set()).update(originals)
    whole = pa.concat_tables(parts).unify_dictionaries()
    return with_keys(whole, {name: sorted(keys[name]) for name in kept if name in keys})


def _common(types: set[pa.DataType]) -> pa.DataType:
    if len(types) == 1:
        return next(iter(types))
    plain = {kind.value_type if pa.types.is_dictionary(kind) else kind for kind in types}
    return next(iter(plain)) if len(plain) == 1 else pa.string()


def _column(table: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    if field.name not in table.column_names:
        return pa.chunked_array([pa.nulls(table.num_rows, field.type)])
    column = table.column(field.name)
    if column.type == field.type:
        return column
    return pa.chunked_array([as_text(chunk) for chunk in _plain(column).chunks], field.type)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _overflow(table: pa.Table, lost: Sequence[str]) -> pa.Array:
    """Return the overflow of one table, with the columns that are no longer promoted added to it."""
    level = Level("", table.num_rows, [])
    named = []
    if OVERFLOW in table.column_names:
        named += [(level, key, entry) for key, entry in _exploded(table.column(OVERFLOW).combine_chunks())]
    for name in lost:
        if name in table.column_names:
            values = as_text(_plain(table.column(name)).combine_chunks())
            rows = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
            named.append((level, name, Entry(name, rows, values, rows)))
    if not named:
        return pa.nulls(table.num_rows, OVERFLOW_TYPE)
    return spill(named, table.num_rows, Tally())


def _exploded(maps: pa.MapArray) -> Iterator[tuple[str, Entry]]:
    lists = maps.cast(pa.list_(maps.type.field(0).type))
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    rows = np.repeat(np.arange(len(maps)), counts)
    flat = lists.flatten()
    keys = flat.field(0).dictionary_encode()
    codes = keys.indices.to_numpy(zero_copy_only=False)
    for code, key in enumerate(keys.dictionary.to_pylist()):
        index = np.flatnonzero(codes == code)
        yield key, Entry(key, rows[index], flat.field(1), index)
