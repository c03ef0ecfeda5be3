"""Fields that a parser found in lines, and the labels they become."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.errors import LimitHit
from lakerunner.query.logql.entries import ERROR, ERROR_DETAILS, Category, Check, Entries, Mask, plain, valid
from lakerunner.query.logql.stages import field_kernels
from lakerunner.query.logql.stages.texts import Bytes, Offsets, bytes_of, slices, texts_of

Indices: TypeAlias = npt.NDArray[np.int32]
#: Names of labels that the rest of the query needs; None: all.
Wanted: TypeAlias = frozenset[str] | None

#: Added to the name of a parsed label where the entry has one of this name stored with it.
EXTRACTED = "_extracted"
#: Values of new labels in one batch, with those that entries lack: half a gigabyte of offsets.
MAX_CELLS = 1 << 27
#: Different keys in one batch.
MAX_KEYS = 1 << 20

_FIRST_FIELDS, _FIRST_KEYS = 1 << 16, 256
#: Characters that Go trims from names. Python's `strip` trims more of them.
_BLANKS = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_NO_NAME = re.compile(r"[^a-zA-Z0-9_]")


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of all fields. Those of nested objects have a parent."""

    parents: Indices
    texts: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Fields:
    """Values as ranges of the bytes of the lines, in order of the lines."""

    data: Bytes
    rows: Indices
    keys: Indices
    starts: Indices
    ends: Indices
    #: How the bytes of a value become its text: AS_IS and its like.
    kinds: npt.NDArray[np.uint8]

    def only(self, chosen: Mask) -> Fields:
        rows, keys, starts, ends = (part[chosen] for part in (self.rows, self.keys, self.starts, self.ends))
        return Fields(self.data, rows, keys, starts, ends, self.kinds[chosen])


#: Runs a kernel over some lines: `(bytes, offsets, begin, end, known keys, their number, unwanted, room for fields)` ->
#: the line where it stopped, the numbers of fields and keys, and 0 or what there was no room for.
Scan: TypeAlias = Callable[[Bytes, Offsets, int, int, Any, int, Any, Any], tuple[int, int, int, int]]


class _Known:
    """The table of interned keys, which grows."""

    def __init__(self) -> None:
        self.count = 0
        self._room(_FIRST_KEYS)

    def _room(self, places: int) -> None:
        self.table = np.full(places * 4, -1, np.int32)
        self.parents, self.starts, self.ends = (np.empty(places, np.int32) for _ in range(3))
        self.follow = np.full(places + 1, -1, np.int32)
        self.escaped, self.unwanted = np.zeros(places, np.bool_), np.zeros(places, np.bool_)

    def arrays(self) -> tuple[Any, ...]:
        return self.table, self.parents, self.starts, self.ends, self.follow, self.escaped

    def grow(self, data: Bytes) -> None:
        if len(self.parents) * 2 > MAX_KEYS:
            raise LimitHit(
                f"cannot parse the lines: they have more than {MAX_KEYS:,} different keys (fixed)",
                hint='name the fields that you need, as in `| json a="b"`',
            )
        old, count = (self.parents, self.starts, self.ends, self.escaped, self.unwanted), self.count
        self._room(len(self.parents) * 2)
        self.escaped[:count], self.unwanted[:count] = old[3][:count], old[4][:count]
        field_kernels.intern_again(
            data, old[0], old[1], old[2], count, self.table, self.parents, self.starts, self.ends
        )


def scanned(
    lines: pa.StringArray, scan: Scan, check: Check, name_of: Callable[[Keys], Sequence[str]] | None, wanted: Wanted
) -> tuple[Fields, Keys]:
    """The fields of all lines. Keys whose names are not wanted are left out as soon as they are known."""
    data, offsets = bytes_of(lines)
    known, chunks, room = _Known(), [], _FIRST_FIELDS
    for begin, end in slices(offsets):
        check()
        while begin < end:
            out = room_for_fields(room)
            stopped, used, known.count, full = scan(
                data, offsets, begin, end, known.arrays(), known.count, known.unwanted, out
            )
            chunks.append(tuple(column[:used] for column in out))
            begin = stopped
            if full == field_kernels.NO_KEY_ROOM:
                known.grow(data)
            elif full and not used:
                room *= 2
            if name_of is not None and wanted is not None:
                _mark_unwanted(known, name_of(_keys(data, known)), wanted)
    columns = [np.concatenate(parts) for parts in zip(*chunks, strict=True)] or room_for_fields(0)
    return Fields(data, *columns), _keys(data, known)


def room_for_fields(room: int) -> tuple[Any, ...]:
    return (*(np.empty(room, np.int32) for _ in range(4)), np.empty(room, np.uint8))


def _keys(data: Bytes, known: _Known) -> Keys:
    ranges = zip(known.starts[: known.count].tolist(), known.ends[: known.count].tolist(), strict=True)
    return Keys(known.parents[: known.count], [data[start:end].tobytes() for start, end in ranges])


