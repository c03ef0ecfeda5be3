"""The attributes of stored spans as they were sent: level, key, type and value, one list per span.

Ingest stores one column per key. Here the columns become attributes again, exactly: with the key as it was spelled and
the type that it was sent with (`spelling.py`, `sent_types.py`). All work is done per column.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats import sent_types
from lakerunner.formats.attributes import OVERFLOW, as_text, keys_of
from lakerunner.formats.sent_types import PLAIN, implied
from lakerunner.formats.spelling import spelled_rows
from lakerunner.formats.typed_json import from_typed_json
from lakerunner.formats.unify_tables import exploded
from lakerunner.model.signals.logs import SPELLED
from lakerunner.model.signals.traces import SENT

TYPES = (*PLAIN, sent_types.ARRAY, sent_types.KVLIST, sent_types.BYTES, sent_types.EMPTY)
_CODES = {name: code for code, name in enumerate(TYPES)}
_LEVELS = {"resource": 0, "scope": 1, "attr": 2}
_SCOPE_FIELDS = {"scope_name": "name", "scope_version": "version"}
ATTRIBUTE = pa.struct(
    [
        pa.field("level", pa.int8()),
        pa.field("key", pa.string()),
        pa.field("type", pa.int8()),
        pa.field("value", pa.string()),
    ]
)

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Level(enum.IntEnum):
    """What an attribute belongs to. Name and version of the scope are listed as if they were attributes."""

    RESOURCE = 0
    SCOPE = 1
    SPAN = 2
    SCOPE_FIELD = 3


@dataclass(slots=True)
class _Parts:
    rows: list[Ints] = field(default_factory=list)
    levels: list[npt.NDArray[np.int8]] = field(default_factory=list)
    keys: list[Ints] = field(default_factory=list)
    types: list[npt.NDArray[np.int8]] = field(default_factory=list)
    values: list[pa.Array] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)

    def add(self, rows: Ints, level: int, key: str, types: npt.NDArray[np.int8], values: pa.Array) -> None:
        if not len(rows):
            return
        self.rows.append(rows)
        self.levels.append(np.full(len(rows), level, np.int8))
        self.keys.append(np.full(len(rows), self.names.setdefault(key, len(self.names)), np.int64))
        self.types.append(types)
        self.values.append(values)


def is_attribute(column: str) -> bool:
    """Whether a column of a segment holds an attribute."""
    return column.partition("_")[0] in _LEVELS


def typed_attributes(batch: pa.RecordBatch) -> pa.ListArray:
    """Return a list of `ATTRIBUTE` per row. The batch has all attribute columns; its schema names their keys."""
    keys = keys_of(batch.schema)
    stored = set(batch.schema.names)
    spelled = spelled_rows(batch.column(SPELLED)) if SPELLED in stored else {}
    marks = spelled_rows(batch.column(SENT)) if SENT in stored else {}
    parts = _Parts()
    for column in batch.schema.names:
        if is_attribute(column):
            usual = keys.get(column, (column.partition("_")[2],))[0]
            _add_column(parts, column, batch.column(column), usual, spelled.get(column, {}), marks.get(column, {}))
    if OVERFLOW in stored:
        for name, entry in exploded(batch.column(OVERFLOW)):
            if is_attribute(name):
                held = batch.column(name).is_valid().to_numpy(zero_copy_only=False) if name in stored else None
                literal = np.zeros(len(entry.rows), np.bool_) if held is None else held[entry.rows]
                _add_overflow(
                    parts, name, entry.rows, entry.source.take(pa.array(entry.index)), literal, keys, spelled, marks
                )
    for column, by_type in marks.items():
        if (rows := by_type.get(sent_types.EMPTY)) is not None and is_attribute(column):
            for key, mine in _by_key(rows, column.partition("_")[2], spelled.get(column, {})):
                places = np.flatnonzero(mine)
                types = np.full(len(places), _CODES[sent_types.EMPTY], np.int8)
                parts.add(places, _LEVELS[column.partition("_")[0]], key, types, pa.array([""] * len(places)))
    return _lists(parts, batch.num_rows)


def _add_column(
    parts: _Parts, column: str, values: pa.Array, usual: str, spelled: dict[str, Mask], marks: dict[str, Mask]
) -> None:
    level = _LEVELS[column.partition("_")[0]]
    present = values.is_valid().to_numpy(zero_copy_only=False)
    if not present.any():
        return
    plain = values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values
    types = implied(plain)
    marked = np.zeros(len(plain), np.bool_)
    for name, mask in marks.items():
        if name in _CODES and name != sent_types.EMPTY:
            types[mask] = _CODES[name]
            marked |= mask
    texts = as_text(plain)
    if column in _SCOPE_FIELDS:
        rows = np.flatnonzero(present & ~marked)
        parts.add(rows, Level.SCOPE_FIELD, _SCOPE_FIELDS[column], types[rows], texts.take(pa.array(rows)))
        present &= marked
    for key, mine in _by_key(present, usual, spelled):
        rows = np.flatnonzero(mine)
        parts.add(rows, level, key, types[rows], texts.take(pa.array(rows)))


def _by_key(rows: Mask, usual: str, spelled: dict[str, Mask]) -> list[tuple[str, Mask]]:
    """Return the rows by the key that they have."""
    found = []
    left = rows.copy()
    for key, unusual in spelled.items():
        found.append((key, rows & unusual))
        left &= ~unusual
    return [*found, (usual, left)]


def _add_overflow(
    parts: _Parts,
    name: str,
    rows: Ints,
    texts: pa.Array,
    literal: Mask,
    keys: dict[str, list[str]],
    spelled: dict[str, dict[str, Mask]],
    marks: dict[str, dict[str, Mask]],
) -> None:
    """Add values of the overflow. Where the column of that name has a value too, the name has the key as sent."""
    prefix, _, rest = name.partition("_")
    types = np.zeros(len(rows), np.int8)
    for kind, marked in marks.get(name, {}).items():
        if kind in _CODES and kind != sent_types.EMPTY:
            types[marked[rows]] = _CODES[kind]
    usual = keys.get(name, [rest])[0]
    variants = {key: unusual[rows] for key, unusual in spelled.get(name, {}).items()}
    for key, mine in [(rest, literal), *_by_key(~literal, usual, variants)]:
        at = np.flatnonzero(mine)
        parts.add(rows[at], _LEVELS[prefix], key, types[at], texts.take(pa.array(at)))


def _lists(parts: _Parts, row_count: int) -> pa.ListArray:
    offsets = np.zeros(row_count + 1, np.int32)
    if not parts.rows:
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array([], ATTRIBUTE))
    rows = np.concatenate(parts.rows)
    order = pa.array(np.argsort(rows, kind="stable"))
    np.cumsum(np.bincount(rows, minlength=row_count), out=offsets[1:])
    names = pa.array(list(parts.names), pa.string())
    children = [
        pa.array(np.concatenate(parts.levels)).take(order),
        names.take(pa.array(np.concatenate(parts.keys))).take(order),
        pa.array(np.concatenate(parts.types)).take(order),
        pc.cast(pa.concat_arrays(parts.values), pa.string()).take(order),
    ]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.StructArray.from_arrays(children, fields=list(ATTRIBUTE)))


def python_value(code: int, text: str) -> Any:
    """Return an attribute's value as Python has it: bytes for bytes, None for no value.

    >>> python_value(TYPES.index("int"), "5"), python_value(TYPES.index("array"), '[1,{"$bytes":"YQ=="}]')
    (5, [1, b'a'])
    """
    match TYPES[code]:
        case sent_types.INT:
            return int(float(text)) if not text.lstrip("-").isdigit() else int(text)
        case sent_types.DOUBLE:
            return float(text) if text else math.nan
        case sent_types.BOOL:
            return text == "true"
        case sent_types.ARRAY | sent_types.KVLIST:
            try:
                return from_typed_json(text)
            except ValueError:
                # Cut by a limit of ingest, and so no JSON any more.
                return text
        case sent_types.BYTES:
            try:
                return from_typed_json(f'{{"$bytes":"{text}"}}')
            except ValueError:
                return text
        case sent_types.EMPTY:
            return None
        case _:
            return text
