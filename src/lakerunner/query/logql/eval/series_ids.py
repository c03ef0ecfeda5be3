"""Numbers the label sets of entries, batch after batch, without making a label set per entry.

Each label keeps one dictionary for all batches. An entry's labels are a row of codes, and equal rows have the same
number.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.errors import LimitHit
from lakerunner.model.text_bytes import text_bytes
from lakerunner.query.logql.entries import encoded
from lakerunner.query.logql.eval.kernels import (
    add_rows,
    add_totals,
    count_words,
    number_codes,
    number_rows,
    number_texts,
    number_words,
    power_of_two,
    rehash,
    rehash_texts,
)
from lakerunner.query.series.arrays import allocated
from lakerunner.query.series.label_columns import LabelColumn, LabelColumns
from lakerunner.query.series.label_list import LabelList

Codes = npt.NDArray[np.int32]
Ints = npt.NDArray[np.int64]

#: Entries whose rows of codes are made at once.
_ROWS = 1 << 16
#: A dictionary with more values than this per entry is first cut down to those in use.
_VALUES_PER_ENTRY = 4
#: Up to so many possible combinations of values, a series is found by its place in a table of all.
_FEW_COMBINATIONS = 1 << 16
#: The values of one label may have so many bytes together.
_MAX_TEXT_BYTES = 1 << 30


class Labelled(Protocol):
    """Entries, or series, with labels."""

    def __len__(self) -> int: ...

    def names(self) -> list[str]:
        """The names of all labels, sorted."""
        ...

    def label(self, name: str) -> pa.Array | None:
        """The values of a label; None if nothing has it."""
        ...


class SeriesIds(ABC):
    """The series found so far."""

    count = 0

    @abstractmethod
    def of(self, entries: Labelled) -> Codes:
        """The series of every entry."""

    def totals(self, entries: Labelled) -> tuple[Codes, Ints]:
        """Series, and how many of the entries are theirs. A series may come twice."""
        counts = np.bincount(self.of(entries), minlength=self.count)
        series = np.flatnonzero(counts)
        return series.astype(np.int32), counts[series].astype(np.int64)

    @abstractmethod
    def labels(self) -> LabelList:
        """The labels of every series."""


def series_ids(by: frozenset[str] | None, without: frozenset[str] = frozenset()) -> SeriesIds:
    """`by`: the labels that tell series apart; None: all but `without`."""
    if by is None or len(by) > 1:
        return _ManyLabels(by, without)
    return _OneLabel(*by) if by else _NoLabels()


class _NoLabels(SeriesIds):
    def of(self, entries: Labelled) -> Codes:
        self.count = max(self.count, min(len(entries), 1))
        return np.zeros(len(entries), np.int32)

    def totals(self, entries: Labelled) -> tuple[Codes, Ints]:
        return self.of(entries)[:1], np.full(min(len(entries), 1), len(entries), np.int64)

    def labels(self) -> LabelList:
        return LabelList.of_columns(LabelColumns(self.count, ()))


class _OneLabel(SeriesIds):
    """The series of an entry depends on one code: no need to search."""

    def __init__(self, name: str) -> None:
        self._name, self._dictionary = name, _Dictionary()
        self._series_of_code: Codes = np.zeros(0, np.int32)

    def of(self, entries: Labelled) -> Codes:
        places, codes = self._places(entries)
        # Callers may keep it until all entries are read.
        out = allocated(len(entries), np.int32)
        self.count = number_words(places, codes, self._series_of_code, self.count, out)
        return out

    def totals(self, entries: Labelled) -> tuple[Codes, Ints]:
        """Values are counted before they are numbered: entries that have the same one are looked at once."""
        places, codes = self._places(entries)
        series, totals = np.empty(len(codes), np.int32), np.empty(len(codes), np.int64)
        used, self.count = count_words(places, codes, self._series_of_code, self.count, series, totals)
        return series[:used], totals[:used]

    def _places(self, entries: Labelled) -> tuple[Codes, Codes]:
        """For every entry a place among codes, which have room in `_series_of_code`. A place of -1 is the last one."""
        values = entries.label(self._name)
        if values is None:
            places, codes = np.full(len(entries), -1, np.int32), np.zeros(1, np.int32)
        else:
            places, codes = self._dictionary.places(values)
        grown = self._dictionary.count - len(self._series_of_code)
        if grown:
            self._series_of_code = np.append(self._series_of_code, np.full(grown, -1, np.int32))
        # Whoever made them: numba would compile the kernel once more for those that can be written.
        places = places.view()
        places.flags.writeable = False
        return places, codes

    def labels(self) -> LabelList:
        used = np.flatnonzero(self._series_of_code >= 0)
        places = self._series_of_code[used].astype(np.int64)
        column = LabelColumn.of(self._name, self.count, places, used, self._dictionary.values, absent=0)
        return LabelList.of_columns(LabelColumns.of(self.count, [column]))


class _ManyLabels(SeriesIds):
    def __init__(self, by: frozenset[str] | None, without: frozenset[str]) -> None:
        self._by, self._without = by, without
        self._dictionaries: dict[str, _Dictionary] = {}
        #: Per series, its codes in the order of `_dictionaries`.
        self._known: Codes = np.zeros((0, 0), np.int32)
        self._table: Codes = np.full(power_of_two(0), -1, np.int32)
        #: While there are few possible combinations: the values of each label, and the series of each combination.
        self._sizes: list[int] = []
        self._places: Codes | None = np.full(1, -1, np.int32)

    def of(self, entries: Labelled) -> Codes:
        names = entries.names() if self._by is None else sorted(self._by)
        codes = {name: found for name in names if (found := self._codes(entries, name)) is not None}
        out = np.empty(len(entries), np.int32)
        for begin in range(0, len(out), _ROWS):
            piece = slice(begin, begin + _ROWS)
            self._number({name: found[piece] for name, found in codes.items()}, out[piece])
        return out

    def labels(self) -> LabelList:
        every = np.arange(self.count)
        columns = [
            LabelColumn.of(name, self.count, every, self._known[: self.count, at], dictionary.values, absent=0)
            for at, (name, dictionary) in enumerate(self._dictionaries.items())
        ]
        return LabelList.of_columns(LabelColumns.of(self.count, columns))

    def _codes(self, entries: Labelled, name: str) -> Codes | None:
        values = None if name in self._without else entries.label(name)
        if values is None or values.null_count == len(values):
            return None
        if name not in self._dictionaries:
            self._dictionaries[name] = _Dictionary()
        return self._dictionaries[name].codes(values)

    def _number(self, codes: dict[str, Codes], out: Codes) -> None:
        if self._places is not None:
            sizes = [each.count for each in self._dictionaries.values()]
            if math.prod(sizes) <= _FEW_COMBINATIONS:
                self._number_combined(codes, sizes, out)
                return
            # From now on, series are searched for.
            self._places = None
            self._table = np.full(power_of_two(2 * len(self._known)), -1, np.int32)
            rehash(self._known, self.count, self._table)
        self._make_room(len(out))
        rows = np.zeros((len(out), self._known.shape[1]), np.int32)
        for at, name in enumerate(self._dictionaries):
            if name in codes:
                rows[:, at] = codes[name]
        self.count = number_rows(rows, self._known, self._table, self.count, out)

    def _number_combined(self, codes: dict[str, Codes], sizes: list[int], out: Codes) -> None:
        """The same where there are few possible combinations."""
        if sizes != self._sizes:
            widened = np.zeros((self.count, len(sizes)), np.int32)
            widened[:, : self._known.shape[1]] = self._known[: self.count]
            self._known, self._sizes = widened, sizes
            self._places = np.full(math.prod(sizes), -1, np.int32)
            self._places[_combined(widened.T, sizes, self.count)] = np.arange(self.count)
        assert self._places is not None
        of_labels = [codes.get(name) for name in self._dictionaries]
        before, combined = self.count, _combined(of_labels, sizes, len(out))
        self.count = number_codes(combined, self._places, before, out)
        if self.count > before:
            fresh = np.flatnonzero(self._places >= before)
            fresh = fresh[np.argsort(self._places[fresh])]
            rows = np.stack(np.unravel_index(fresh, sizes), axis=1) if sizes else np.zeros((1, 0))
            self._known = np.concatenate([self._known[:before], rows.astype(np.int32)])

    def _make_room(self, new: int) -> None:
        """Make room for new series, and for labels that came up since the last batch."""
        rows, width = self.count + new, len(self._dictionaries)
        widened = width > self._known.shape[1]
        if rows <= len(self._known) and not widened:
            return
        known = np.zeros((max(rows, 2 * self.count), width), np.int32)
        known[: self.count, : self._known.shape[1]] = self._known[: self.count]
        self._known = known
        if len(self._table) < 2 * len(known) or widened:
            self._table = np.full(power_of_two(2 * len(known)), -1, np.int32)
            rehash(known, self.count, self._table)


def _combined(codes: Iterable[Codes | None], sizes: Sequence[int], count: int) -> Codes:
    """One number for the codes of each entry. Of labels that entries lack, the code is 0."""
    combined = np.zeros(count, np.int32)
    for of_label, size in zip(codes, sizes, strict=True):
        combined *= np.int32(size)
        if of_label is not None:
            combined += of_label
    return combined


class _Dictionary:
    """The values of one label in all batches so far. Code 0 means that the label is absent; it may also be empty."""

    def __init__(self) -> None:
        self._texts = 0
        self._known = np.empty(0, np.uint8)
        self._ends = np.empty(0, np.int32)
        self._hashes = np.empty(0, np.uint64)
        self._table = np.full(2, -1, np.int64)
        #: The dictionary of the last batch, and our code for each of its codes. The last one is for null.
        self._last: pa.Array | None = None
        self._place: Codes = np.zeros(1, np.int32)

    def codes(self, values: pa.Array) -> Codes:
        places, codes = self.places(values)
        found: Codes = codes[places]
        return found

    def places(self, values: pa.Array) -> tuple[Codes, Codes]:
        """For every value a place among codes, the last of which is for null: its place is -1 too."""
        theirs = encoded(values)
        indices = theirs.indices
        if indices.null_count:
            indices = pc.fill_null(indices, -1)
        places: Codes = indices.to_numpy().astype(np.int32, copy=False)
        dictionary = theirs.dictionary
        if len(dictionary) > _VALUES_PER_ENTRY * len(places):
            used, inverse = np.unique(places, return_inverse=True)
            if used[0] < 0:
                used, inverse = used[1:], inverse - 1
            dictionary, places = dictionary.take(pa.array(used)), inverse.astype(np.int32)
        return places, self._codes_of(dictionary)

    def _codes_of(self, dictionary: pa.Array) -> Codes:
        """Our code for each of their codes, and one for null."""
        if self._last is None or not _same(self._last, dictionary):
            is_text = dictionary.type == pa.string()
            self._last, self._place = dictionary, self._placed(dictionary if is_text else dictionary.cast(pa.string()))
        return self._place

    @property
    def count(self) -> int:
        """How many codes there are."""
        return self._texts + 1

    @property
    def values(self) -> pa.StringArray:
        """The text of each code."""
        offsets = np.zeros(self._texts + 2, np.int32)
        offsets[2:] = self._ends[: self._texts]
        return pa.StringArray.from_buffers(self.count, pa.py_buffer(offsets), pa.py_buffer(self._known))

    def _placed(self, dictionary: pa.StringArray) -> Codes:
        if not dictionary.null_count:
            return np.append(self._numbered(dictionary) + np.int32(1), np.int32(0))
        there = dictionary.is_valid().to_numpy(zero_copy_only=False)
        places = np.zeros(len(dictionary) + 1, np.int32)
        places[:-1][there] = self._numbered(dictionary.drop_null()) + 1
        return places

    def _numbered(self, texts: pa.StringArray) -> Codes:
        """The numbers of texts; new ones become known."""
        data, offsets = text_bytes(texts)
        self._make_room(len(texts), int(offsets[-1] - offsets[0]))
        out = np.empty(len(texts), np.int32)
        self._texts = number_texts(data, offsets, self._known, self._ends, self._hashes, self._table, self._texts, out)
        return out

    def _make_room(self, texts: int, size_bytes: int) -> None:
        used = int(self._ends[self._texts - 1]) if self._texts else 0
        if used + size_bytes > _MAX_TEXT_BYTES:
            raise LimitHit(
                f"cannot group by the label: its values have more than {_MAX_TEXT_BYTES:,} bytes",
                hint="narrow the selector or the time range",
            )
        if used + size_bytes > len(self._known):
            self._known = np.append(self._known[:used], np.empty(used + size_bytes, np.uint8))
        if self._texts + texts > len(self._ends):
            more = self._texts + texts
            self._ends = np.append(self._ends[: self._texts], np.empty(more, np.int32))
            self._hashes = np.append(self._hashes[: self._texts], np.empty(more, np.uint64))
        if len(self._table) < 2 * (self._texts + texts):
            self._table = np.full(power_of_two(2 * (self._texts + texts)), -1, np.int64)
            rehash_texts(self._hashes, self._texts, self._table)


def _same(one: pa.Array, other: pa.Array) -> bool:
    """Whether both are the same array. Equal arrays in different memory are not."""
    return len(one) == len(other) and one.offset == other.offset and _addresses(one) == _addresses(other)


def _addresses(values: pa.Array) -> Sequence[int]:
    return [0 if buffer is None else buffer.address for buffer in values.buffers()]


def warm() -> None:
    """Load the kernels for many combinations of labels, which the few rows of usual queries do not have."""
    known, table = np.zeros((1, 1), np.int32), np.full(power_of_two(2), -1, np.int32)
    rehash(known, 0, table)
    number_rows(np.zeros((1, 1), np.int32), known, table, 0, np.empty(1, np.int32))
    places = np.zeros(1, np.int32)
    places.flags.writeable = False
    totals = np.empty(1, np.int64)
    count_words(places, np.zeros(1, np.int32), np.zeros(1, np.int32), 1, np.empty(1, np.int32), totals)
    add_totals(np.zeros(1, np.int32), totals, 0, np.zeros((1, 1), np.int64))
    add_rows(np.zeros(1, np.int32), np.zeros((1, 1), np.int64), 0, np.zeros((1, 1), np.int64))
    number_words(places, np.zeros(1, np.int32), np.zeros(1, np.int32), 1, np.empty(1, np.int32))
