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
from lakerunner.formats.limits import Limits, cut_key
from lakerunner.formats.records.fields import ATTRIBUTE_PREFIXES, canonical
from lakerunner.formats.times import to_nanos
from lakerunner.model.signal import Table
from lakerunner.model.time import MAX_TIME_NS

Mask = npt.NDArray[np.bool_]
#: The count of rows that have the time of their object because none was found in them.
NO_TIME = "no_time"
#: January 1990.
_PLAUSIBLE_NS = 631_152_000_000_000_000
_DAY = r"^\s*\d{1,4}[-/.](\d{1,2}|[A-Za-z]{3})[-/.]\d{2,4}\s*$"
_TIME_OF_DAY = r"^\s*\d{1,2}:\d\d(:\d\d([.,]\d+)?)?\s*([AaPp][Mm])?\s*(Z|UTC|[+-]\d\d:?\d\d)?\s*$"
#: Row -> its position ("line 7") and first characters, for the samples of rejected rows.
Describe = Callable[[int], tuple[str, str]]


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
        self, keys: Sequence[str], accept: Callable[[pa.Array], Mask] | None = None, among: Mask | None = None
    ) -> list[tuple[Ints, pa.Array]]:
        """Remove and return, for each row, the value of the first key that it has, as (rows, values) parts."""
        open_rows = np.ones(self.row_count, np.bool_) if among is None else among.copy()
        parts = []
        for entry in self._candidates(keys):
            picked = open_rows[entry.rows]
            values = entry.source.take(pa.array(entry.index))
            if accept is not None and picked.any():
                picked = picked & accept(values)
            if picked.any():
                parts.append((entry.rows[picked], values.filter(pa.array(picked))))
                open_rows[entry.rows[picked]] = False
                self._keep_only(entry, ~picked)
        return parts

    def _candidates(self, keys: Sequence[str]) -> list[Entry]:
        """Return the entries of the keys, in the order of the keys."""
        by_key: dict[str, list[Entry]] = {}
        for entry in self.entries:
            by_key.setdefault(canonical(entry.key), []).append(entry)
        found: list[Entry] = []
        for name in dict.fromkeys(canonical(key) for key in keys):
            # Of two spellings in one record, the one in the table comes first.
            found += sorted(by_key.get(name, ()), key=lambda entry: entry.key not in keys)
        return found

    def _keep_only(self, entry: Entry, kept: Mask) -> None:
        self.entries = [other for other in self.entries if other is not entry]
        if kept.any():
            self.entries.append(Entry(entry.key, entry.rows[kept], entry.source, entry.index[kept]))

    def text(
        self, keys: Sequence[str], accept: Callable[[pa.Array], Mask] | None = None, among: Mask | None = None
    ) -> pa.Array:
        """Pick a field as text; null where a row has none of the keys."""
        picked = self.pick(keys, accept, among)
        return _scatter([(rows, as_text(values)) for rows, values in picked], self.row_count, pa.string())

    def numbers(self, keys: Sequence[str], kind: pa.DataType, among: Mask | None = None) -> pa.Array:
        """Pick a field as numbers. Values that are not numbers stay among the attributes."""
        picked = self.pick(keys, lambda values: _is_number(values, kind), among)
        return _scatter([(rows, _as_numbers(values, kind)) for rows, values in picked], self.row_count, kind)

    def having(self, *keys: str) -> Mask:
        """Return a mask of the rows that have all of the keys."""
        having = np.ones(self.row_count, np.bool_)
        for key in keys:
            rows = np.zeros(self.row_count, np.bool_)
            for entry in self.entries:
                if canonical(entry.key) == canonical(key):
                    rows[entry.rows] = True
            having &= rows
        return having

    def times(
        self, keys: Sequence[str], near_ns: int | None, *, needed: bool, bounded: bool = False
    ) -> tuple[Ints, Mask]:
        """Pick a field as nanoseconds, with a mask of the rows without it.

        With `needed`, a row whose time is absent or unreadable gets the time of its object, `near_ns`, and is counted;
        without that time it is rejected. With `needed` or `bounded`, a row with a time that the index cannot hold is
        rejected.
        """
        nanos = np.zeros(self.row_count, np.int64)
        absent = np.ones(self.row_count, np.bool_)
        # A number that would be a time long ago is rather something else, if the record has another time.
        for earliest_ns in (_PLAUSIBLE_NS, np.iinfo(np.int64).min):
            for entry in self._candidates(keys) if absent.any() else ():
                found, read = to_nanos(entry.source.take(pa.array(entry.index)), near_ns)
                picked = absent[entry.rows] & read & (found >= earliest_ns)
                if picked.any():
                    nanos[entry.rows[picked]] = found[picked]
                    absent[entry.rows[picked]] = False
                    self._keep_only(entry, ~picked)
        far = ~absent & ((nanos < 0) | (nanos >= MAX_TIME_NS))
        if needed or bounded:
            self.refuse("time_out_of_range", far)
        absent |= far
        if needed and absent.any():
            if near_ns is None:
                bad = absent & self._having_any(keys)
                self.refuse("bad_timestamp", bad)
                self.refuse("no_timestamp", absent & ~bad)
            else:
                nanos[absent] = near_ns
                self.tally.shorten(NO_TIME, int((absent & ~self.refused).sum()))
        return nanos, absent

    def _having_any(self, keys: Sequence[str]) -> Mask:
        having = np.zeros(self.row_count, np.bool_)
        for key in keys:
            having |= self.having(key)
        return having

    def join_date_and_time(self) -> None:
        """Join a day and a time of day that came under two keys."""
        for day_key, clock_key in (("date", "time"), ("day", "time")):
            if not self.having(day_key, clock_key).any():
                continue
            days = self.text([day_key], lambda values: _matches(values, _DAY))
            clocks = self.text([clock_key], lambda values: _matches(values, _TIME_OF_DAY))
            both = pc.binary_join_element_wise(days, clocks, " ")
            for key, texts in (("timestamp", both), (day_key, days), (clock_key, clocks)):
                kept = texts.is_valid() if key == "timestamp" else pc.and_(texts.is_valid(), both.is_null())
                rows = np.flatnonzero(kept.to_numpy(zero_copy_only=False))
                if len(rows):
                    self.entries.append(Entry(key, rows, texts, rows))

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
        levels: dict[str, list[Entry]] = {prefix: [] for prefix in ATTRIBUTE_PREFIXES}
        for entry in self.entries:
            prefix, key = _level_of(entry.key)
            key = cut_key(key, len(entry.rows), limits, self.tally)
            source = entry.source
            if pa.types.is_temporal(source.type):
                source = as_text(source)
            if pa.types.is_string(source.type):
                source = cut_text(source, limits, self.tally)
            levels[prefix].append(Entry(key, entry.rows, source, entry.index))
        return [Level(prefix, self.row_count, entries) for prefix, entries in levels.items()]


def _matches(values: pa.Array, pattern: str) -> Mask:
    if not pa.types.is_string(values.type):
        values = as_text(values)
    found: Mask = pc.fill_null(pc.match_substring_regex(values, pattern), False).to_numpy(zero_copy_only=False)
    return found


def _level_of(key: str) -> tuple[str, str]:
    """Split a key such as `resource.host` or `resource.attributes.host` into its level and the key in that level."""
    lower = key.lower()
    for level, prefixes in ATTRIBUTE_PREFIXES.items():
        for prefix in prefixes:
            if lower.startswith(prefix) and len(key) > len(prefix):
                return level, key[len(prefix) :]
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
