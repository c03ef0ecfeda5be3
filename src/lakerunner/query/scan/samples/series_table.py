"""The series of one segment in memory, ready for matching: a matcher tries every distinct label value once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.labels import METRIC_NAME, LabelSet
from lakerunner.query.scan.samples.row_groups import Wanted
from lakerunner.query.scan.samples.runs import within
from lakerunner.query.series.classic_names import BUCKET, CLASSIC, LE
from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.query.series.interned import packed
from lakerunner.query.series.label_columns import LabelColumn, LabelColumns
from lakerunner.query.series.matchers import Matcher, MatchKind, accepting

Mask = npt.NDArray[np.bool_]

#: Rough overhead of decoded text per label, beyond its bytes.
_BYTES_PER_LABEL = 24
#: Selectors whose chosen series are cached per table.
_KEPT_CHOICES = 16
#: All labels are packed at once if at least one series in this many is needed.
_PACKED_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Coded:
    """One label of all series: a code per series and the value of each code. Absent labels have the empty value."""

    codes: npt.NDArray[np.int32]
    values: Sequence[str]
    _code_of: dict[str, int] = field(default_factory=dict, compare=False)

    def matching(self, matcher: Matcher, check: Callable[[], object], suffix: str = "") -> Mask:
        """A mask of the series that the matcher accepts, with the suffix appended to each value."""
        check()
        found: Mask
        if matcher.kind in (MatchKind.EQUAL, MatchKind.NOT_EQUAL):
            found = self.codes == self._code(matcher.value, suffix)
            return found if matcher.kind is MatchKind.EQUAL else ~found
        accepts = accepting([matcher], check)
        accepted = np.array([accepts(value + suffix) for value in self.values], np.bool_)
        found = accepted[self.codes]
        return found

    def _code(self, wanted: str, suffix: str) -> int:
        """The code of the value that equals `wanted` with the suffix appended, or -1."""
        if not self._code_of:
            self._code_of.update({value: code for code, value in enumerate(self.values)})
        return self._code_of.get(wanted.removesuffix(suffix), -1) if wanted.endswith(suffix) else -1


@dataclass(frozen=True, slots=True)
class Chosen:
    """The rows of a series table that a selector accepts: as stored series, and as classic series by suffix."""

    stored: Ints
    classic: dict[str, Ints]
    #: The sorted ids of all chosen series, and of each kind.
    wanted: Wanted
    stored_tids: Ints
    parent_tids: dict[str, Ints]

    def rows(self) -> Ints:
        """All rows whose samples must be read."""
        return np.unique(np.concatenate([self.stored, *self.classic.values()]))


@dataclass(slots=True, weakref_slot=True)
class SeriesTable:
    """The series of a segment. Rows are in the stored order: by (name, tid)."""

    tids: Ints
    names: Coded
    table: pa.Table
    #: Marks histograms with explicit bounds from OTLP, which have classic series. A native histogram with custom bounds
    #: has no temporality, and no classic series in Prometheus either.
    classic: Mask
    _offsets: Ints
    _keys: Coded
    #: For each label of each series, its index in the dictionary of all values.
    _value_codes: npt.NDArray[np.int32]
    _values: pa.StringArray
    #: Label sets made so far, and which those are. Two threads may make one twice, with the same result.
    _sets: npt.NDArray[np.object_]
    _made: Mask
    #: The ids of histograms with bounds. Set by listings, which read them from the samples.
    bounded_tids: Ints | None = None
    _by_label: dict[str, Coded] = field(default_factory=dict)
    _order: Ints | None = None
    _packed: pa.BinaryArray | None = None
    _chosen: dict[tuple[Matcher, ...], Chosen] = field(default_factory=dict)

    @classmethod
    def of(cls, table: pa.Table) -> SeriesTable:
        table = table.combine_chunks()
        maps = _only(table, "labels")
        # Labels become Python strings much later. Invalid UTF-8 must be found now, while the file can be read again.
        maps.validate(full=True)
        value_codes, values = _encoded(_within(maps, maps.items))
        kinds, temporality = _only(table, "type"), _only(table, "temporality")
        classic = pc.and_(pc.fill_null(pc.equal(kinds, "histogram"), False), temporality.is_valid())
        return cls(
            tids=_only(table, "tid").to_numpy(),
            names=_coded(_only(table, "metric_name")),
            table=table,
            classic=classic.to_numpy(zero_copy_only=False),
            _offsets=maps.offsets.to_numpy().astype(np.int64) - maps.offsets[0].as_py(),
            _keys=_coded(_within(maps, maps.keys)),
            _value_codes=value_codes,
            _values=values,
            _sets=np.full(table.num_rows, None, object),
            _made=np.zeros(table.num_rows, np.bool_),
        )

    def __len__(self) -> int:
        return len(self.tids)

    @property
    def size_bytes(self) -> int:
        """The size, with the label sets that queries are likely to make."""
        return int(self.table.nbytes) + _BYTES_PER_LABEL * len(self._keys.codes) + 256 * len(self)

    def label(self, name: str) -> Coded:
        """One label of all series. Cached, because dashboards use the same few labels."""
        if name == METRIC_NAME:
            return self.names
        coded = self._by_label.get(name)
        if coded is None:
            coded = self._by_label[name] = self._label(name)
        return coded

    def _label(self, name: str) -> Coded:
        codes = np.zeros(len(self), np.int32)
        if name not in self._keys.values:
            return Coded(codes, ("",))
        entries = np.flatnonzero(self._keys.codes == self._keys.values.index(name))
        rows = np.searchsorted(self._offsets, entries, side="right") - 1
        column = LabelColumn.of(name, len(self), rows, self._value_codes[entries], self._values)
        return Coded(codes, ("",)) if column is None else Coded(column.codes, column.values.to_pylist())

    def label_names(self, rows: Ints) -> set[str]:
        """The names of labels that any of the rows has, the metric name's included."""
        chosen = np.zeros(len(self), np.bool_)
        chosen[rows] = True
        codes = np.unique(self._keys.codes[np.repeat(chosen, np.diff(self._offsets))])
        return {self._keys.values[code] for code in codes.tolist()} | ({METRIC_NAME} if len(rows) else set())

    def choose(self, matchers: tuple[Matcher, ...], check: Callable[[], object] = lambda: None) -> Chosen:
        """The series that all matchers accept. Cached, because dashboards repeat their selectors.

        `check` raises when the answer is no longer wanted.
        """
        chosen = self._chosen.get(matchers)
        if chosen is None:
            if len(self._chosen) >= _KEPT_CHOICES:
                self._chosen.clear()
            chosen = self._chosen[matchers] = self._choose(matchers, check)
        return chosen

    def _choose(self, matchers: Sequence[Matcher], check: Callable[[], object]) -> Chosen:
        stored = np.flatnonzero(self._accepted(matchers, "", check))
        classic = {}
        if self.classic.any():
            for suffix in CLASSIC:
                rows = np.flatnonzero(self.classic & self._accepted(matchers, suffix, check))
                if len(rows):
                    classic[suffix] = rows
        rows = np.unique(np.concatenate([stored, *classic.values()]))
        wanted = Wanted.of(self.names.codes[rows], self.names.values, self.tids[rows])
        parents = {suffix: np.sort(self.tids[of_suffix]) for suffix, of_suffix in classic.items()}
        return Chosen(stored, classic, wanted, np.sort(self.tids[stored]), parents)

    def _accepted(self, matchers: Sequence[Matcher], suffix: str, check: Callable[[], object]) -> Mask:
        accepted = np.ones(len(self), np.bool_)
        for matcher in matchers:
            if suffix == BUCKET and matcher.name == LE:
                continue  # The expansion makes this label and matches it.
            accepted &= self.label(matcher.name).matching(matcher, check, suffix if matcher.name == METRIC_NAME else "")
            if not accepted.any():
                break
        return accepted

    def with_bounds(self, chosen: Chosen, tids: Ints) -> dict[str, Ints]:
        """The classic rows of a choice whose histograms have bounds, given the ids of all such histograms."""
        kept = {suffix: rows[np.isin(self.tids[rows], tids)] for suffix, rows in chosen.classic.items()}
        return {suffix: rows for suffix, rows in kept.items() if len(rows)}

    def rows_of(self, tids: Ints) -> Ints:
        """The rows of these series in the table."""
        if self._order is None:
            self._order = np.argsort(self.tids)
        rows: Ints = self._order[np.searchsorted(self.tids, tids, sorter=self._order)]
        return rows

    def columns(self, rows: Ints) -> LabelColumns:
        """The labels of some rows, without a Python object per series."""
        lengths = self._offsets[rows + 1] - self._offsets[rows]
        at = within(self._offsets[rows], lengths)
        keys, values, places = self._keys.codes[at], self._value_codes[at], np.repeat(np.arange(len(rows)), lengths)
        # Groups labels by name. numpy uses a fast radix sort for 16-bit integers.
        by_name = np.argsort(keys.astype(np.int16) if len(self._keys.values) < 1 << 15 else keys, kind="stable")
        ends = np.cumsum(np.bincount(keys, minlength=len(self._keys.values))).tolist()
        names = pa.array(self.names.values, pa.string())
        found = [LabelColumn.of(METRIC_NAME, len(rows), np.arange(len(rows)), self.names.codes[rows], names)]
        for name, begin, end in zip(self._keys.values, [0, *ends], ends, strict=False):
            entries = by_name[begin:end]
            if len(entries) and name != METRIC_NAME:
                found.append(LabelColumn.of(name, len(rows), places[entries], values[entries], self._values))
        return LabelColumns.of(len(rows), found)

    def packed(self, rows: Ints) -> pa.BinaryArray:
        """The labels of some rows, packed for the network. Packing all rows at once is cheap, and cached."""
        if self._packed is None and len(rows) * _PACKED_AT_ONCE < len(self):
            return pa.array(list(map(packed, self.label_sets(rows))), pa.binary())
        if self._packed is None:
            self._packed = self.columns(np.arange(len(self))).packed()
        return self._packed.take(pa.array(rows))

    def label_sets(self, rows: Ints) -> list[LabelSet]:
        missing = rows[~self._made[rows]]
        if len(missing):
            for row, labels in zip(missing.tolist(), self.columns(missing).sets(), strict=True):
                self._sets[row] = labels
            self._made[missing] = True
        sets: list[LabelSet] = self._sets[rows].tolist()
        return sets


