"""The labels of many series, with a cache of what queries derive from them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar, overload

import numpy as np
import pyarrow as pa

from lakerunner.model.labels import METADATA_LABELS, METRIC_NAME, LabelSet
from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.query.series.interned import INTERNED, packed
from lakerunner.query.series.label_columns import LabelColumns

T = TypeVar("T")

#: Rough size of a label set with its index in the list and in groups, and its JSON.
_BYTES_PER_SERIES = 800
#: All labels of a list are packed at once, and cached, if at least one row in this many is needed.
_PACKED_AT_ONCE = 8
#: Derived values that one list caches. A full cache is emptied.
_MAX_KEPT = 64
_ABSENT = object()


class LabelList(Sequence[LabelSet]):
    """An immutable list of label sets.

    A source returns the same list for the same series, query after query, so that whatever depends on labels alone is
    computed once. If the list has columns of codes or packed label sets, Python objects are made only on access.
    """

    __slots__ = ("_kept", "_length", "_packed", "_ranks", "_sets", "columns", "taken_from")

    def __init__(self, labels: Iterable[LabelSet] = ()) -> None:
        self._sets: list[LabelSet] | None = list(labels)
        self._length = len(self._sets)
        self._packed: pa.BinaryArray | None = None
        self._ranks: Ints | None = None
        self._kept: dict[Hashable, object] = {}
        self.columns: LabelColumns | None = None
        #: The list that these rows were taken from, and their indexes: values cached there can be reused.
        self.taken_from: tuple[LabelList, Ints] | None = None

    @classmethod
    def of_columns(cls, columns: LabelColumns) -> LabelList:
        made = cls()
        made._sets, made._length, made.columns = None, len(columns), columns
        return made

    @classmethod
    def of_packed(cls, column: pa.BinaryArray, ranks: Ints | None = None) -> LabelList:
        """From packed label sets. `ranks` are their positions in the order of labels, if the sender knew them."""
        made = cls()
        made._sets, made._length, made._packed, made._ranks = None, len(column), column, ranks
        return made

    def take(self, rows: Ints) -> LabelList:
        """The labels of some rows. With columns, no label set is made."""
        if self.columns is None:
            sets = self._all()
            return LabelList(sets[row] for row in rows.tolist())
        made = LabelList.of_columns(self.columns.take(rows))
        whole, before = self.taken_from or (self, None)
        made.taken_from = whole, rows if before is None else before[rows]
        return made

    def _all(self) -> list[LabelSet]:
        """All label sets as Python objects. Two threads may make them twice, with the same result."""
        if self._sets is None:
            if self.taken_from is not None and (known := self.taken_from[0]._sets) is not None:
                self._sets = [known[row] for row in self.taken_from[1].tolist()]
            elif self.columns is not None:
                self._sets = self.columns.sets()
            else:
                assert self._packed is not None
                self._sets = INTERNED.of_packed(self._packed.to_pylist())
        return self._sets

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[LabelSet]:
        return iter(self._all())

    @overload
    def __getitem__(self, index: int) -> LabelSet: ...
    @overload
    def __getitem__(self, index: slice) -> list[LabelSet]: ...
    def __getitem__(self, index: int | slice) -> LabelSet | list[LabelSet]:
        if self._sets is None and self.columns is not None and isinstance(index, int):
            return self.columns.at(index)
        return self._all()[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._all() == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"LabelList({self._all()!r})"

    @property
    def size_bytes(self) -> int:
        """A rough size of the list with the values that queries cache on it."""
        return _BYTES_PER_SERIES * len(self)

    @property
    def ranks(self) -> Ints | None:
        """Positions in the order of labels; None if finding them would need every label set."""
        if self._ranks is None and self.columns is not None:
            order = in_order(self)
            ranks = np.arange(len(self))
            if order is not None:
                ranks[order] = np.arange(len(self))
            self._ranks = ranks
        return self._ranks

    @property
    def packed(self) -> pa.BinaryArray | None:
        """Packed labels per series, as `interned.packed` makes them; None if that would need the label sets."""
        if self._packed is None and self.taken_from is not None:
            whole, rows = self.taken_from
            if whole._packed is not None or len(rows) * _PACKED_AT_ONCE >= len(whole):
                packed_whole = whole.packed
                self._packed = None if packed_whole is None else packed_whole.take(pa.array(rows))
        if self._packed is None and self.columns is not None:
            self._packed = self.columns.packed()
        return self._packed

    def kept(self, what: Hashable, make: Callable[[], T]) -> T:
        """The cached value for a key, made on first use. Two threads may make it twice, with the same result."""
        found = self._kept.get(what, _ABSENT)
        if found is _ABSENT:
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            found = self._kept[what] = make()
        return found  # type: ignore[return-value]


def label_list(labels: Sequence[LabelSet]) -> LabelList:
    return labels if isinstance(labels, LabelList) else LabelList(labels)


def taken(labels: Sequence[LabelSet], rows: Ints) -> Sequence[LabelSet]:
    """The labels of some rows."""
    return labels.take(rows) if isinstance(labels, LabelList) else [labels[row] for row in rows.tolist()]


def valued(labels: Sequence[LabelSet]) -> LabelList:
    """The labels that have a value. Only series of LogQL have others."""
    known = label_list(labels)

    def make() -> LabelList | None:
        if known.columns is not None:
            columns = known.columns.valued()
            return None if columns is known.columns else LabelList.of_columns(columns)
        made = [each.valued() for each in known]
        return LabelList(made) if any(len(one) < len(other) for one, other in zip(made, known, strict=True)) else None

    # A list must not keep itself.
    found = known.kept("valued", make)
    return known if found is None else found


def packed_labels(labels: Sequence[LabelSet]) -> pa.BinaryArray:
    """The labels, packed for the network."""
    known = label_list(labels)
    if known.packed is not None:
        return known.packed
    return known.kept("packed", lambda: pa.array(list(map(packed, labels)), pa.binary()))


def grouped(labels: Sequence[LabelSet], names: tuple[str, ...], *, without: bool) -> tuple[LabelList, Ints]:
    """The label sets of the groups, in the order of labels, and each series' group.

    Not in the order of their first members: a part of a query's steps may lack those, and sums over the groups would
    then differ in the last bits.
    """
    known = label_list(labels)

    def make() -> tuple[LabelList, Ints]:
        found: dict[LabelSet, int] = {}
        if not without and not names:
            found[LabelSet(())] = 0
            return LabelList(found), np.zeros(len(labels), dtype=np.int64)
        if known.columns is not None:
            columns = known.columns.without((METRIC_NAME, *names)) if without else known.columns.keep(names)
            first, group = columns.groups()
            return _in_label_order(LabelList.of_columns(columns.take(first)), group)
        if without:
            index = [found.setdefault(each.without(METRIC_NAME, *names), len(found)) for each in labels]
        else:
            index = [found.setdefault(each.keep(*names), len(found)) for each in labels]
        return _in_label_order(LabelList(found), np.array(index, dtype=np.int64))

    return known.kept(("grouped", names, without), make)


def _in_label_order(groups: LabelList, group_of: Ints) -> tuple[LabelList, Ints]:
    order = in_order(groups)
    if order is None:
        return groups, group_of
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    columns = groups.columns
    ordered = groups.take(order) if columns is None else LabelList.of_columns(columns.take(order))
    return ordered, rank[group_of]


def computed(labels: Sequence[LabelSet]) -> LabelList:
    """The labels of values that are computed from each series: without metadata labels."""
    known = label_list(labels)

    def make() -> LabelList:
        if known.taken_from is not None:
            whole, rows = known.taken_from
            return computed(whole).take(rows)
        if known.columns is not None:
            return LabelList.of_columns(known.columns.without(METADATA_LABELS))
        return LabelList(each.of_computed() for each in labels)

    return known.kept("computed", make)


def distinct(labels: Sequence[LabelSet]) -> bool:
    """Whether all label sets are different."""
    known = label_list(labels)

    def make() -> bool:
        return len(set(labels)) == len(labels) if known.columns is None else known.columns.distinct()

    return known.kept("distinct", make)


def in_order(labels: Sequence[LabelSet]) -> Ints | None:
    """The indexes that sort the labels; None if they are sorted already."""
    known = label_list(labels)

    def make() -> Ints | None:
        if known.columns is not None:
            return known.columns.order()
        ranks = known.ranks
        if ranks is None:
            rows = np.array(sorted(range(len(labels)), key=lambda row: labels[row].pairs), dtype=np.int64)
        else:
            rows = np.argsort(ranks, kind="stable")
        return None if (rows == np.arange(len(labels))).all() else rows

    return known.kept("order", make)


def metrics(labels: Sequence[LabelSet], beside: str = "") -> tuple[list[tuple[str, str]], Ints]:
    """The distinct pairs of metric name and value of another label, and the index of each series' pair."""
    known = label_list(labels)

    def make() -> tuple[list[tuple[str, str]], Ints]:
        if known.columns is not None:
            first, index = known.columns.keep((METRIC_NAME, beside)).groups()
            rows = first.tolist()
            names, others = known.columns.texts(METRIC_NAME, rows), known.columns.texts(beside, rows)
            return list(zip(names, others, strict=True)), index
        found: dict[tuple[str, str], int] = {}
        pairs = [found.setdefault((each.get(METRIC_NAME), beside and each.get(beside)), len(found)) for each in labels]
        return list(found), np.array(pairs, dtype=np.int64)

    return known.kept(("metrics", beside), make)
