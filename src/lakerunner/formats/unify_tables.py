"""Concatenate the tables of several objects into one that has the attribute columns of all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attribute_types import AttributeTypes, fit, plain_type
from lakerunner.formats.attributes import (
    KEYS_METADATA,
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
)
from lakerunner.formats.decoded import Tally
from lakerunner.formats.sent_types import retyped
from lakerunner.formats.spelling import Spelled, by_use, spelled_column, spelled_rows
from lakerunner.model.labels import loki_label
from lakerunner.model.signal import Table
from lakerunner.model.signals.logs import SPELLED
from lakerunner.model.signals.traces import SENT


@dataclass(frozen=True, slots=True)
class Shape:
    """What a table has, as far as it is known without its rows."""

    schema: pa.Schema
    row_count: int
    #: Column -> rows with a value.
    present: Mapping[str, int]
    #: The columns themselves, if they are at hand. The type of a new column depends on its values.
    columns: Mapping[str, pa.ChunkedArray] = field(default_factory=dict)
    #: Key of the overflow -> rows with it, where it could have a column.
    overflowing: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, table: pa.Table) -> Shape:
        columns = dict(zip(table.column_names, table.columns, strict=True))
        present = {name: len(column) - column.null_count for name, column in columns.items()}
        return cls(table.schema, table.num_rows, present, columns)

    def column(self, name: str) -> pa.ChunkedArray:
        known = self.columns.get(name)
        return pa.chunked_array([], self.schema.field(name).type) if known is None else known


@dataclass(frozen=True, slots=True)
class CommonColumns:
    """The columns that the tables of several shapes share, and how each table gets them."""

    #: Fixed columns, then attributes by name, then the overflow if there may be one; with the keys in its metadata.
    schema: pa.Schema
    #: Attributes without a column.
    lost: frozenset[str]
    #: Attributes with a column that some table has in its overflow.
    promoted: frozenset[str]
    keys: Mapping[str, Sequence[str]]

    def unified(self, table: pa.Table) -> pa.Table:
        """Return the table with these columns. Values that a column's type cannot hold go to the overflow."""
        table = _promoted(table, self)
        fields = [each for each in self.schema if each.name != OVERFLOW]
        arrays: list[pa.ChunkedArray | pa.Array] = []
        misfits = []
        for each in fields:
            values, misfit = _column(table, each)
            arrays.append(values)
            if misfit is not None:
                misfits.append((each.name, misfit))
        if len(fields) < len(self.schema):
            overflow = _overflow(table, sorted(self.lost), misfits)
            arrays.append(pa.nulls(table.num_rows, OVERFLOW_TYPE) if overflow is None else overflow)
        part = pa.Table.from_arrays(arrays, schema=self.schema)
        if self.exact:
            part = retyped(part, table, misfits, sorted(self.lost))
        if SPELLED in part.column_names:
            part = _respelled(part, keys_of(table.schema), self.keys, exact=self.exact)
        return part

    @property
    def exact(self) -> bool:
        """Whether every key and type must be told from the result, and not only the labels."""
        return SENT in self.schema.names

    def retypes(self, shape: Shape) -> bool:
        """Whether rows of that table may get a type named that was told by their column before."""
        return any(
            each.name in self.lost or plain_type(self.schema.field(each.name).type) != plain_type(each.type)
            for each in shape.schema
            if each.name in self.lost or each.name in self.schema.names
        )

    def respells(self, shape: Shape) -> bool:
        """Whether rows of that table get a key named that was the usual one before."""
        return bool(_unlike(keys_of(shape.schema), self.keys, exact=self.exact))


def common_columns(
    shapes: Sequence[Shape], fixed: pa.Schema, cap: int = MAX_PROMOTED_COLUMNS, types: AttributeTypes | None = None
) -> CommonColumns:
    """Decide on the columns of all tables together. Those that most rows have get the `cap` columns."""
    types = types or AttributeTypes()
    of_name: dict[str, list[Shape]] = {}
    for shape in shapes:
        for name in shape.schema.names:
            if name != OVERFLOW and name not in fixed.names:
                of_name.setdefault(name, []).append(shape)
    present = {name: sum(shape.present[name] for shape in found) for name, found in of_name.items()}
    promoted = set()
    for shape in shapes:
        for name, rows in shape.overflowing.items():
            # Only a column that the org has already: the type of another one can no longer be told from its texts.
            # A type that only the overflow tells would be lost in the column.
            if name in types.known and SENT not in fixed.names:
                promoted.add(name)
                present[name] = present.get(name, 0) + rows
    ranked = sorted(present, key=lambda name: (not types.has_column(name), -present[name], name))
    kept = sorted(name for name in ranked[:cap] if types.has_column(name))
    lost = set(of_name) - set(kept)
    fields = [_field(name, [shape.column(name) for shape in of_name.get(name, [])], types) for name in kept]
    schema = pa.schema([*fixed, *fields])
    if lost or any(_may_overflow(shape, fields) for shape in shapes):
        schema = schema.append(pa.field(OVERFLOW, OVERFLOW_TYPE))
    keys = _keys(shapes, kept, exact=SENT in fixed.names)
    metadata = {KEYS_METADATA: orjson.dumps(keys, option=orjson.OPT_SORT_KEYS)}
    return CommonColumns(schema.with_metadata(metadata), frozenset(lost), frozenset(promoted & set(kept)), keys)


