"""Promote attributes to typed columns, one per key, at most 256; the rest goes to one overflow column.

The overflow column is a map from text to text. A key without a column of its own is stored there under the name that
its column would have had, so a query finds it by the same name. Where two keys of one row share a column name ("a.b"
and "a_b"), the last one that was sent gets the column; the other goes to the overflow under its prefix and original
key.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.decoded import Tally
from lakerunner.formats.limits import Limits
from lakerunner.formats.number_text import float_texts
from lakerunner.formats.sent_types import EMPTY, STRING, unlike
from lakerunner.formats.spelling import Spelled, by_use, spelled_column
from lakerunner.model.labels import attribute_column, loki_label
from lakerunner.model.signals.logs import SPELLED
from lakerunner.model.signals.traces import SENT

#: Every column makes the file's footer longer, which costs even readers that do not select the column.
MAX_PROMOTED_COLUMNS = 256
OVERFLOW = "attributes_overflow"
OVERFLOW_TYPE = pa.map_(pa.string(), pa.string())
#: Up to this size, doubles hold every whole number.
EXACT = 1 << 53
#: Schema metadata key. Its value is JSON that maps each column to the original keys stored in it.
KEYS_METADATA = b"lakerunner.attribute_keys"
#: Keys kept for attributes that are in the overflow only. Further ones lose the case of their letters.
MAX_OVERFLOW_KEYS = 1_000

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Entry:
    """The values of one key and one type: `source[index[i]]` belongs to row `rows[i]` of its level."""

    key: str
    rows: Ints
    source: pa.Array
    index: Ints
    #: The position of each value among those of its row, if that is known.
    place: Ints | None = None
    #: The type that the values were sent with (`sent_types.py`), if that is known.
    sent: str | None = None


@dataclass(frozen=True, slots=True)
class Level:
    """The attributes of one level: of the rows themselves, or of the resources or scopes that rows share."""

    prefix: str
    size: int
    entries: Sequence[Entry]
    #: The element of this level that each row belongs to; None where the elements are the rows themselves.
    of_row: Ints | None = None
    #: Keys that were sent without a value, each with the elements that have it.
    empty: Sequence[tuple[str, Ints]] = ()


@dataclass(frozen=True, slots=True)
class Promoted:
    """The attribute columns, the overflow column, the original keys of each column, unusual keys and types by row."""

    columns: dict[str, pa.Array]
    overflow: pa.Array | None
    keys: dict[str, list[str]]
    spelled: list[Spelled]
    sent: list[Spelled]

    def add_to(self, table: pa.Table) -> pa.Table:
        for marks, name in ((self.spelled, SPELLED), (self.sent, SENT)):
            if marks and name in table.column_names:
                column = spelled_column(marks, table.num_rows)
                table = table.set_column(table.column_names.index(name), table.schema.field(name), column)
        for name in sorted(self.columns):
            table = table.append_column(name, self.columns[name])
        if self.overflow is not None:
            table = table.append_column(pa.field(OVERFLOW, OVERFLOW_TYPE), self.overflow)
        return with_keys(table, self.keys)


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    level: Level
    entries: list[Entry]
    presence: int


def with_keys(table: pa.Table, keys: dict[str, list[str]]) -> pa.Table:
    """Return the table with the original keys of its attribute columns in the schema metadata."""
    metadata = dict(table.schema.metadata or {})
    metadata[KEYS_METADATA] = orjson.dumps(keys, option=orjson.OPT_SORT_KEYS)
    return table.replace_schema_metadata(metadata)


def keys_of(schema: pa.Schema) -> dict[str, list[str]]:
    """Return column -> original keys, as `with_keys` wrote them. A foreign file may hold anything under that name."""
    document = (schema.metadata or {}).get(KEYS_METADATA)
    try:
        found = orjson.loads(document) if document else {}
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(found, dict):
        return {}
    lists = {name: keys for name, keys in found.items() if isinstance(keys, list) and keys}
    return {name: keys for name, keys in lists.items() if all(isinstance(key, str) for key in keys)}


def promote(
    levels: Sequence[Level], row_count: int, tally: Tally, cap: int = MAX_PROMOTED_COLUMNS, *, exact: bool = False
) -> Promoted:
    """Build the attribute columns of all levels, `row_count` rows each, and the overflow.

    Keys that occur in the most rows get the columns. With `exact`, every key and type can be told from the result;
    without it, every Loki label.
    """
    columns = sorted(_columns(levels), key=lambda column: (-column.presence, column.name))
    promoted: dict[str, pa.Array] = {}
    keys: dict[str, list[str]] = {}
    spelled: list[Spelled] = []
    sent: list[Spelled] = []
    spilled: list[tuple[Level, str, Entry]] = []
    for rank, column in enumerate(columns):
        chosen = _winners(column.entries, tally)
        named = [entry.key for entry in column.entries]
        usual = by_use(named, [len(entry.rows) for entry in column.entries])
        if rank < cap:
            promoted[column.name] = _expand(_spread(chosen.entry, column.level.size), column.level)
            keys[column.name] = usual
            if len(usual) > 1:
                spelled += _unusual(column, chosen, usual[0], exact=exact)
        else:
            spilled.append((column.level, column.name, chosen.entry))
            differs = usual[0] != column.name.partition("_")[2] if exact else is_unlike(column.name, usual[0])
            if differs and len(keys) < cap + MAX_OVERFLOW_KEYS:
                keys[column.name] = usual
        if exact:
            sent += _unlike_types(column, chosen, in_column=rank < cap)
        prefix = column.level.prefix
        spilled.extend((column.level, f"{prefix}_{entry.key}", entry) for entry in chosen.losers)
    overflow = spill(spilled, row_count, tally) if spilled else None
    for level in levels if exact else ():
        for key, elements in level.empty:
            name = attribute_column(level.prefix, key)
            rows = elements if level.of_row is None else np.flatnonzero(np.isin(level.of_row, elements))
            spelled.append(Spelled(rows, name, key))
            sent.append(Spelled(rows, name, EMPTY))
    return Promoted(promoted, overflow, keys, spelled, sent)


def is_unlike(column: str, key: str) -> bool:
    """Whether the label of a key cannot be told from the name of its column."""
    return loki_label(key) != loki_label(column.partition("_")[2])


def _unusual(column: _Column, chosen: _Winners, usual: str, *, exact: bool) -> Iterable[Spelled]:
    """Yield the rows that have an unusual key in the column."""
    for number, entry in enumerate(column.entries):
        if entry.key != usual if exact else loki_label(entry.key) != loki_label(usual):
            mine = chosen.origin == number
            part = Entry(entry.key, chosen.entry.rows[mine], chosen.entry.source, chosen.entry.index[mine])
            rows, _ = _rows_of(column.level, part)
            if len(rows):
                yield Spelled(rows, column.name, entry.key)


def _unlike_types(column: _Column, chosen: _Winners, *, in_column: bool) -> Iterable[Spelled]:
    """Yield the rows whose stored value does not tell the type that was sent."""
    # The name and version of a scope share their columns with attributes of these names, which are marked.
    is_shared = column.name in ("scope_name", "scope_version")
    for number, entry in enumerate(column.entries):
        if entry.sent is None:
            continue
        source, index, at = chosen.entry.source, chosen.entry.index, chosen.entry.rows
        if len(column.entries) > 1:
            index, at = index[chosen.origin == number], at[chosen.origin == number]
        if not in_column:
            odd: npt.NDArray[np.bool_] | bool = entry.sent != STRING
        else:
            odd = is_shared or unlike(source, index, entry.sent)
        if odd is False:
            continue
        if odd is not True:
            index, at = index[odd], at[odd]
        rows, _ = _rows_of(column.level, Entry(entry.key, at, source, index))
        if len(rows):
            yield Spelled(rows, column.name, entry.sent)
    for loser in chosen.losers:
        if loser.sent not in (None, STRING):
            rows, _ = _rows_of(column.level, loser)
            yield Spelled(rows, f"{column.level.prefix}_{loser.key}", str(loser.sent))


def as_text(array: pa.Array) -> pa.Array:
    """Convert attribute values to text, as the overflow and columns of mixed types hold them.

    A whole number has the same text as an integer and as a double.
    """
    if pa.types.is_string(array.type):
        return array
    return float_texts(array) if pa.types.is_floating(array.type) else pc.cast(array, pa.string())


def are_exact(ints: pa.Array | pa.ChunkedArray) -> bool:
    """Whether doubles hold all of these integers exactly."""
    bounds = pc.min_max(ints).as_py()
    return bounds["min"] is None or (bounds["min"] >= -EXACT and bounds["max"] <= EXACT)


def common_type(types: set[pa.DataType], ints: Iterable[pa.Array | pa.ChunkedArray]) -> pa.DataType:
    """The type of a column that holds values of these types; `ints` are its integers.

    Numbers become double unless that would round, anything else that differs becomes text.
    """
    if len(types) == 1:
        return next(iter(types))
    if types == {pa.int64(), pa.float64()} and all(map(are_exact, ints)):
        return pa.float64()
    return pa.string()


def cut_text(array: pa.Array, limits: Limits, tally: Tally) -> pa.Array:
    """Cut texts longer than `value_bytes`, at a character boundary, and count them."""
    if array.nbytes <= limits.value_bytes:
        return array
    lengths = pc.binary_length(array)
    if not (longest := pc.max(lengths).as_py()) or longest <= limits.value_bytes:
        return array
    too_long = pc.fill_null(pc.greater(lengths, limits.value_bytes), False)
    cut = [
        value.encode()[: limits.value_bytes].decode("utf-8", "ignore") for value in array.filter(too_long).to_pylist()
    ]
    tally.shorten("value_bytes", len(cut), excerpt=cut[0])
    return pc.replace_with_mask(array, too_long, pa.array(cut, pa.string()))


def _columns(levels: Iterable[Level]) -> Iterable[_Column]:
    for level in levels:
        weight = None if level.of_row is None else np.bincount(level.of_row, minlength=level.size)
        names = sorted(
            (attribute_column(level.prefix, entry.key), entry.key, i) for i, entry in enumerate(level.entries)
        )
        for name, group in itertools.groupby(names, key=lambda item: item[0]):
            entries = [level.entries[i] for _, _, i in group]
            if weight is not None:
                # A resource without rows must not decide the type of a column.
                entries = [entry for entry in entries if weight[entry.rows].any()]
            rows = (entry.rows for entry in entries)
            presence = sum(len(r) if weight is None else int(weight[r].sum()) for r in rows)
            if entries:
                yield _Column(name, level, entries, presence)


@dataclass(frozen=True, slots=True)
class _Winners:
    """One value per row, all of one type, and the values that lost to another one of their row."""

    entry: Entry
    losers: list[Entry]
    #: For each value of `entry`, the number of the entry that it comes from.
    origin: Ints


def _spread(entry: Entry, size: int) -> pa.Array:
    """Return the values, one element per row; null where there is none."""
    if len(entry.rows) == size:
        return entry.source.take(pa.array(entry.index))
    index = np.zeros(size, np.int64)
    absent = np.ones(size, np.bool_)
    index[entry.rows] = entry.index
    absent[entry.rows] = False
    return entry.source.take(pa.array(index, mask=absent))


def _winners(entries: list[Entry], tally: Tally) -> _Winners:
    """Choose the last value of each row, or the first where the order is not known.

    Of several losers with the same key in a row, the overflow can hold one: the first.
    """
    if len(entries) == 1 and bool(np.all(entries[0].rows[1:] > entries[0].rows[:-1])):
        return _Winners(entries[0], [], np.zeros(len(entries[0].rows), np.int64))
    types = {entry.source.type for entry in entries}
    # Take before concatenating: each source holds the values of all attributes.
    values = [entry.source.take(pa.array(entry.index)) for entry in entries]
    kind = common_type(types, (value for value in values if pa.types.is_integer(value.type)))
    source = pa.concat_arrays([as_text(value) if kind == pa.string() else value.cast(kind) for value in values])
    rows = np.concatenate([entry.rows for entry in entries])
    origin = np.repeat(np.arange(len(entries)), [len(entry.rows) for entry in entries])
    places = [entry.place for entry in entries if entry.place is not None]
    # Backwards, if the order is not known: then the first is the last.
    place = np.concatenate(places) if len(places) == len(entries) else -np.arange(len(rows))
    order = np.lexsort((place, rows))
    last = np.ones(len(rows), np.bool_)
    last[:-1] = rows[order[1:]] != rows[order[:-1]]
    kept, lost = order[last], _first_of_keys(order[~last], rows, origin, entries, tally)
    losers = [
        Entry(entry.key, rows[index], source, index, sent=entry.sent)
        for number, entry in enumerate(entries)
        if len(index := lost[origin[lost] == number])
    ]
    return _Winners(Entry(entries[0].key, rows[kept], source, kept), losers, origin[kept])


def _first_of_keys(lost: Ints, rows: Ints, origin: Ints, entries: list[Entry], tally: Tally) -> Ints:
    """Return the losers, ordered by row and place, without those whose key lost before in their row."""
    codes = {key: code for code, key in enumerate(dict.fromkeys(entry.key for entry in entries))}
    code = np.array([codes[entry.key] for entry in entries])[origin[lost]]
    order = np.lexsort((np.arange(len(lost)), code, rows[lost]))
    row, code = rows[lost][order], code[order]
    first = np.ones(len(lost), np.bool_)
    first[1:] = (row[1:] != row[:-1]) | (code[1:] != code[:-1])
    if not first.all():
        excerpt = entries[int(origin[lost[order[~first][0]]])].key
        tally.shorten("duplicate_attribute", int((~first).sum()), excerpt=excerpt)
    return lost[np.sort(order[first])]


def _expand(values: pa.Array, level: Level) -> pa.Array:
    """Repeat each element's value for its rows. Text becomes a dictionary, which is cheap to take, sort and write."""
    if level.of_row is None:
        return values
    if not pa.types.is_string(values.type):
        return values.take(pa.array(level.of_row))
    encoded = values.dictionary_encode()
    return pa.DictionaryArray.from_arrays(encoded.indices.take(pa.array(level.of_row)), encoded.dictionary)