def _only(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else pa.array([], column.type)


def _within(maps: pa.MapArray, flat: pa.Array) -> pa.Array:
    """The keys or items that the maps refer to. Those of a sliced map array are still the whole parent's."""
    begin, end = (maps.offsets[0].as_py(), maps.offsets[-1].as_py()) if len(maps.offsets) else (0, 0)
    return flat.slice(begin, end - begin)


def _coded(column: pa.Array) -> Coded:
    codes, values = _encoded(column)
    return Coded(codes, values.to_pylist())


def _encoded(column: pa.Array) -> tuple[npt.NDArray[np.int32], pa.StringArray]:
    """Codes and the text of each code. Null becomes the empty text."""
    if column.null_count:
        column = pc.fill_null(column.cast(pa.string()), "")
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    return encoded.indices.to_numpy(), encoded.dictionary


class TableLabels(Sequence[LabelSet]):
    """The labels of a table's series, given by their ids. `merge` accesses them only for series it does not know."""

    def __init__(self, table: SeriesTable, tids: Ints) -> None:
        self.table = table
        self._tids = tids

    def __len__(self) -> int:
        return len(self._tids)

    @overload
    def __getitem__(self, index: int) -> LabelSet: ...
    @overload
    def __getitem__(self, index: slice) -> list[LabelSet]: ...
    def __getitem__(self, index: int | slice) -> LabelSet | list[LabelSet]:
        if isinstance(index, slice):
            return self.table.label_sets(self.table.rows_of(self._tids[index]))
        return self.table.label_sets(self.table.rows_of(self._tids[[index]]))[0]

    def __iter__(self) -> Iterator[LabelSet]:
        return iter(self[:])

    def packed(self) -> pa.BinaryArray:
        return self.table.packed(self.table.rows_of(self._tids))
