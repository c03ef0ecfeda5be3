"""Tables of several objects as one: columns unified, rows in the table's order, cut by the hour of their time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import (
    MAX_PROMOTED_COLUMNS,
    OVERFLOW,
    OVERFLOW_TYPE,
    Entry,
    Ints,
    Level,
    as_text,
    keys_of,
    spill,
    with_keys,
)
from lakerunner.formats.decoded import Tally
from lakerunner.model.signal import Signal, Table
from lakerunner.model.time import NS_PER_HOUR, dateint, hour_of_day

#: The column by which a describing table (the series of metrics) belongs to the rows.
_LINK = "tid"


@dataclass(frozen=True, slots=True)
class Hour:
    """What belongs in one partition."""

    dateint: int
    hour: int
    tables: Mapping[str, pa.Table]


def merge(
    decoded: Sequence[Mapping[str, pa.Table]], signal: Signal, cap: int = MAX_PROMOTED_COLUMNS
) -> dict[str, pa.Table]:
    """One sorted table for each of the signal's, from those of many objects."""
    merged = {}
    for description in signal.tables:
        tables = [tables[description.suffix] for tables in decoded]
        whole = unify(tables, description, cap) if description.attributes else pa.concat_tables(tables)
        if description is not signal.rows:
            whole = _once(whole)
        merged[description.suffix] = sort(whole, description)
    return merged


def unify(tables: Sequence[pa.Table], description: Table, cap: int = MAX_PROMOTED_COLUMNS) -> pa.Table:
    """The rows of all tables, in order, with the attribute columns of all: a column of two types becomes text."""
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
    for table in tables:
        part = pa.Table.from_arrays([_column(table, field) for field in schema], schema=schema)
        if lost or any(OVERFLOW in table.column_names for table in tables):
            part = part.append_column(pa.field(OVERFLOW, OVERFLOW_TYPE), _overflow(table, lost))
        parts.append(part)
    keys: dict[str, set[str]] = {}
    for table in tables:
        for name, originals in keys_of(table.schema).items():
            keys.setdefault(name, set()).update(originals)
    whole = pa.concat_tables(parts).unify_dictionaries()
    return with_keys(whole, {name: sorted(keys[name]) for name in kept if name in keys})


def sort(table: pa.Table, description: Table) -> pa.Table:
    """The rows by the table's sort key, absent values last; equal rows stay in order."""
    if table.num_rows < 2:
        return table
    keys = [_ranks(table.column(name)) for name in description.sort_key]
    order = np.lexsort(tuple(reversed(keys)))
    if bool(np.all(order[1:] > order[:-1])):
        return table
    return table.take(pa.array(order))


def split_hours(tables: Mapping[str, pa.Table], signal: Signal) -> list[Hour]:
    """The tables of each hour of event time that has rows, in order of time."""
    rows = tables[signal.rows.suffix]
    hours = rows.column(signal.time_column).cast(pa.int64()).to_numpy() // (NS_PER_HOUR // signal.time_unit_ns)
    found = np.unique(hours)
    parts = []
    for hour in found.tolist():
        mine = rows if len(found) == 1 else rows.filter(pa.array(hours == hour))
        start_ns = hour * NS_PER_HOUR
        parts.append(Hour(dateint(start_ns), hour_of_day(start_ns), dict(_with_described(mine, tables, signal))))
    return parts


def _with_described(rows: pa.Table, tables: Mapping[str, pa.Table], signal: Signal) -> Iterator[tuple[str, pa.Table]]:
    yield signal.rows.suffix, rows
    for description in signal.tables[1:]:
        table = tables[description.suffix]
        linked = pc.is_in(table.column(_LINK), value_set=pc.unique(rows.column(_LINK)))
        yield description.suffix, table.filter(linked)


def _once(table: pa.Table) -> pa.Table:
    """The first row of each id: two objects describe the same series."""
    _, first = np.unique(table.column(_LINK).to_numpy(), return_index=True)
    return table if len(first) == table.num_rows else table.take(pa.array(np.sort(first)))


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
    """The overflow of one table with the columns that lost their place put into it."""
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
        mine = np.flatnonzero(codes == code)
        yield key, Entry(key, rows[mine], flat.field(1), mine)


def _ranks(column: pa.ChunkedArray) -> Ints:
    """Numbers that order as the values do. Text is ranked by its distinct values, few in most columns."""
    if not (pa.types.is_string(column.type) or pa.types.is_dictionary(column.type)):
        last = np.iinfo(np.int64).max
        numbers: Ints = column.cast(pa.int64()).fill_null(last).to_numpy()
        return numbers
    encoded = _plain(column).combine_chunks().dictionary_encode()
    rank = np.empty(len(encoded.dictionary), np.int64)
    rank[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(rank))
    codes = pc.fill_null(encoded.indices, len(rank)).to_numpy(zero_copy_only=False)
    ranks: Ints = np.append(rank, len(rank))[codes]
    return ranks
