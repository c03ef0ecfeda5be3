"""Fields that a parser found in lines, and the labels they become."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.errors import LimitHit
from lakerunner.model.text_bytes import Bytes, Offsets, text_bytes
from lakerunner.query.logql.entries import ERROR, ERROR_DETAILS, Category, Check, Entries, Mask, plain, valid
from lakerunner.query.logql.stages import field_kernels
from lakerunner.query.logql.stages.texts import slices, texts_of

Indices: TypeAlias = npt.NDArray[np.int32]
#: Names of labels that the rest of the query needs; None: all.
Wanted: TypeAlias = frozenset[str] | None

#: Added to the name of a parsed label where the entry has one of this name stored with it.
EXTRACTED = "_extracted"
#: Values of new labels in one batch, with those that entries lack: half a gigabyte of offsets.
MAX_CELLS = 1 << 27
#: Different keys in one batch.
MAX_KEYS = 1 << 18

_NAME_FIELDS = 'name the fields that you need, as in `| json a="b"`'
_FIRST_LINES, _FIRST_FIELDS, _FIRST_KEYS = 64, 1 << 16, 256
#: With more keys than this, it is no longer noted which of them are wanted.
_MAX_MARKED = 4_096
#: Labels that kernels can keep apart by a bit.
_MAX_BITS = 30
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
    #: One row per field: ROW, KEY, START, END and KIND of `field_kernels`.
    parts: Indices

    @property
    def rows(self) -> Indices:
        rows: Indices = self.parts[:, field_kernels.ROW]
        return rows

    @property
    def keys(self) -> Indices:
        keys: Indices = self.parts[:, field_kernels.KEY]
        return keys

    def only(self, chosen: Mask) -> Fields:
        return Fields(self.data, self.parts[chosen])


#: Runs a kernel over some lines: `(bytes, offsets, begin, end, table, keys, their number, room for fields)` -> the line
#: where it stopped, the numbers of fields and keys, and 0 or what there was no room for.
Scan: TypeAlias = Callable[[Bytes, Offsets, int, int, Indices, Indices, int, Indices], tuple[int, int, int, int]]


class _Known:
    """The table of interned keys, which grows."""

    def __init__(self) -> None:
        self.count = 0
        self._room(_FIRST_KEYS)

    def _room(self, places: int) -> None:
        self.table = np.full(places * 4, -1, np.int32)
        self.keys = np.zeros((field_kernels.KEY_PARTS, places), np.int32)
        self.keys[field_kernels.FOLLOW] = -1
        self.keys[field_kernels.KEY_START, -1] = secrets.randbits(31)

    def grow(self, data: Bytes) -> None:
        old = self.keys
        if old.shape[1] * 2 > MAX_KEYS:
            raise LimitHit(
                f"cannot parse the lines: they have more than {MAX_KEYS:,} different keys (fixed)", hint=_NAME_FIELDS
            )
        self._room(old.shape[1] * 2)
        field_kernels.intern_again(data, old, self.count, self.table, self.keys)


def scanned(
    lines: pa.StringArray, scan: Scan, check: Check, name_of: Callable[[Keys], Sequence[str]], wanted: Wanted
) -> tuple[Fields, Keys]:
    """The fields of all lines. Keys whose names are not wanted are left out as soon as they are known."""
    data, offsets = text_bytes(lines)
    known, chunks, room, marked = _Known(), [], _FIRST_FIELDS, 0
    # After the first lines most keys are known, and what is not wanted can be left out.
    first = 0 if wanted is None else min(len(lines), _FIRST_LINES)
    for begin, end in ((0, first), *((max(begin, first), end) for begin, end in slices(offsets))):
        check()
        while begin < end:
            out = room_for_fields(room)
            begin, used, known.count, full = scan(data, offsets, begin, end, known.table, known.keys, known.count, out)
            chunks.append(out[:used])
            if full == field_kernels.NO_KEY_ROOM:
                known.grow(data)
            elif full and used < room // 2:
                room *= 2
            if wanted is not None and marked < known.count <= _MAX_MARKED:
                marked = known.count
                _mark(known, name_of(_keys(data, known)), wanted)
    return joined(data, chunks), _keys(data, known)


def room_for_fields(room: int) -> Indices:
    return np.empty((room, field_kernels.FIELD_PARTS), np.int32)


def joined(data: Bytes, chunks: Sequence[Indices]) -> Fields:
    """The fields that several runs of a kernel found."""
    return Fields(data, np.concatenate([room_for_fields(0), *chunks]) if len(chunks) != 1 else chunks[0])


def _keys(data: Bytes, known: _Known) -> Keys:
    keys = known.keys[:, : known.count]
    ranges = zip(keys[field_kernels.KEY_START].tolist(), keys[field_kernels.KEY_END].tolist(), strict=True)
    return Keys(keys[field_kernels.PARENT], [data[start:end].tobytes() for start, end in ranges])


def _mark(known: _Known, names: Sequence[str], wanted: frozenset[str]) -> None:
    """Note which keys are wanted, and the bits of their labels."""
    bits = {name: 1 << number for number, name in enumerate(sorted(wanted)[:_MAX_BITS])}
    for key, name in enumerate(names):
        known.keys[field_kernels.UNWANTED, key] = not is_wanted(name, wanted)
        known.keys[field_kernels.BIT, key] = bits.get(name, 0)


def enough_bits(entries: Entries, wanted: Wanted) -> int:
    """The bits of all wanted labels, if a line in which they were found need not be read further; else -1.

    A field with the name of a stored label becomes another label, and one that was parsed before becomes none. In such
    cases the kernels cannot tell when they have found enough.
    """
    if not wanted or len(wanted) > _MAX_BITS or any(name.endswith(EXTRACTED) for name in wanted):
        return -1
    had = {name for (_, name), values in entries.columns.items() if values.null_count < len(values)}
    had.update(name for _, name in entries.removed)
    return -1 if wanted & had else (1 << len(wanted)) - 1


def is_wanted(name: str, wanted: Wanted) -> bool:
    """Whether a field of this name may become a label that is needed."""
    return wanted is None or name in wanted or name + EXTRACTED in wanted


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
            hint=_NAME_FIELDS,
        )
    made = column_texts(fields, columns, len(numbers), len(entries), last_wins)
    for name, values in zip(numbers, made, strict=True):
        check()
        if values is not None:
            entries = with_parsed(entries, name, values, replaces=replaces)
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
        # A key of blanks alone leaves no name.
        return numbers.setdefault(name, len(numbers)) if name and (wanted is None or name in wanted) else -1

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
            columns[here[stored[clash][fields.rows[here]]]] = number(name + EXTRACTED if name else "")
    return columns


def column_texts(
    fields: Fields, columns: Indices, total: int, rows: int, last_wins: bool = False
) -> list[pa.StringArray | None]:
    """The texts of each column; None for a column without a value."""
    bases = np.concatenate([[0], np.cumsum(field_kernels.column_sizes(fields.parts, columns, total))])
    offsets, present = np.empty((total, rows + 1), np.int32), np.zeros((total, rows), np.bool_)
    out = np.empty(bases[-1], np.uint8)
    field_kernels.fill_columns(fields.data, fields.parts, columns, last_wins, offsets, present, out, bases[:-1])
    texts: list[pa.StringArray | None] = []
    for column, base in enumerate(bases[:-1]):
        there = present[column]
        size = offsets[column, -1]
        made = texts_of(out[base : base + size], offsets[column], there) if there.any() else None
        texts.append(made)
    return texts


def with_parsed(entries: Entries, name: str, values: pa.Array, *, replaces: bool = False) -> Entries:
    """The entries with a parsed label. An entry that has or had it from an earlier stage does not get it again.

    With `replaces`, the new value replaces an earlier one.
    """
    if replaces:
        return entries.with_label(name, values)
    key = (Category.PARSED, name)
    had, gone = entries.columns.get(key), entries.removed.get(key)
    taken = None if had is None else valid(had)
    if gone is not None:
        taken = gone if taken is None else taken | gone
    if taken is not None:
        values = pc.if_else(pa.array(taken), pa.scalar(None, pa.string()), plain(values))
    return entries.with_label(name, values)


def parsed_enough(entries: Entries, wanted: Wanted) -> Mask:
    """The entries in which every wanted label was parsed.

    Loki reads such a line no further, and so does not notice that the rest of it is broken: lines that were cut off
    can be counted by a label that they still have. A query that wants to know about errors wants their label too.
    """
    enough = np.full(len(entries), bool(wanted))
    for name in wanted or ():
        values = entries.columns.get((Category.PARSED, name))
        if values is None:
            return np.zeros(len(entries), np.bool_)
        enough &= valid(values)
    return enough


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
