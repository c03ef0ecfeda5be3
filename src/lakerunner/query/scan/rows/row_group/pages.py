"""The pages of a row group: where they are, their bounds, and their bytes."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from lakerunner.query.scan.rows.byte_source import Range
from lakerunner.query.scan.rows.conditions.evaluate import Ints
from lakerunner.query.scan.rows.conditions.prune import Bounds
from lakerunner.query.scan.rows.opened import OpenedSegment
from lakerunner.query.scan.rows.parquet.page_file import LeafBytes
from lakerunner.query.scan.rows.parquet.page_index import PageBounds, Pages, read_bounds, read_pages
from lakerunner.query.scan.rows.parquet.page_values import Form, form_of
from lakerunner.query.scan.rows.request import RowTally
from lakerunner.query.scan.rows.row_group.facts import GroupFacts, plain

_DICTIONARY = pa.dictionary(pa.int32(), pa.string())


class GroupPages(GroupFacts):
    def __init__(self, opened: OpenedSegment, number: int, tally: RowTally) -> None:
        super().__init__(opened.segment, opened.footer, number)
        self.opened = opened
        self._tally = tally

    def read(self, ranges: Sequence[Range]) -> list[bytes]:
        found: list[bytes] = self.guarded(lambda: self.opened.read(ranges, self._tally))
        return found

    def page_bounds(self, name: str) -> tuple[Pages, list[Bounds]] | None:
        """Bounds of every page of a flat column; None if it has one page or no index."""
        layout = self.layout(name)
        if layout is None or len(self.footer.leaves[name]) != 1:
            return None
        kept, key = self.footer.kept, ("pages", self.number, name)
        found: list[Bounds] | None = kept.get(key)
        if found is None:
            found = kept[key] = self.guarded(lambda: self._page_bounds(name, layout))
        return (layout, found) if found else None

    def layout(self, name: str) -> Pages | None:
        """The pages of a column; None if it has only one, or if the pages of its leaves hold different rows."""
        kept, key = self.footer.kept, ("layout", self.number)
        layouts: dict[int, Pages | None] | None = kept.get(key)
        if layouts is None:
            layouts = kept[key] = self.guarded(self._layouts)
        leaves = self.footer.leaves[name]
        if len(leaves) == 1:
            return layouts[leaves[0]]
        found = [layouts[leaf] for leaf in leaves]
        first = found[0]
        if first is None or any(pages is None or pages.first_rows is not first.first_rows for pages in found):
            return None
        return first

    def _layouts(self) -> dict[int, Pages | None]:
        """The pages of all leaves, with one array of first rows for pages of the same rows.

        One read is enough, because their offset indexes are adjacent.
        """
        places = self.footer.places[self.number]
        leaves = range(self.footer.metadata.num_columns)
        ranges = [(int(places[leaf, 0]), int(places[leaf, 1])) for leaf in leaves]
        existing = [(start, length) for start, length in ranges if length > 0]
        if not existing:
            return dict.fromkeys(leaves)
        begin, end = min(start for start, _ in existing), max(start + length for start, length in existing)
        (body,) = self.opened.read([(begin, end - begin)], self._tally)
        found: dict[int, Pages | None] = {}
        shared: dict[bytes, Ints] = {}
        for leaf, (start, length) in zip(leaves, ranges, strict=True):
            pages = read_pages(body[start - begin : start - begin + length], self.rows) if length else None
            found[leaf] = None
            if pages is not None and len(pages) > 1:
                first_rows = shared.setdefault(pages.first_rows.tobytes(), pages.first_rows)
                found[leaf] = replace(pages, first_rows=first_rows)
        return found

    def leaf_bytes(self, pages_of: Mapping[str, tuple[int, ...] | None]) -> list[tuple[pa.Field, list[LeafBytes]]]:
        """Read the given pages of each column."""
        leaves: list[tuple[int, int]] = []
        ranges: list[Range] = []
        for name, pages in pages_of.items():
            for leaf in self.footer.leaves[name]:
                parts = self._leaf_ranges(leaf, pages)
                leaves.append((leaf, len(parts)))
                ranges += parts
        bodies, members = iter(self.opened.read(ranges, self._tally)), iter(leaves)
        found = []
        for name in pages_of:
            made = []
            for _ in self.footer.leaves[name]:
                leaf, count = next(members)
                dictionary, *data = (next(bodies) for _ in range(count))
                made.append(LeafBytes(self.leaf_chunk(leaf), dictionary, data, *self.footer.levels[leaf]))
            found.append((self._read_field(name), made))
        return found

    def _read_field(self, name: str) -> pa.Field:
        """The column as it is read: texts with a dictionary keep it."""
        kept, key = self.footer.kept, ("field", self.number, name)
        found: pa.Field | None = kept.get(key)
        if found is None:
            found = self.footer.fields[name]
            if found.type == pa.string() and self.chunk(name).has_dictionary_page:
                found = found.with_type(_DICTIONARY)
            kept[key] = found
        return found

    def form(self, name: str, leaf: LeafBytes) -> Form | None:
        """How the values of a flat column are stored; None if kernels cannot read them."""
        kept, key = self.footer.kept, ("form", self.number, name)
        if key not in kept:
            kept[key] = form_of(self._read_field(name).type, leaf)
        found: Form | None = kept[key]
        return found

    def _leaf_ranges(self, leaf: int, pages: tuple[int, ...] | None) -> list[tuple[int, int]]:
        """The ranges of the dictionary, which may be empty, and of the pages. Adjacent pages are one range."""
        chunk = self.leaf_chunk(leaf)
        data = chunk.data_page_offset
        start = chunk.begin
        ranges = [(start, data - start)]
        if pages is None:
            return [*ranges, (data, chunk.total_compressed_size - (data - start))]
        layout = self.footer.kept["layout", self.number][leaf]
        for page in pages:
            offset, size = int(layout.offsets[page]), int(layout.sizes[page])
            if len(ranges) > 1 and sum(ranges[-1]) == offset:
                ranges[-1] = (ranges[-1][0], ranges[-1][1] + size)
            else:
                ranges.append((offset, size))
        return ranges

    def _page_bounds(self, name: str, layout: Pages) -> list[Bounds]:
        leaf = self.footer.leaves[name][0]
        _, _, offset, length = (int(number) for number in self.footer.places[self.number, leaf])
        if not length:
            return []
        index = read_bounds(self.opened.read([(offset, length)], self._tally)[0])
        if len(index.low) != len(layout):
            raise ValueError("a page index does not fit its pages")
        kind = plain(self.footer.fields[name].type)
        counts = np.diff(layout.first_rows).tolist()
        return [self._of_page(name, kind, index, page, rows) for page, rows in enumerate(counts)]

    def _of_page(self, name: str, kind: pa.DataType, index: PageBounds, page: int, rows: int) -> Bounds:
        if index.all_null[page]:
            return Bounds(kind, rows, rows)
        nulls = index.null_counts[page] if index.null_counts else None
        low, high = (_value(kind, self.chunk(name).physical_type, bounds[page]) for bounds in (index.low, index.high))
        if low is None or high is None:
            return Bounds(kind, rows, nulls)
        return Bounds(kind, rows, nulls, *self.whole_times(name, kind, low, high))


def _value(kind: pa.DataType, physical: str, body: bytes) -> Any:
    """Decode a bound of the page index, which is plain and little-endian."""
    if pa.types.is_string(kind):
        return body
    if pa.types.is_boolean(kind):
        return bool(body[0])
    if physical in ("INT32", "INT64"):
        return int.from_bytes(body, "little", signed=not pa.types.is_unsigned_integer(kind))
    return struct.unpack("<d", body)[0] if physical == "DOUBLE" else None
