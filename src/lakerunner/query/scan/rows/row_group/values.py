"""The values of pages of a row group: what kernels can read is read by them, the rest by pyarrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakerunner.query.scan.rows.parquet.page_file import LeafBytes, decode
from lakerunner.query.scan.rows.parquet.page_values import Wanted, columns_of
from lakerunner.query.scan.rows.row_group.pages import GroupPages

#: If more of its pages are needed, the whole column is read, which later scans can use too.
MOST_PAGES = 0.7


class GroupValues(GroupPages):
    def cache_key(self, name: str, pages: tuple[int, ...] | None) -> tuple[Any, ...]:
        return self.opened.segment.key, self.opened.generation, self.number, name, pages

    def decoded(
        self,
        pages_of: Mapping[str, tuple[int, ...] | None],
        row_count: int,
        cuts: Mapping[str, tuple[int, int]],
    ) -> list[pa.Array]:
        """Decode the given pages of each column, which must hold the same rows; of some, only the rows of `cuts`."""
        found: dict[str, pa.Array] = {}
        others: list[tuple[pa.Field, list[LeafBytes]]] = []
        wanted: dict[str, Wanted] = {}
        read = dict(zip(pages_of, self.leaf_bytes(pages_of), strict=True))
        for name, (field, leaves) in read.items():
            form = self.form(name, leaves[0]) if len(leaves) == 1 and row_count else None
            if form is None:
                others.append((field, leaves))
            else:
                wanted[name] = Wanted(field.type, form, leaves[0], row_count, *cuts.get(name, (0, row_count)))
        for name, values in zip(wanted, columns_of(list(wanted.values())), strict=True):
            if values is None:
                others.append(read[name])
            else:
                found[name] = values
        if others:
            rest = [leaf for _, leaves in others for leaf in leaves]
            arrays = decode([field for field, _ in others], rest, row_count)
            for (field, _), array in zip(others, arrays, strict=True):
                begin, end = cuts.get(field.name, (0, row_count))
                found[field.name] = array.slice(begin, end - begin)
        return [found[name] for name in pages_of]

    def cold_span(self, names: Sequence[str], begin: int, end: int) -> list[pa.Array] | None:
        """The stored values of flat columns with pages of the same rows, of the rows from `begin` up to `end`.

        None: kernels cannot read them, or some were asked for before, so that `columns` keeps what it reads of them.
        """
        layouts = [self.layout(name) for name in names]
        pages, start, stop = None, 0, self.rows
        if (layout := layouts[0]) is not None:
            if any(other is None or other.first_rows is not layout.first_rows for other in layouts):
                return None
            first, last = layout.first_rows.searchsorted((begin, end - 1), "right").tolist()
            if last - first + 1 <= MOST_PAGES * len(layout):
                pages = tuple(range(first - 1, last))
                start, stop = int(layout.first_rows[first - 1]), int(layout.first_rows[last])
        elif any(other is not None for other in layouts):
            return None
        cache = self.opened.opener.decoded
        for name in names:
            key = self.cache_key(name, pages)
            if cache.is_known(key) or cache.has(key) or cache.has(self.cache_key(name, None)):
                return None
            cache.ask(key)
        span = begin - start, end - start
        found: list[pa.Array] | None = self.guarded(lambda: self._cold_span(names, pages, stop - start, span))
        return found

    def _cold_span(
        self, names: Sequence[str], pages: tuple[int, ...] | None, row_count: int, span: tuple[int, int]
    ) -> list[pa.Array] | None:
        wanted = []
        for name, (field, leaves) in zip(names, self.leaf_bytes(dict.fromkeys(names, pages)), strict=True):
            form = self.form(name, leaves[0]) if len(leaves) == 1 else None
            if form is None:
                return None
            wanted.append(Wanted(field.type, form, leaves[0], row_count, *span))
        self._tally.decoded += len(names)
        found = columns_of(wanted)
        return None if any(array is None for array in found) else found

    def is_coded_text(self, name: str) -> bool:
        """Whether it is a column of texts with a dictionary."""
        return self.is_text(name) and self.chunk(name).has_dictionary_page

    def dictionary_bytes(self, name: str) -> int:
        """The bytes of the dictionary of a column in the file."""
        chunk = self.chunk(name)
        return chunk.data_page_offset - chunk.begin

    def is_text(self, name: str) -> bool:
        field = self.footer.fields.get(name)
        return field is not None and bool(field.type == pa.string())
