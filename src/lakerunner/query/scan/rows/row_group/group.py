"""Reads one row group of a segment: bounds, and the values of columns at chosen rows.

Only pages that hold a wanted row are read and decoded. Decoded pages stay with the reader while it is in use, and those
that are read often stay in the cache of the process.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import OVERFLOW
from lakerunner.query.scan.rows.conditions.decided import Condition
from lakerunner.query.scan.rows.conditions.evaluate import Ints, Survivors, Test, overflow_values
from lakerunner.query.scan.rows.conditions.id_runs import IdRuns
from lakerunner.query.scan.rows.conditions.predicate import Ref
from lakerunner.query.scan.rows.opened import OpenedSegment
from lakerunner.query.scan.rows.parquet.page_index import Pages
from lakerunner.query.scan.rows.parquet.page_values import KeptTexts, Mask, tested_texts
from lakerunner.query.scan.rows.request import RowTally, Spend
from lakerunner.query.scan.rows.row_group.coarse_times import coarse_times
from lakerunner.query.scan.rows.row_group.dictionaries import with_dictionary
from lakerunner.query.scan.rows.row_group.pieces import ChosenRows, Piece, TakenTogether, every_row
from lakerunner.query.scan.rows.row_group.values import MOST_PAGES, GroupValues
from lakerunner.store.nanos import SUFFIX

T = TypeVar("T")
_DICTIONARY = pa.dictionary(pa.int32(), pa.string())
_NS = pa.timestamp("ns", "UTC")
#: If more of the rows of its pages are needed, whole pages of a text column are decoded.
_MOST_OF_PAGES = 0.8
#: As many rows of a condition are remembered when it is first asked: a trace that was read is read again.
KEPT_AT_ONCE = 256
#: What remembered rows take in memory beside their numbers.
_ROWS_BYTES = 512


class GroupReader(GroupValues):
    def __init__(
        self,
        opened: OpenedSegment,
        number: int,
        spend: Spend,
        tally: RowTally,
        read_after: Sequence[str] | None = None,
    ) -> None:
        """`read_after` are the columns that are read of the rows that satisfy the condition; None: any column."""
        super().__init__(opened, number, tally)
        self._read_after = read_after
        self._spend = spend
        self._pieces: dict[str, list[Piece]] = {}
        self._chosen: ChosenRows | None = None
        self._is_settled = False
        #: Columns of which the values of some rows are kept: those rows, and the values.
        self._some: dict[str, tuple[Ints, pa.Array]] = {}

    # -- what was found out before -------------------------------------------------------------------------------

    @property
    def place(self) -> tuple[Any, ...]:
        """Under which findings about the row group are remembered, for as long as its bytes are good."""
        return self.opened.segment.key, self.opened.generation, self.number

    def known_rows(self, condition: Condition) -> Ints | None:
        """The rows that satisfy the condition, if an earlier scan has found them."""
        if condition.number is None:
            return None
        kept: Any = self.opened.opener.decoded.get((*self.place, "rows", condition.number))
        if kept is None:
            return None
        self._tally.decoded_hits += 1
        found: Ints = kept.astype(np.int64)
        return found

    def know_rows(self, condition: Condition, rows: Ints) -> None:
        if condition.number is not None:
            kept: Any = rows.astype(np.int32)
            cache = self.opened.opener.decoded
            keep = cache.put if len(rows) <= KEPT_AT_ONCE else cache.offer
            keep((*self.place, "rows", condition.number), kept, kept.nbytes + _ROWS_BYTES)

    def kept_first(self, condition: Condition, *, newest: bool) -> Any:
        """What an earlier scan has kept of the first rows that satisfy the condition."""
        if condition.number is None:
            return None
        found = self.opened.opener.decoded.get((*self.place, "first", condition.number, newest))
        self._tally.decoded_hits += found is not None
        return found

    def keep_first(self, condition: Condition, first: Any, *, newest: bool) -> None:
        if condition.number is not None:
            key = (*self.place, "first", condition.number, newest)
            self.opened.opener.decoded.offer(key, first, first.nbytes + _ROWS_BYTES)

    def kept_form(self, condition: Condition, what: Hashable) -> tuple[Any, int] | None:
        """What was made of all rows that satisfy the condition, and their number, if that is kept."""
        if condition.number is None:
            return None
        found: Any = self.opened.opener.decoded.get((*self.place, "form", condition.number, what))
        if found is None or found[0] is None:
            return None
        self._tally.decoded_hits += 1
        return found[0], found[1]

    def keeps_form(self, condition: Condition, what: Hashable) -> bool:
        """Whether what is made of the rows should be kept, because it is asked for again."""
        cache, key = self.opened.opener.decoded, (*self.place, "form", condition.number, what)
        if condition.number is None or cache.has(key):
            return False
        is_known = cache.is_known(key)
        cache.ask(key)
        return is_known

    def keep_form(self, condition: Condition, what: Hashable, rows: int, form: Callable[[], tuple[Any, int]]) -> Any:
        """Keep what `form` returns, with its size; None: it cannot be kept."""
        made, size_bytes = form()
        key = (*self.place, "form", condition.number, what)
        self.opened.opener.decoded.put(key, (made, rows), size_bytes + _ROWS_BYTES)
        return made

    # -- values --------------------------------------------------------------------------------------------------

    def check(self) -> None:
        self._spend(self.held_bytes())

    def cost(self, ref: Ref) -> int:
        names = [name for name in ref.names() if name in self.footer.fields]
        if any(self.footer.may_overflow(name, self.number) for name in ref.names()):
            names.append(OVERFLOW)
        return 1 + self.stored_bytes(names)

    def stored_bytes(self, names: Iterable[str]) -> int:
        """The bytes of the columns in the object; of those that it lacks, 0."""
        leaves = (leaf for name in names for leaf in self.footer.leaves.get(name, ()))
        return sum(self.leaf_chunk(leaf).total_compressed_size for leaf in leaves)

    def arrays(self, name: str, rows: Ints) -> list[pa.Array]:
        found = []
        if name in self.footer.fields:
            found.append(self.column(name, rows))
        if self.footer.may_overflow(name, self.number):
            found.append(overflow_values(self.column(OVERFLOW, rows), name))
        return found

    def tested(self, name: str, rows: Ints, test: Test, survivors: Survivors) -> tuple[Mask, Mask | None] | None:
        """Test texts page by page while they are decompressed, unless somebody wants to keep them all.

        Copying them into an array of their own would cost as much as a test. If the texts of survivors are read
        afterwards, those alone are copied.
        """
        if not self._is_plain_text(name) or name in self._some:
            return None
        is_read = self._read_after is None or name in self._read_after or name in survivors.tested_again
        if is_read and (survivors.passed is None or self.bounds(name).nulls != 0):
            return None
        chosen = self._choice(rows)
        pages, layout = self._needed(name, chosen)
        cache, key = self.opened.opener.decoded, self.cache_key(name, pages)
        if cache.is_known(key) or cache.has(key) or cache.has(self.cache_key(name, None)):
            return None
        if self._piece_of(name, chosen) is not None:
            return None
        row_count = self.rows if pages is None or layout is None else _row_count(layout, pages)
        places = None
        if len(rows) < row_count:
            places = Piece(pa.nulls(row_count), pages, layout).places(chosen)
        kept = KeptTexts(bool(survivors.passed), _mask_of(places, row_count)) if is_read else None

        def test_pages() -> tuple[Mask, Mask | None] | None:
            (leaf,) = self.leaf_bytes({name: pages})[0][1]
            return tested_texts(leaf, row_count, test, kept)

        self._spend(self.held_bytes())
        found: tuple[Mask, Mask | None] | None = self.guarded(test_pages)
        if found is None:
            return None
        self._tally.decoded += 1
        cache.ask(key)
        if kept is not None:
            of_pages = kept.rows
            survived = of_pages if places is None else rows[np.searchsorted(places, of_pages)]
            self._some[name] = survived, kept.texts()
        if places is None:
            return found
        return found[0][places], None if found[1] is None else found[1][places]

    def has_survivors_only(self, ref: Ref) -> bool:
        return any(name in self._some for name in ref.names())

    def _is_plain_text(self, name: str) -> bool:
        """Whether it is a column of texts without a dictionary, of which no value is in the overflow."""
        if not self.is_text(name) or self._is_settled or self.bounds(name).all_null:
            return False
        return not self.chunk(name).has_dictionary_page and not self.footer.may_overflow(name, self.number)

    def column(self, name: str, rows: Ints) -> pa.Array:
        """The values of a column at the rows, which must ascend. Times are in nanoseconds."""
        return self.columns([name], rows)[name]

    def columns(self, names: Iterable[str], rows: Ints, edges: Ints | None = None) -> dict[str, pa.Array]:
        """The values of several columns. Their pages are read together.

        With `edges`, times may be others of the same interval (edges[j], edges[j + 1]].
        """
        wanted = list(names)
        split = [name for name in wanted if name + SUFFIX in self.footer.fields]
        times = {name: kept for name in split if (kept := self._kept_times(name, rows)) is not None}
        others = [name for name in wanted if name not in times]
        remainders = [name + SUFFIX for name in split if name not in times]
        if edges is None or not remainders:
            found = {**times, **self._stored([*others, *remainders], rows)}
        else:
            found = {**times, **self._stored(others, rows)}
            coarse = {name: coarse_times(found[name], edges) for name in split if name not in times}
            times |= {name: array for name, array in coarse.items() if array is not None}
            remainders = [name + SUFFIX for name in split if name not in times]
            found |= {**times, **(self._stored(remainders, rows) if remainders else {})}
        for name in split:
            if name not in times:
                found[name] = _nanoseconds(found[name], found[name + SUFFIX])
                if len(rows) == self.rows:
                    self.opened.opener.decoded.offer(self._times_key(name), found[name], found[name].nbytes)
        return {name: found[name] for name in wanted}

    def id_runs(self, name: str) -> IdRuns | None:
        """Where the rows of each id lie; None if the rows are not sorted by this column of ids."""
        found = self.kept_id_runs(name)
        if found is None:
            made = IdRuns.of(self.column(name, every_row(self.rows)))
            if made is None:
                return None
            self.opened.opener.decoded.offer(self._runs_key(name), made, made.nbytes)
            return made
        return found

    def kept_id_runs(self, name: str) -> IdRuns | None:
        """The same, if it is in the cache of the process."""
        return self.opened.opener.decoded.get(self._runs_key(name))

    def _runs_key(self, name: str) -> tuple[Any, ...]:
        return *self.cache_key(name, None), "runs"

    def remembered(self, what: Hashable, make: Callable[[], T], size_bytes: Callable[[T], int]) -> T:
        """What was made of all rows of the group before, from the cache of the process; else what is made now."""
        cache, key = self.opened.opener.decoded, (*self.cache_key("", None), what)
        found: T | None = cache.get(key)
        if found is None:
            found = make()
            cache.put(key, found, size_bytes(found))
        return found

    def settle(self, rows: Ints) -> None:
        """Free decoded pages, and keep only the values of these rows. Reads of a subset of them need no pages then."""
        pieces, self._pieces = self._pieces, {}
        some, self._some, self._is_settled = self._some, {}, len(rows) > 0
        if len(rows):
            chosen = self._choice(rows)
            taken = {name: each.at(chosen) for name, of_name in pieces.items() for each in of_name if each.has(chosen)}
            taken |= {name: array for name, kept in some.items() if (array := _among(kept, rows)) is not None}
            # Copied: a slice would keep its pages in memory.
            self._some = {name: (rows, pa.concat_arrays([array])) for name, array in taken.items()}

    def held_bytes(self) -> int:
        whole = (piece.array for pieces in self._pieces.values() for piece in pieces)
        return sum(array.nbytes for array in (*whole, *(array for _, array in self._some.values())))

    # -- reading -------------------------------------------------------------------------------------------------

    def _kept_times(self, name: str, rows: Ints) -> pa.Array | None:
        """The times of the rows, from all times of the group in the cache of the process."""
        kept = self.opened.opener.decoded.get(self._times_key(name))
        if kept is None:
            return None
        self._tally.decoded_hits += 1
        return Piece(kept).at(self._choice(rows))

    def _times_key(self, name: str) -> tuple[Any, ...]:
        return *self.cache_key(name, None), "ns"

    def _stored(self, names: Sequence[str], rows: Ints) -> dict[str, pa.Array]:
        if not len(rows):
            return {name: pa.nulls(0, self.footer.fields[name].type) for name in names}
        found: dict[str, pa.Array] = {}
        missing = []
        chosen = self._choice(rows)
        together = TakenTogether(chosen)
        for name in dict.fromkeys(names):
            among = _among(self._some[name], rows) if name in self._some else None
            if among is not None:
                found[name] = among
            elif self.bounds(name).all_null:
                found[name] = pa.nulls(len(rows), self.footer.fields[name].type)
            elif (piece := self._piece_of(name, chosen) or self._known(name, *self._needed(name, chosen))) is not None:
                together.add(name, piece)
            else:
                missing.append(name)
        if missing:
            self._spend(self.held_bytes())
            self.guarded(lambda: self._load(missing, chosen))
            for name in missing:
                piece = self._piece_of(name, chosen)
                assert piece is not None
                together.add(name, piece)
        found.update(together.taken())
        return found

    def _choice(self, rows: Ints) -> ChosenRows:
        """The rows with what is known about their places: callers ask for several columns of the same rows."""
        if self._chosen is None or self._chosen.rows is not rows:
            self._chosen = ChosenRows(rows)
        return self._chosen

    def _piece_of(self, name: str, chosen: ChosenRows) -> Piece | None:
        pieces = self._pieces.get(name)
        return next((piece for piece in pieces if piece.has(chosen)), None) if pieces else None

    def _load(self, names: Sequence[str], chosen: ChosenRows) -> None:
        """Decode the pages that hold the rows. Columns with the same page boundaries are decoded together."""
        together: dict[tuple[Any, ...] | None, list[str]] = {}
        needed = {name: self._needed(name, chosen) for name in names}
        for name, (pages, layout) in needed.items():
            span = None if pages is None or layout is None else tuple(_span(layout, page) for page in pages)
            together.setdefault(span, []).append(name)
        for span, members in together.items():
            row_count = self.rows if span is None else sum(end - start for start, end in span)
            cuts = {} if span is None else self._cuts({name: needed[name][0] for name in members}, span, chosen)
            arrays = self.decoded({name: needed[name][0] for name in members}, row_count, cuts)
            for name, array in zip(members, arrays, strict=True):
                self._tally.decoded += 1
                pages, layout = needed[name]
                cache, key = self.opened.opener.decoded, self.cache_key(name, pages)
                if name in cuts:
                    assert span is not None
                    cache.ask(key)
                    self._pieces.setdefault(name, []).append(Piece(array, pages, layout, span[0][0] + cuts[name][0]))
                    continue
                if cache.is_known(key):
                    array = with_dictionary(array)
                cache.offer(key, array, array.get_total_buffer_size())
                self._pieces.setdefault(name, []).append(Piece(array, pages, layout))

    def _cuts(
        self, members: Mapping[str, tuple[int, ...] | None], span: Sequence[tuple[int, int]], chosen: ChosenRows
    ) -> dict[str, tuple[int, int]]:
        """The columns of which not all rows of the pages are read: those that nobody has asked for before.

        Returns the rows that are read, counted from the first row of the pages.
        """
        first, last = span[0][0], span[-1][1]
        begin, end = int(chosen.rows[0]) - first, int(chosen.rows[-1]) + 1 - first
        whole = last - first
        if end - begin > _MOST_OF_PAGES * whole or any(one[1] != other[0] for one, other in pairwise(span)):
            return {}
        cache = self.opened.opener.decoded
        return {
            name: (begin, end) for name, pages in members.items() if not cache.is_known(self.cache_key(name, pages))
        }

    def _known(self, name: str, pages: tuple[int, ...] | None, layout: Pages | None) -> Piece | None:
        """The pages as an earlier scan has decoded them, if they are in the cache of the process."""
        cache = self.opened.opener.decoded
        whole = cache.get(self.cache_key(name, None))
        found = cache.get(self.cache_key(name, pages)) if whole is None and pages is not None else whole
        if found is None:
            return None
        self._tally.decoded_hits += 1
        return Piece(found) if whole is not None else Piece(found, pages, layout)

    def _needed(self, name: str, chosen: ChosenRows) -> tuple[tuple[int, ...] | None, Pages | None]:
        """The pages with a wanted row, which are the same for all leaves of the column; None means the whole chunk."""
        layout = self.layout(name)
        if layout is None:
            return None, None
        pages = chosen.pages(layout)
        return (None, None) if len(pages) > MOST_PAGES * len(layout) else (pages, layout)


def _among(some: tuple[Ints, pa.Array], rows: Ints) -> pa.Array | None:
    """The values of the rows, if they are among those of which values are kept."""
    kept, array = some
    if len(kept) == len(rows) and np.array_equal(kept, rows):
        return array
    places = np.searchsorted(kept, rows)
    if len(places) and (places[-1] >= len(kept) or not np.array_equal(kept[places], rows)):
        return None
    return array.take(pa.array(places))


def _mask_of(places: Ints | None, count: int) -> Mask | None:
    if places is None:
        return None
    mask = np.zeros(count, np.bool_)
    mask[places] = True
    return mask


def _row_count(layout: Pages, pages: tuple[int, ...]) -> int:
    return sum(end - start for start, end in (_span(layout, page) for page in pages))


def _span(layout: Pages, page: int) -> tuple[int, int]:
    return int(layout.first_rows[page]), int(layout.first_rows[page + 1])


def _nanoseconds(whole: pa.Array, rest: pa.Array) -> pa.Array:
    if not whole.null_count and not rest.null_count and pa.types.is_timestamp(whole.type):
        # Numpy: for few rows, the calls of five kernels of Arrow take longer than all else.
        total = whole.view(pa.int64()).to_numpy() * 1_000 + rest.to_numpy()
        return pa.array(total.astype(np.int64, copy=False)).view(_NS)
    total = pc.add(pc.multiply(whole.cast(pa.int64()), 1_000), rest.cast(pa.int64()))
    return total.cast(_NS)
