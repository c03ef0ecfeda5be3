"""Decoded pages of a column, and where chosen rows lie in them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from lakerunner.query.scan.rows.conditions.evaluate import Ints
from lakerunner.query.scan.rows.parquet.page_index import Pages

#: The numbers of rows, shared by all scans that read whole row groups: a new megabyte each time costs page faults.
_EVERY: Ints = np.arange(1 << 17)
_EVERY.flags.writeable = False


def every_row(count: int) -> Ints:
    """The rows from 0 up to `count`. Not to be written to."""
    return _EVERY[:count] if count <= len(_EVERY) else np.arange(count)


@dataclass(frozen=True, slots=True)
class ChosenRows:
    """Ascending rows of a row group. Most columns have pages of the same rows, so their places are found once."""

    rows: Ints
    #: By the identity of `Pages.first_rows`, which columns with the same pages share.
    _pages: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _places: dict[tuple[int, tuple[int, ...]], Ints] = field(default_factory=dict)
    _indices: dict[int, pa.Array] = field(default_factory=dict)

    def pages(self, layout: Pages) -> tuple[int, ...]:
        """The pages that hold the rows."""
        key = id(layout.first_rows)
        found = self._pages.get(key)
        if found is None:
            found = self._pages[key] = tuple(layout.of_rows(self.rows).tolist())
        return found

    def places(self, layout: Pages, pages: tuple[int, ...]) -> Ints:
        """The places of the rows in an array of these pages, which must hold all of them."""
        key = id(layout.first_rows), pages
        found = self._places.get(key)
        if found is None:
            if pages[-1] - pages[0] + 1 == len(pages):
                return self._places.setdefault(key, self.rows - int(layout.first_rows[pages[0]]))
            numbers = np.array(pages, np.int64)
            starts = layout.first_rows[numbers]
            counts = layout.first_rows[numbers + 1] - starts
            # How far the rows of each page are shifted, because earlier pages are missing.
            shift = starts - (np.cumsum(counts) - counts)
            begins = np.searchsorted(self.rows, starts)
            found = self.rows - np.repeat(shift, np.diff(np.append(begins, len(self.rows))))
            self._places[key] = found
        return found

    def shifted(self, begin: int) -> Ints:
        """The places of the rows in an array that begins with this row."""
        key = -1, (begin,)
        found = self._places.get(key)
        if found is None:
            found = self._places[key] = self.rows - begin
        return found

    def index(self, places: Ints) -> pa.Array:
        """The places, which must be those of this choice, as Arrow takes them."""
        found = self._indices.get(id(places))
        if found is None:
            found = self._indices[id(places)] = pa.array(places)
        return found


@dataclass(frozen=True, slots=True)
class Piece:
    """Decoded pages of a column. `pages` is None if they are all pages of the column chunk.

    With `begin`, the array has only some rows of the pages, without gaps, from this one on.
    """

    array: pa.Array
    pages: tuple[int, ...] | None = None
    layout: Pages | None = None
    begin: int | None = None

    def has(self, chosen: ChosenRows) -> bool:
        if self.begin is not None:
            rows = chosen.rows
            return not len(rows) or bool(self.begin <= rows[0] and rows[-1] < self.begin + len(self.array))
        if self.pages is None or self.layout is None:
            return True
        wanted = chosen.pages(self.layout)
        return wanted == self.pages or set(wanted) <= set(self.pages)

    def places(self, chosen: ChosenRows) -> Ints:
        """Where the rows are, which must be in these pages."""
        if self.begin is not None:
            return chosen.shifted(self.begin)
        if self.pages is None or self.layout is None:
            return chosen.rows
        return chosen.places(self.layout, self.pages)

    def at(self, chosen: ChosenRows) -> pa.Array:
        """The values of the rows, which must be in these pages."""
        places = self.places(chosen)
        if len(places) == len(self.array):
            return self.array
        if len(places) and places[-1] - places[0] + 1 == len(places):
            return self.array.slice(int(places[0]), len(places))
        return self.array.take(chosen.index(places))


class TakenTogether:
    """Takes the same rows of several columns. A call of Arrow takes longer than what it does for few rows."""

    def __init__(self, chosen: ChosenRows) -> None:
        self._chosen = chosen
        #: By where the rows are: most columns have pages of the same rows.
        self._columns: dict[int, tuple[Ints, dict[str, pa.Array]]] = {}

    def add(self, name: str, piece: Piece) -> None:
        places = piece.places(self._chosen)
        # The choice keeps the places, so that their identity stays theirs.
        self._columns.setdefault(id(places), (places, {}))[1][name] = piece.array

    def taken(self) -> dict[str, pa.Array]:
        found: dict[str, pa.Array] = {}
        for places, arrays in self._columns.values():
            begin, end = (int(places[0]), int(places[-1]) + 1) if len(places) else (0, 0)
            if end - begin == len(places):
                found |= {
                    name: array if len(places) == len(array) else array.slice(begin, len(places))
                    for name, array in arrays.items()
                }
                continue
            alike: dict[int, dict[str, pa.Array]] = {}
            for name, array in arrays.items():
                alike.setdefault(len(array), {})[name] = array
            for of_length in alike.values():
                batch = pa.RecordBatch.from_arrays(list(of_length.values()), names=list(of_length))
                found |= zip(of_length, batch.take(self._chosen.index(places)).columns, strict=True)
        return found