def unify_tables(
    tables: Sequence[pa.Table],
    description: Table,
    cap: int = MAX_PROMOTED_COLUMNS,
    types: AttributeTypes | None = None,
) -> pa.Table:
    """Return the rows of all tables, in order, with the attribute columns of all.

    `types` gives each column its type. Values of another type, and columns beyond `cap`, go to the overflow.
    """
    common = common_columns([Shape.of(table) for table in tables], description.schema(), cap, types)
    joined = pa.concat_tables([common.unified(table) for table in tables]).unify_dictionaries()
    if OVERFLOW in joined.column_names and joined.column(OVERFLOW).null_count == joined.num_rows:
        joined = joined.drop_columns([OVERFLOW])
    return joined


def _may_overflow(shape: Shape, fields: Sequence[pa.Field]) -> bool:
    if OVERFLOW in shape.schema.names:
        return True
    kinds = {each.name: plain_type(each.type) for each in fields}
    stored = ((each.name, plain_type(each.type)) for each in shape.schema if each.name in kinds)
    return any(kind != kinds[name] and kinds[name] != pa.string() for name, kind in stored)


def overflowing_keys(maps: pa.ChunkedArray, types: AttributeTypes) -> dict[str, int]:
    """Return the keys of an overflow column that could have a column, and how many rows have each."""
    found: dict[str, int] = {}
    for chunk in maps.chunks:
        for key, entry in exploded(chunk):
            if key in types.known:
                found[key] = found.get(key, 0) + len(entry.rows)
    return found


def _promoted(table: pa.Table, common: CommonColumns) -> pa.Table:
    """Move values of the overflow to their columns where the type holds them and the row has none yet."""
    if not common.promoted or OVERFLOW not in table.column_names:
        return table
    level = Level("", table.num_rows, [])
    named: list[tuple[Level, str, Entry]] = []
    for key, entry in exploded(table.column(OVERFLOW).combine_chunks()):
        left = np.ones(len(entry.rows), np.bool_)
        if key in common.promoted:
            table, left = _with_values(table, key, entry, common.schema.field(key).type)
        if left.any():
            named.append((level, key, Entry(key, entry.rows[left], entry.source, entry.index[left])))
    overflow = spill(named, table.num_rows, Tally()) if named else pa.nulls(table.num_rows, OVERFLOW_TYPE)
    return table.set_column(table.column_names.index(OVERFLOW), OVERFLOW, overflow)


def _with_values(table: pa.Table, name: str, entry: Entry, kind: pa.DataType) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
    """Return the table with those texts in the column that fit into it, and which of them are left."""
    kind = plain_type(kind)
    values, misfit = fit(entry.source.take(pa.array(entry.index)), kind)
    fits = np.ones(len(values), np.bool_) if misfit is None else ~misfit.to_numpy(zero_copy_only=False)
    if name in table.column_names:
        before, was_misfit = fit(_plain(table.column(name)).combine_chunks(), kind)
        if was_misfit is not None:
            return table, np.ones(len(values), np.bool_)
        fits &= ~before.is_valid().to_numpy(zero_copy_only=False)[entry.rows]
    else:
        before = pa.nulls(table.num_rows, kind)
    place = np.full(table.num_rows, -1, np.int64)
    place[entry.rows[fits]] = np.flatnonzero(fits)
    chosen = values.take(pa.array(place, mask=place < 0))
    column = pc.if_else(pa.array(place >= 0), chosen, before)
    if name in table.column_names:
        return table.set_column(table.column_names.index(name), name, column), ~fits
    return table.append_column(name, column), ~fits


def _keys(shapes: Sequence[Shape], kept: Sequence[str], *, exact: bool) -> dict[str, list[str]]:
    """Return the keys of each column, first the one that most rows have, and those of the overflow that differ."""
    found: dict[str, list[tuple[str, int]]] = {}
    for shape in shapes:
        for name, originals in keys_of(shape.schema).items():
            rows = shape.present.get(name, 1)
            found.setdefault(name, []).extend((key, rows if key == originals[0] else 0) for key in originals)
    keys = {name: by_use(*zip(*pairs, strict=True)) for name, pairs in found.items()}
    others = [
        name
        for name in keys
        if name not in kept and (keys[name][0] != name.partition("_")[2] if exact else is_unlike(name, keys[name][0]))
    ][:MAX_OVERFLOW_KEYS]
    return {name: keys[name] for name in (*kept, *others) if name in keys}


def _unlike(had: Mapping[str, Sequence[str]], keys: Mapping[str, Sequence[str]], *, exact: bool) -> list[str]:
    """Return the columns whose usual key is unusual among all tables."""
    own = {name: (keys_had[0], keys[name][0]) for name, keys_had in had.items() if name in keys}
    return [
        name
        for name, (before, now) in own.items()
        if (before != now if exact else loki_label(before) != loki_label(now))
    ]


def _respelled(
    part: pa.Table, had: Mapping[str, Sequence[str]], keys: Mapping[str, Sequence[str]], *, exact: bool
) -> pa.Table:
    """Return the rows with their keys named where the usual one of their table is unusual among all tables."""
    unlike = [name for name in _unlike(had, keys, exact=exact) if name in part.column_names]
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
    if not columns:
        return pa.field(name, types.type_of(name, columns))
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
