"""Flat records as columns by key: fields are picked out by well-known keys, the rest become attributes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import Entry, Ints, Level, as_text, cut_text, promote
from lakerunner.formats.decoded import Tally, table_of
from lakerunner.formats.limits import Limits
from lakerunner.formats.times import to_nanos
from lakerunner.model.signal import Table
from lakerunner.model.time import MAX_TIME_NS

Mask = npt.NDArray[np.bool_]
#: Row -> its position ("line 7") and first characters, for the samples of rejected rows.
Describe = Callable[[int], tuple[str, str]]
_PREFIXES = ("resource", "scope", "attr")


@dataclass(slots=True)
class Records:
    """The values of all records by key. `pick` removes the values of a field; the remaining ones are attributes."""

    row_count: int
    entries: list[Entry]
    describe: Describe
    tally: Tally
    refused: Mask = field(init=False)

    def __post_init__(self) -> None:
        self.refused = np.zeros(self.row_count, np.bool_)

    def pick(
        self, keys: Sequence[str], accept: Callable[[pa.Array], Mask] | None = None
    ) -> list[tuple[Ints, pa.Array]]:
        """Remove and return, for each row, the value of the first key that it has, as (rows, values) parts."""
        open_rows = np.ones(self.row_count, np.bool_)
        parts = []
        for key in dict.fromkeys(keys):
            for entry in [entry for entry in self.entries if entry.key == key]:
                picked = open_rows[entry.rows]
                values = entry.source.take(pa.array(entry.index))
                if accept is not None and picked.any():
                    picked = picked & accept(values)
                if picked.any():
                    parts.append((entry.rows[picked], values.filter(pa.array(picked))))
                    open_rows[entry.rows[picked]] = False
                    self._keep_only(entry, ~picked)
        return parts

    def _keep_only(self, entry: Entry, kept: Mask) -> None:
        self.entries = [other for other in self.entries if other is not entry]
        if kept.any():
            self.entries.append(Entry(entry.key, entry.rows[kept], entry.source, entry.index[kept]))

    def text(self, keys: Sequence[str], accept: Callable[[pa.Array], Mask] | None = None) -> pa.Array:
        """Pick a field as text; null where a row has none of the keys."""
        return _scatter(
            [(rows, as_text(values)) for rows, values in self.pick(keys, accept)], self.row_count, pa.string()
        )

    def numbers(self, keys: Sequence[str], kind: pa.DataType) -> pa.Array:
        """Pick a field as numbers. Values that are not numbers stay among the attributes."""
        parts = [(rows, _as_numbers(values, kind)) for rows, values in self.pick(keys, lambda v: _is_number(v, kind))]
        return _scatter(parts, self.row_count, kind)

    def times(
        self, keys: Sequence[str], fallback_ns: int | None, *, needed: bool, bounded: bool = False
    ) -> tuple[Ints, Mask]:
        """Pick a field as nanoseconds, with a mask of the rows without it.

        With `needed`, a row whose time is absent or unreadable is rejected; with `needed` or `bounded`, also one whose
        time the index cannot hold. Otherwise such a time counts as absent.
        """
        nanos = np.zeros(self.row_count, np.int64)
        absent = np.ones(self.row_count, np.bool_)
        bad = np.zeros(self.row_count, np.bool_)
        for rows, values in self.pick(keys):
            found, read = to_nanos(values)
            nanos[rows] = found
            absent[rows] = ~read
            bad[rows] = ~read
        far = ~absent & ((nanos < 0) | (nanos >= MAX_TIME_NS))
        absent |= far
        if needed or bounded:
            self.refuse("time_out_of_range", far)
        if needed and fallback_ns is not None:
            nanos[absent & ~bad & ~far] = fallback_ns
            absent &= bad | far
        if needed:
            self.refuse("bad_timestamp", bad)
            self.refuse("no_timestamp", absent & ~bad)
        return nanos, absent

    def refuse(self, reason: str, rows: Mask) -> None:
        """Reject rows. Each row is counted once, under the first reason."""
        fresh = np.flatnonzero(rows & ~self.refused)
        for row in fresh[:3].tolist():
            where, excerpt = self.describe(row)
            self.tally.reject(reason, 1, where=where, excerpt=excerpt)
        self.tally.reject(reason, max(len(fresh) - 3, 0))
        self.refused |= rows

    def table(self, description: Table, columns: dict[str, pa.Array], limits: Limits) -> pa.Table:
        table = table_of(description, columns, self.row_count)
        if description.attributes:
            table = promote(self._levels(limits), self.row_count, self.tally).add_to(table)
        return table.filter(pa.array(~self.refused)) if self.refused.any() else table

    def _levels(self, limits: Limits) -> list[Level]:
        levels: dict[str, list[Entry]] = {prefix: [] for prefix in _PREFIXES}
        for entry in self.entries:
            prefix, key = _level_of(entry.key)
            source = entry.source
            if pa.types.is_temporal(source.type):
                source = as_text(source)
            if pa.types.is_string(source.type):
                source = cut_text(source, limits, self.tally)
            levels[prefix].append(Entry(key, entry.rows, source, entry.index))
        return [Level(prefix, self.row_count, entries) for prefix, entries in levels.items()]


def hex_text(ids: pa.Array) -> pa.Array:
    """Return ids as lower-case hex without dashes. Decimal ids (Datadog's) become hex, zeros and blanks null."""
    encoded = ids.dictionary_encode()
    return pa.array([_hex(text) for text in encoded.dictionary.to_pylist()], pa.string()).take(encoded.indices)


def _hex(text: str | None) -> str | None:
    plain = (text or "").strip().lower().replace("-", "")
    # 16 and 32 digits are hex already, even without a letter among them.
    if plain.isdecimal() and plain.isascii() and 16 < len(plain) <= 20:
        plain = f"{int(plain):016x}"
    return plain if plain.strip("0") else None


def _level_of(key: str) -> tuple[str, str]:
    """Split a key such as `resource.host` or `resource.attributes.host` into its level and the key in that level."""
    for prefix in _PREFIXES:
        for mark in (".attributes.", "."):
            if key.startswith(prefix + mark) and len(key) > len(prefix + mark):
                return prefix, key[len(prefix + mark) :]
    return "attr", key


def _scatter(parts: list[tuple[Ints, pa.Array]], row_count: int, kind: pa.DataType) -> pa.Array:
    if not parts:
        return pa.nulls(row_count, kind)
    source = pa.concat_arrays([values.cast(kind) for _, values in parts])
    index = np.zeros(row_count, np.int64)
    absent = np.ones(row_count, np.bool_)
    rows = np.concatenate([rows for rows, _ in parts])
    index[rows] = np.arange(len(rows))
    absent[rows] = False
    return source.take(pa.array(index, mask=absent))


def _is_number(values: pa.Array, kind: pa.DataType) -> Mask:
    numbers = _as_numbers(values, kind)
    valid: Mask = numbers.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _as_numbers(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_string(values.type):
        pattern = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$" if pa.types.is_floating(kind) else r"^\d{1,9}$"
        special = r"^\s*[+-]?(?i:nan|inf|infinity)\s*$"
        fits = pc.match_substring_regex(values, f"{pattern}|{special}" if pa.types.is_floating(kind) else pattern)
        return pc.utf8_trim_whitespace(pc.if_else(fits, values, pa.scalar(None, pa.string()))).cast(kind)
    if pa.types.is_boolean(values.type):
        return pa.nulls(len(values), kind)
    if pa.types.is_floating(kind):
        return pc.cast(values, kind, safe=False)
    numbers = pc.cast(values, pa.float64(), safe=False)
    fits = pc.and_(pc.equal(pc.floor(numbers), numbers), pc.and_(pc.greater_equal(numbers, 0), pc.less(numbers, 2**31)))
    return pc.cast(pc.if_else(fits, numbers, pa.scalar(None, pa.float64())), kind)
