"""The labels of many series, with what queries make of them again and again."""

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

#: A label set with its place in the list and in groups, and its JSON.
_BYTES_PER_SERIES = 800
#: All labels of a list are packed, and kept, when one row in so many is asked for.
_PACKED_AT_ONCE = 8
#: What one list keeps; more is forgotten at once.
_MAX_KEPT = 64
_ABSENT = object()


class LabelList(Sequence[LabelSet]):
    """A list that is never changed. A source gives the same one for the same series, query after query, so that what
    depends on labels alone is worked out once.

    It holds columns of codes or packed label sets where it has them, and makes Python objects when they are asked for.
    """

    __slots__ = ("_kept", "_length", "_packed", "_ranks", "_sets", "columns", "taken_from")

    def __init__(self, labels: Iterable[LabelSet] = ()) -> None:
        self._sets: list[LabelSet] | None = list(labels)
        self._length = len(self._sets)
        self._packed: pa.BinaryArray | None = None
        self._ranks: Ints | None = None
        self._kept: dict[Hashable, object] = {}
        self.columns: LabelColumns | None = None
        #: The list that these are rows of, and which: what it keeps need not be made again for its rows.
        self.taken_from: tuple[LabelList, Ints] | None = None

    @classmethod
    def of_columns(cls, columns: LabelColumns) -> LabelList:
        made = cls()
        made._sets, made._length, made.columns = None, len(columns), columns
        return made

    @classmethod
    def of_packed(cls, column: pa.BinaryArray, ranks: Ints | None = None) -> LabelList:
        """As they came over the network. `ranks` are their places in the order of labels, where the sender knew."""
        made = cls()
        made._sets, made._length, made._packed, made._ranks = None, len(column), column, ranks
        return made

    def take(self, rows: Ints) -> LabelList:
        """The labels of some rows, without a look at any, where there are columns."""
        if self.columns is None:
            sets = self._all()
            return LabelList(sets[row] for row in rows.tolist())
        made = LabelList.of_columns(self.columns.take(rows))
        whole, before = self.taken_from or (self, None)
        made.taken_from = whole, rows if before is None else before[rows]
        return made

    def _all(self) -> list[LabelSet]:
        """Threads may make the same twice: it is the same."""
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
        """What keeping it costs, roughly, with what queries keep with it."""
        return _BYTES_PER_SERIES * len(self)

    @property
    def ranks(self) -> Ints | None:
        """Places in the order of labels, where they are known without looking at labels one by one."""
        if self._ranks is None and self.columns is not None:
            order = in_order(self)
            ranks = np.arange(len(self))
            if order is not None:
                ranks[order] = np.arange(len(self))
            self._ranks = ranks
        return self._ranks

    @property
    def packed(self) -> pa.BinaryArray | None:
        """One piece of bytes per series, as `interned.packed` makes it, where no label set need be made for that."""
        if self._packed is None and self.taken_from is not None:
            whole, rows = self.taken_from
            if whole._packed is not None or len(rows) * _PACKED_AT_ONCE >= len(whole):
                packed_whole = whole.packed
                self._packed = None if packed_whole is None else packed_whole.take(pa.array(rows))
        if self._packed is None and self.columns is not None:
            self._packed = self.columns.packed()
        return self._packed

    def kept(self, what: Hashable, make: Callable[[], T]) -> T:
        """Threads may make the same twice: it is the same."""
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


def packed_labels(labels: Sequence[LabelSet]) -> pa.BinaryArray:
    """The labels as they go over the network."""
    known = label_list(labels)
    if known.packed is not None:
        return known.packed
    return known.kept("packed", lambda: pa.array(list(map(packed, labels)), pa.binary()))


def grouped(labels: Sequence[LabelSet], names: tuple[str, ...], *, without: bool) -> tuple[LabelList, Ints]:
    """The label sets of the groups, in order of their first member, and the group of every series."""
    known = label_list(labels)

    def make() -> tuple[LabelList, Ints]:
        found: dict[LabelSet, int] = {}
        if not without and not names:
            found[LabelSet(())] = 0
            return LabelList(found), np.zeros(len(labels), dtype=np.int64)
        if known.columns is not None:
            columns = known.columns.without((METRIC_NAME, *names)) if without else known.columns.keep(names)
            first, group = columns.groups()
            return LabelList.of_columns(columns.take(first)), group
        if without:
            index = [found.setdefault(one.without(METRIC_NAME, *names), len(found)) for one in labels]
        else:
            index = [found.setdefault(one.keep(*names), len(found)) for one in labels]
        return LabelList(found), np.array(index, dtype=np.int64)

    return known.kept(("grouped", names, without), make)


def computed(labels: Sequence[LabelSet]) -> LabelList:
    """The labels of what is computed from each series."""
    known = label_list(labels)

    def make() -> LabelList:
        if known.taken_from is not None:
            whole, rows = known.taken_from
            return computed(whole).take(rows)
        if known.columns is not None:
            return LabelList.of_columns(known.columns.without(METADATA_LABELS))
        return LabelList(one.of_computed() for one in labels)

    return known.kept("computed", make)


def distinct(labels: Sequence[LabelSet]) -> bool:
    """Whether no two are the same."""
    known = label_list(labels)

    def make() -> bool:
        return len(set(labels)) == len(labels) if known.columns is None else known.columns.distinct()

    return known.kept("distinct", make)


def in_order(labels: Sequence[LabelSet]) -> Ints | None:
    """The places of the labels, first in order first; None where they are in order already."""
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
    """The metric names that occur, each with its values of another label; and which of them each series has."""
    known = label_list(labels)

    def make() -> tuple[list[tuple[str, str]], Ints]:
        if known.columns is not None:
            first, index = known.columns.keep((METRIC_NAME, beside)).groups()
            rows = first.tolist()
            names, others = known.columns.texts(METRIC_NAME, rows), known.columns.texts(beside, rows)
            return list(zip(names, others, strict=True)), index
        found: dict[tuple[str, str], int] = {}
        places = [found.setdefault((one.get(METRIC_NAME), beside and one.get(beside)), len(found)) for one in labels]
        return list(found), np.array(places, dtype=np.int64)

    return known.kept(("metrics", beside), make)
