"""The entries of one branch of a template: some of a batch, with the columns that were read for them."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from lakerunner.query.logql.entries import Entries, Ints
from lakerunner.query.logql.stages.template.columns import Column, Constant, Numbers, Texts, taken
from lakerunner.query.logql.stages.template.functions import LINE, TIMESTAMP


def label_texts(entries: Entries, name: str) -> Column:
    """A label's values; an entry without it has the empty text."""
    array = entries.label(name)
    if array is None:
        return Constant("")
    if not array.null_count:
        return Texts(array)
    if pa.types.is_dictionary(array.type):
        dictionary = pa.concat_arrays([array.dictionary, pa.array([""], array.dictionary.type)])
        return Texts(pa.DictionaryArray.from_arrays(array.indices.fill_null(len(array.dictionary)), dictionary))
    return Texts(array.fill_null(""))


@dataclass(eq=False, slots=True)
class Frame:
    """Some of the entries, and what is known for them."""

    entries: Entries
    #: Their positions in the batch; None: all.
    rows: Ints | None
    size: int
    parent: Frame | None = None
    #: Their positions in the parent.
    within: Ints | None = None
    columns: dict[str, Column] = field(default_factory=dict)

    def cut(self, rows: Ints) -> Frame:
        return Frame(self.entries, rows if self.rows is None else self.rows[rows], len(rows), self, rows)

    def label(self, name: str) -> Column:
        return self._cached("." + name)

    def line(self) -> Column:
        return self._cached(LINE)

    def time(self) -> Column:
        return self._cached(TIMESTAMP)

    def _cached(self, key: str) -> Column:
        found = self.columns.get(key)
        if found is None:
            if self.parent is not None:
                assert self.within is not None
                found = taken(self.parent._cached(key), self.within)
            elif key == LINE:
                found = Texts(self.entries.lines)
            elif key == TIMESTAMP:
                found = Numbers(self.entries.times_ns, "time.Time")
            else:
                found = label_texts(self.entries, key[1:])
            self.columns[key] = found
        return found

    def seen_from(self, inner: Frame, column: Column) -> Column:
        """A column of this frame for the entries of a frame within it."""
        steps: list[Ints] = []
        while inner is not self:
            assert inner.within is not None and inner.parent is not None
            steps.append(inner.within)
            inner = inner.parent
        for rows in reversed(steps):
            column = taken(column, rows)
        return column


@dataclass(frozen=True, slots=True)
class Bound:
    """A value, and the frame whose entries it has values for."""

    column: Column
    frame: Frame