def _mark_unwanted(known: _Known, names: Sequence[str], wanted: frozenset[str]) -> None:
    for key, name in enumerate(names):
        known.unwanted[key] = name not in wanted and name + EXTRACTED not in wanted


def sanitized(key: str) -> str:
    """A key as the name of a label.

    >>> sanitized("e-f"), sanitized(" 1st "), sanitized("  ")
    ('e_f', '_1st', '')
    """
    name = key.strip(_BLANKS)
    if name and name[0] in "0123456789":
        name = "_" + name
    return _NO_NAME.sub("_", name)


def with_fields(
    entries: Entries,
    fields: Fields,
    names: Sequence[str],
    wanted: Wanted,
    check: Check,
    *,
    clashes: Sequence[str] | None = None,
    last_wins: bool = False,
    replaces: bool = False,
) -> Entries:
    """The entries with the fields as labels; `names` has the label of each key.

    Where an entry has a label of this name stored with it, the field gets another name. `clashes` has the names to look
    for, if they differ from those of the labels. What an earlier stage parsed stays, unless this stage `replaces` it.
    """
    numbers: dict[str, int] = {}
    columns = _columns_of(entries, fields, names, names if clashes is None else clashes, wanted, numbers)
    if len(numbers) * len(entries) > MAX_CELLS:
        raise LimitHit(
            f"cannot parse {len(entries):,} lines: they have {len(numbers):,} different labels, "
            f"more than {MAX_CELLS:,} values together (fixed)",
            hint='name the fields that you need, as in `| json a="b"`',
        )
    order, bounds = field_kernels.by_column(columns, len(numbers))
    for name, number in numbers.items():
        check()
        chosen = order[bounds[number] : bounds[number + 1]]
        if len(chosen):
            entries = with_parsed(entries, name, column_of(fields, chosen, len(entries), last_wins), replaces=replaces)
    return entries


def _columns_of(
    entries: Entries,
    fields: Fields,
    names: Sequence[str],
    clashes: Sequence[str],
    wanted: Wanted,
    numbers: dict[str, int],
) -> Indices:
    """The number of the column of each field, -1 if it is not wanted. Adds the columns to `numbers`."""

    def number(name: str) -> int:
        return numbers.setdefault(name, len(numbers)) if wanted is None or name in wanted else -1

    stored = {clash: mask for clash in set(clashes) if (mask := entries.stored(clash)) is not None}
    usual = np.array(
        [
            -1 if clash in stored and stored[clash].all() else number(name)
            for name, clash in zip(names, clashes, strict=True)
        ],
        np.int32,
    )
    columns = usual[fields.keys] if len(usual) else np.empty(0, np.int32)
    for key, (name, clash) in enumerate(zip(names, clashes, strict=True)):
        if clash in stored:
            here = np.flatnonzero(fields.keys == key)
            columns[here[stored[clash][fields.rows[here]]]] = number(name + EXTRACTED)
    return columns


def column_of(fields: Fields, chosen: Any, total: int, last_wins: bool) -> pa.StringArray:
    offsets, present = np.empty(total + 1, np.int32), np.zeros(total, np.bool_)
    out = np.empty(field_kernels.column_bytes(chosen, fields.starts, fields.ends), np.uint8)
    size = field_kernels.fill_column(
        fields.data, chosen, fields.rows, fields.starts, fields.ends, fields.kinds, last_wins, offsets, present, out
    )
    return texts_of(out[:size], offsets, present)


def with_parsed(entries: Entries, name: str, values: pa.Array, *, replaces: bool = False) -> Entries:
    """The entries with a parsed label. Where an entry has it from an earlier stage, that one stays or is replaced."""
    had = entries.columns.get((Category.PARSED, name))
    if had is not None and not replaces:
        values = pc.coalesce(plain(had), plain(values))
        columns: Mapping[tuple[Category, str], pa.Array] = {
            key: column for key, column in entries.columns.items() if key != (Category.PARSED, name)
        }
        entries = Entries(entries.times_ns, entries.lines, columns)
    return entries.with_label(name, values)


def with_parser_error(entries: Entries, where: Mask, error: str, details: pa.Array | None) -> Entries:
    """Mark entries as failed. Unlike other stages, a parser replaces an earlier error; without details, those stay."""
    if not where.any():
        return entries
    absent = pa.array(~where)
    marked = entries.with_label(ERROR, pc.if_else(absent, pa.scalar(None, pa.string()), pa.scalar(error)))
    if details is None:
        return marked
    return marked.with_label(ERROR_DETAILS, pc.if_else(absent, pa.scalar(None, pa.string()), plain(details)))


def failed(entries: Entries) -> Mask:
    """The entries that an earlier stage could not handle."""
    errors = entries.label(ERROR)
    return np.zeros(len(entries), np.bool_) if errors is None else valid(errors)
