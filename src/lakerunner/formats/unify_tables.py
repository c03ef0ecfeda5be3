"""Concatenate the tables of several objects into one that has the attribute columns of all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attribute_types import AttributeTypes, fit, plain_type
from lakerunner.formats.attributes import (
    MAX_OVERFLOW_KEYS,
    MAX_PROMOTED_COLUMNS,
    OVERFLOW,
    OVERFLOW_TYPE,
    Entry,
    Level,
    as_text,
    is_unlike,
    keys_of,
    spill,
    with_keys,
)
from lakerunner.formats.decoded import Tally
from lakerunner.formats.spelling import Spelled, by_use, spelled_column, spelled_rows
from lakerunner.model.labels import loki_label
from lakerunner.model.signal import Table
from lakerunner.model.signals.logs import SPELLED


def unify_tables(
    tables: Sequence[pa.Table],
    description: Table,
    cap: int = MAX_PROMOTED_COLUMNS,
    types: AttributeTypes | None = None,
) -> pa.Table:
    """Return the rows of all tables, in order, with the attribute columns of all.

    `types` gives each column its type. Values of another type, and columns beyond `cap`, go to the overflow.
    """
    types = types or AttributeTypes()
    fixed = set(description.schema().names)
    columns: dict[str, list[pa.ChunkedArray]] = {}
    for table in tables:
        for name in table.column_names:
            if name not in fixed and name != OVERFLOW:
                columns.setdefault(name, []).append(table.column(name))
    present = {name: sum(len(each) - each.null_count for each in found) for name, found in columns.items()}
    ranked = sorted(present, key=lambda name: (not types.has_column(name), -present[name], name))
    kept = sorted(name for name in ranked[:cap] if types.has_column(name))
    lost = sorted(set(columns) - set(kept))
    schema = pa.schema([*description.schema(), *(_field(name, columns[name], types) for name in kept)])
    parts, overflows = [], []
    for table in tables:
        arrays, misfits = [], []
        for field in schema:
            values, misfit = _column(table, field)
            arrays.append(values)
            if misfit is not None:
                misfits.append((field.name, misfit))
        parts.append(pa.Table.from_arrays(arrays, schema=schema))
        overflows.append(_overflow(table, lost, misfits))
    if any(overflow is not None for overflow in overflows):
        field = pa.field(OVERFLOW, OVERFLOW_TYPE)
        parts = [
            part.append_column(field, pa.nulls(part.num_rows, OVERFLOW_TYPE) if overflow is None else overflow)
            for part, overflow in zip(parts, overflows, strict=True)
        ]
    keys = _keys(tables, kept)
    if SPELLED in fixed:
        parts = [_respelled(part, keys_of(table.schema), keys) for part, table in zip(parts, tables, strict=True)]
    return with_keys(pa.concat_tables(parts).unify_dictionaries(), keys)


def _keys(tables: Sequence[pa.Table], kept: Sequence[str]) -> dict[str, list[str]]:
    """Return the keys of each column, first the one that most rows have, and those of the overflow that differ."""
    found: dict[str, list[tuple[str, int]]] = {}
    for table in tables:
        stored = set(table.column_names)
        for name, originals in keys_of(table.schema).items():
            rows = table.num_rows - table.column(name).null_count if name in stored else 1
            found.setdefault(name, []).extend((key, rows if key == originals[0] else 0) for key in originals)
    keys = {name: by_use(*zip(*pairs, strict=True)) for name, pairs in found.items()}
    others = [name for name in keys if name not in kept and is_unlike(name, keys[name][0])][:MAX_OVERFLOW_KEYS]
    return {name: keys[name] for name in (*kept, *others) if name in keys}


def _respelled(part: pa.Table, had: Mapping[str, Sequence[str]], keys: Mapping[str, Sequence[str]]) -> pa.Table:
    """Return the rows with their keys named where the usual one of their table is unusual among all tables."""
    unlike = [
        name
        for name, originals in had.items()
        if name in keys and name in part.column_names and loki_label(originals[0]) != loki_label(keys[name][0])
    ]
    if not unlike:
        return part
    before = spelled_rows(part.column(SPELLED).combine_chunks())
    spelled = [
        Spelled(np.flatnonzero(rows), name, key) for name, by_key in before.items() for key, rows in by_key.items()
    ]
    for name in unlike:
        rows = part.column(name).is_valid().to_numpy()
        for named in before.get(name, {}).values():
            rows = rows & ~named
        spelled.append(Spelled(np.flatnonzero(rows), name, had[name][0]))
    at = part.column_names.index(SPELLED)
    return part.set_column(at, part.schema.field(SPELLED), spelled_column(spelled, part.num_rows))


def _field(name: str, columns: Sequence[pa.ChunkedArray], types: AttributeTypes) -> pa.Field:
    """The column's field. Text stays dictionary-encoded if it is so in all tables."""
    kind, stored = types.type_of(name, columns), {column.type for column in columns}
    encoded = len(stored) == 1 and pa.types.is_dictionary(columns[0].type) and kind == plain_type(columns[0].type)
    return pa.field(name, columns[0].type if encoded else kind)


def _column(table: pa.Table, field: pa.Field) -> tuple[pa.ChunkedArray, pa.Array | None]:
    """The table's values of the column, and the texts of those that the type cannot hold, null elsewhere."""
    if field.name not in table.column_names:
        return pa.chunked_array([pa.nulls(table.num_rows, field.type)]), None
    column = table.column(field.name)
    if column.type == field.type:
        return column, None
    array = _plain(column).combine_chunks()
    values, left = fit(array, field.type)
    misfit = None if left is None else pc.if_else(left, as_text(array), None)
    return pa.chunked_array([values]), misfit


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(plain_type(column.type))


def _overflow(table: pa.Table, lost: Sequence[str], misfits: Sequence[tuple[str, pa.Array]]) -> pa.Array | None:
    """Return the overflow of one table, with the columns that it loses and the values that fit no column added."""
    level = Level("", table.num_rows, [])
    gone = [name for name in lost if name in table.column_names]
    texts = [(name, as_text(_plain(table.column(name)).combine_chunks())) for name in gone]
    named = []
    # First, because they were the column's own values; the overflow may hold another key of that name.
    for name, values in (*texts, *misfits):
        rows = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        named.append((level, name, Entry(name, rows, values, rows)))
    if OVERFLOW in table.column_names:
        named += [(level, key, entry) for key, entry in exploded(table.column(OVERFLOW).combine_chunks())]
    return spill(named, table.num_rows, Tally()) if named else None


def exploded(maps: pa.MapArray) -> Iterator[tuple[str, Entry]]:
    lists = maps.cast(pa.list_(maps.type.field(0).type))
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    rows = np.repeat(np.arange(len(maps)), counts)
    flat = lists.flatten()
    keys = flat.field(0).dictionary_encode()
    codes = keys.indices.to_numpy(zero_copy_only=False)
    for code, key in enumerate(keys.dictionary.to_pylist()):
        index = np.flatnonzero(codes == code)
        yield key, Entry(key, rows[index], flat.field(1), index)