def spill(spilled: list[tuple[Level, str, Entry]], row_count: int, tally: Tally) -> pa.Array:
    """Build the overflow column: a map per row with the values of the named entries, as text."""
    distinct = sorted({name for _, name, _ in spilled})
    rank = {name: i for i, name in enumerate(distinct)}
    rows: list[Ints] = []
    codes: list[Ints] = []
    texts: list[pa.Array] = []
    for level, name, entry in spilled:
        at, index = _rows_of(level, entry)
        rows.append(at)
        codes.append(np.full(len(at), rank[name], np.int64))
        texts.append(as_text(entry.source.take(pa.array(index))))
    row, code, text = np.concatenate(rows), np.concatenate(codes), pa.concat_arrays(texts)
    order = np.lexsort((np.arange(len(row)), code, row))
    row, code = row[order], code[order]
    repeated = np.zeros(len(row), np.bool_)
    repeated[1:] = (row[1:] == row[:-1]) & (code[1:] == code[:-1])
    if repeated.any():
        tally.shorten("duplicate_attribute", int(repeated.sum()), excerpt=distinct[int(code[repeated][0])])
    row, code, order = row[~repeated], code[~repeated], order[~repeated]
    offsets = np.zeros(row_count + 1, np.int32)
    np.cumsum(np.bincount(row, minlength=row_count), out=offsets[1:])
    return pa.MapArray.from_arrays(
        pa.array(offsets), pa.array(distinct, pa.string()).take(pa.array(code)), text.take(pa.array(order))
    )


def _rows_of(level: Level, entry: Entry) -> tuple[Ints, Ints]:
    """Return the rows that hold the entry's values, and the index of each row's value.

    An element of a level may own many rows.
    """
    if level.of_row is None:
        return entry.rows, entry.index
    order = np.argsort(level.of_row, kind="stable")
    starts = np.searchsorted(level.of_row[order], entry.rows)
    counts = np.searchsorted(level.of_row[order], entry.rows, side="right") - starts
    return order[ranges(starts, counts)], np.repeat(entry.index, counts)


def ranges(starts: Ints, counts: Ints) -> Ints:
    """Concatenate the ranges `start, start + 1, ...`, each `count` long.

    >>> ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    spread: Ints = np.arange(total) + np.repeat(starts - (ends - counts), counts)
    return spread
