"""Log entries as columns: what the stages of a pipeline read and change.

An entry has a time, a line and labels. A label is in one of three categories, which the API can show apart: labels of
the stream, structured metadata, and what the query itself made. One entry has a name in one category at most; two
entries may have it in different ones.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
#: Raises when the answer is no longer wanted.
Check = Callable[[], object]

#: Labels that say why a stage could not handle an entry.
ERROR, ERROR_DETAILS = "__error__", "__error_details__"


class Category(enum.IntEnum):
    """Where a label comes from; a later one hides an earlier one."""

    STREAM = 0
    METADATA = 1
    PARSED = 2


@dataclass(frozen=True, slots=True)
class Entries:
    """Entries in any order. `lines` has no null. A null in a label's column: the entry lacks the label."""

    times_ns: Ints
    lines: pa.StringArray
    #: (category, name) -> its values, `string` or `dictionary<int32, string>`.
    columns: Mapping[tuple[Category, str], pa.Array]
    #: Labels of the stream and parsed ones that entries had before a stage took them away. A parser still gives a field
    #: of such a name another one, or leaves it out, as Loki's do.
    removed: Mapping[tuple[Category, str], Mask] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.times_ns)

    @property
    def are_at_one_time(self) -> bool:
        """Whether there are entries, with the times of `same_times`."""
        return bool(len(self.times_ns)) and self.times_ns.strides == (0,)

    def names(self) -> list[str]:
        """The names of the labels that any entry may have, sorted."""
        return sorted({name for _, name in self.columns})

    def label(self, name: str) -> pa.Array | None:
        """The values of a label, whatever its category; None if no entry has it."""
        found = [self.columns[each, name] for each in reversed(Category) if (each, name) in self.columns]
        if len(found) < 2:
            return found[0] if found else None
        return pc.coalesce(*map(plain, found))

    def stored(self, name: str) -> Mask | None:
        """The entries with the label as structured metadata, or now or before as a stream label; None: no entry."""
        masks = [
            valid(self.columns[each, name])
            for each in (Category.STREAM, Category.METADATA)
            if (each, name) in self.columns
        ]
        if (Category.STREAM, name) in self.removed:
            masks.append(self.removed[Category.STREAM, name])
        return np.logical_or.reduce(masks) if masks else None

    def filtered(self, keep: Mask) -> Entries:
        if keep.all():
            return self
        return self.taken(np.flatnonzero(keep))

    def taken(self, rows: Ints) -> Entries:
        index = pa.array(rows)
        columns = {key: values.take(index) for key, values in self.columns.items()}
        removed = {key: mask[rows] for key, mask in self.removed.items()}
        return Entries(self.times_ns[rows], self.lines.take(index), columns, removed)

    def with_lines(self, lines: pa.StringArray) -> Entries:
        return replace(self, lines=lines)

    def without_lines(self) -> Entries:
        """The entries with empty lines."""
        ends = pa.py_buffer(np.zeros(len(self) + 1, np.int32))
        return self.with_lines(pa.StringArray.from_buffers(len(self), ends, pa.py_buffer(b"")))

    def with_label(self, name: str, values: pa.Array, category: Category = Category.PARSED) -> Entries:
        """Set the label where `values` is not null. There it replaces what the entry had under the name."""
        others = [each for each in Category if each is not category and (each, name) in self.columns]
        cleared = self._without(name, others, valid(values)) if others else self
        columns = dict(cleared.columns)
        had = columns.get((category, name))
        columns[category, name] = values if had is None else pc.coalesce(plain(values), plain(had))
        return replace(cleared, columns=columns)

    def without_label(self, name: str, where: Mask | None = None) -> Entries:
        """Without the label, in all categories; with `where`, only in those entries."""
        return self._without(name, Category, where)

    def _without(self, name: str, categories: Iterable[Category], where: Mask | None) -> Entries:
        columns, removed = dict(self.columns), dict(self.removed)
        for each in categories:
            had = columns.pop((each, name), None)
            if had is None:
                continue
            if each is not Category.METADATA:
                gone = valid(had) if where is None else valid(had) & where
                removed[each, name] = gone | removed[each, name] if (each, name) in removed else gone
            left = None if where is None else _masked(had, where)
            if left is not None:
                columns[each, name] = left
        return replace(self, columns=columns, removed=removed)

    def only(self, names: Iterable[str]) -> Entries:
        wanted = frozenset(names)
        return replace(self, columns={key: each for key, each in self.columns.items() if key[1] in wanted})

    def with_error(self, where: Mask, error: str, details: pa.Array | str) -> Entries:
        """Mark entries as failed. An entry that failed already keeps its first error."""
        failed = self.label(ERROR)
        fresh = where if failed is None else where & ~valid(failed)
        if not fresh.any():
            return self
        absent = pa.array(~fresh)
        texts = pa.array([details] * len(self), pa.string()) if isinstance(details, str) else plain(details)
        marked = self.with_label(ERROR, pc.if_else(absent, None, pa.scalar(error, pa.string())))
        return marked.with_label(ERROR_DETAILS, pc.if_else(absent, pa.scalar(None, pa.string()), texts))


class Stage(Protocol):
    """One compiled stage. It keeps the order of the entries, and calls `check` often enough to be interrupted."""

    def __call__(self, entries: Entries, check: Check) -> Entries: ...


def same_times(time_ns: int, count: int) -> Ints:
    """The same time for so many entries, in the memory of one. Kernels are compiled for other arrays."""
    return np.broadcast_to(np.int64(time_ns), count)


def plain(values: pa.Array) -> pa.StringArray:
    """The values without a dictionary."""
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def valid(values: pa.Array) -> Mask:
    """The entries that have a value."""
    if not values.null_count:
        return np.ones(len(values), np.bool_)
    mask: Mask = values.is_valid().to_numpy(zero_copy_only=False)
    return mask


def encoded(values: pa.Array) -> pa.DictionaryArray:
    """The values with a dictionary, so that work can be done once for each distinct value."""
    return values if pa.types.is_dictionary(values.type) else values.dictionary_encode()


def _masked(values: pa.Array, away: Mask) -> pa.Array | None:
    """The values without those of `away`; None if none is left."""
    left = valid(values) & ~away
    if not left.any():
        return None
    if pa.types.is_dictionary(values.type):
        indices = pc.if_else(pa.array(left), values.indices, pa.scalar(None, values.indices.type))
        return pa.DictionaryArray.from_arrays(indices, values.dictionary, safe=False)
    return pc.if_else(pa.array(left), values, pa.scalar(None, values.type))
