"""Decompresses the pages of a column one after another into the same piece of memory.

Of the last page of a span of rows, only the beginning is decompressed, as far as the rows need it.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import zstandard

from lakerunner.query.scan.rows.page_file import LeafBytes
from lakerunner.query.scan.rows.page_kernels import (
    AT,
    CRC,
    ENCODING,
    HAS_CRC,
    KIND,
    LEVELS,
    PACKED_BYTES,
    PAGE_BYTES,
    SLACK_BYTES,
    VALUES,
    page_heads,
    read_levels,
)

Bytes = npt.NDArray[np.uint8]

#: Numbers that Parquet gives to encodings and kinds of pages.
PLAIN, PLAIN_DICTIONARY, RLE, DELTA, DELTA_LENGTH, RLE_DICTIONARY, BYTE_STREAM_SPLIT = 0, 2, 3, 5, 6, 8, 9
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
#: Memory that a thread keeps for a page and for a dictionary. Fresh memory would cost page faults for every column.
_KEPT_BYTES, _MOST_KEPT = 4 << 20, 2
#: If more of the rows of a page are needed, it is decompressed at once, which is faster per byte.
_MOST_OF_PAGE = 0.7
#: What is decompressed beyond the share of a page that its rows are: lengths come first, and rows differ.
_SPARE_SHARE, _SPARE_BYTES = 0.05, 16 << 10
_of_thread = threading.local()


class Unusual(Exception):
    """The pages are valid, but not of the kinds that are read here."""


@dataclass(slots=True)
class Page:
    """A page: `data[begin:end]` are its values, `rows` its rows, `present` those with a value.

    Only the bytes up to `ready` are decompressed; `fill` decompresses more.
    """

    data: Bytes
    begin: int
    end: int
    row: int
    rows: int
    present: int
    ready: int
    _reader: Any = field(default=None, repr=False)

    def fill(self, until: int) -> None:
        until = min(until, self.end)
        if self.ready < until:
            if self._reader.readinto(self.data[self.ready : until].data) != until - self.ready:
                raise ValueError("a page is shorter than its head says")
            self.ready = until


class LeafPages:
    """The pages of a leaf, which hold so many rows, and which rows have a value."""

    def __init__(self, leaf: LeafBytes, rows: int) -> None:
        self._leaf, self.rows = leaf, rows
        self._bodies = [(body, page_heads(np.frombuffer(body, np.uint8)).tolist()) for body in leaf.pages]
        heads = [head for _, of_body in self._bodies for head in of_body]
        self.size_bytes = sum(head[PAGE_BYTES] for head in heads)
        if self.size_bytes > leaf.chunk.total_uncompressed_size:
            raise ValueError("pages are larger than their column")
        if any(head[KIND] != _DATA_PAGE for head in heads):
            raise Unusual
        held = sum(head[VALUES] for head in heads)
        if held != rows:
            raise ValueError(f"pages hold {held} rows instead of {rows}")
        self._largest = max((head[PAGE_BYTES] for head in heads), default=0)
        self._encodings = {head[ENCODING] for head in heads}
        self._present = np.ones(rows, np.uint8)
        self.nulls = 0

    def encoded(self, *encodings: int, until: int | None = None) -> Iterator[Page]:
        """The data pages, one at a time: the next one replaces the bytes of the one before it.

        Pages that begin at or after the row `until` are left out, and the last one may not be ready up to its end.
        """
        if not self._encodings <= set(encodings):
            raise Unusual
        last = self.rows if until is None else until
        scratch = _taken_scratch(self._largest + SLACK_BYTES)
        row = 0
        try:
            for body, heads in self._bodies:
                for head in heads:
                    if row >= last:
                        return
                    yield self._page(body, head, scratch, row, last)
                    row += head[VALUES]
        finally:
            _give_back(scratch)

    def present(self, page: Page) -> Bytes:
        return self._present[page.row : page.row + page.rows]

    @contextmanager
    def dictionary(self) -> Iterator[tuple[Bytes, int, int]]:
        """The bytes of the dictionary, how many of them count, and the number of its values. Not to be kept."""
        body = self._leaf.dictionary
        heads = page_heads(np.frombuffer(body, np.uint8)) if body else np.zeros((0, 0), np.int64)
        if len(heads) != 1 or heads[0, KIND] != _DICTIONARY_PAGE:
            raise Unusual
        head = heads[0].tolist()
        if head[ENCODING] not in (PLAIN, PLAIN_DICTIONARY):
            raise Unusual
        if head[PAGE_BYTES] > self._leaf.chunk.total_uncompressed_size:
            raise ValueError("a dictionary is larger than its column")
        found = _taken_scratch(head[PAGE_BYTES] + SLACK_BYTES)
        try:
            self._unpack(body, head, found, head[PAGE_BYTES])
            yield found, head[PAGE_BYTES], head[VALUES]
        finally:
            _give_back(found)

    @property
    def has_dictionary(self) -> bool:
        return bool(self._leaf.dictionary)

    @property
    def is_wide(self) -> bool:
        """Whether integers are stored with 64 bits."""
        return bool(self._leaf.chunk.physical_type == "INT64")

    def validity(self, begin: int = 0, end: int | None = None) -> pa.Buffer | None:
        """Which of the rows have a value; None: all."""
        return pa.py_buffer(np.packbits(self._present[begin:end], bitorder="little")) if self.nulls else None

    def nulls_in(self, begin: int, end: int) -> int:
        return end - begin - int(self._present[begin:end].sum()) if self.nulls else 0

    def _page(self, body: bytes, head: list[int], scratch: Bytes, row: int, last: int) -> Page:
        rows, size = head[VALUES], head[PAGE_BYTES]
        share = (last - row) / max(rows, 1)
        ready = size if share > _MOST_OF_PAGE else min(size, int(size * (share + _SPARE_SHARE)) + _SPARE_BYTES)
        page = Page(scratch, 0, size, row, rows, rows, ready, self._unpack(body, head, scratch, ready))
        if self._leaf.is_optional:
            if head[LEVELS] != RLE:
                raise Unusual
            # Runs of levels take few bytes; should they take more than are ready, all are needed.
            page.fill(4)
            page.fill(4 + int(scratch[:4].view(np.uint32)[0]) if size >= 4 else size)
            page.begin, page.present = read_levels(scratch, page.ready, rows, self._present[row : row + rows])
            self.nulls += rows - page.present
        return page

    def _unpack(self, body: bytes, head: list[int], into: Bytes, ready: int) -> Any:
        """Decompress the first bytes of a page. Returns what reads on; None if there is no more."""
        packed = memoryview(body)[head[AT] : head[AT] + head[PACKED_BYTES]]
        if len(packed) != head[PACKED_BYTES]:
            raise ValueError("a page is cut off")
        if head[HAS_CRC] and zlib.crc32(packed) != head[CRC] & 0xFFFFFFFF:
            raise ValueError("the checksum (CRC) of a page is wrong")
        if self._leaf.chunk.compression == "UNCOMPRESSED":
            if len(packed) != head[PAGE_BYTES]:
                raise ValueError("a page has another size than its head says")
            into[: len(packed)] = np.frombuffer(packed, np.uint8)
            return _Whole()
        reader = _decompressor().stream_reader(packed)
        if ready and reader.readinto(into[:ready].data) != ready:
            raise ValueError("a page is shorter than its head says")
        return reader


class _Whole:
    """The rest of a page that is not compressed: it is there already."""

    def readinto(self, rest: memoryview) -> int:
        return len(rest)


def _decompressor() -> zstandard.ZstdDecompressor:
    """The decompressor of this thread: making one costs more than decompressing a small page."""
    found = getattr(_of_thread, "decompressor", None)
    if found is None:
        found = _of_thread.decompressor = zstandard.ZstdDecompressor()
    return found


def _taken_scratch(size: int) -> Bytes:
    """Memory of at least this size, which nobody else on this thread uses meanwhile."""
    kept = _kept_scratch()
    # The smallest that is large enough; else the next larger one replaces one that is too small.
    fitting = [each for each in kept if len(each) >= size]
    if not fitting:
        if len(kept) == _MOST_KEPT:
            smallest = min(kept, key=len)
            kept[:] = [each for each in kept if each is not smallest]
        return np.empty(size, np.uint8)
    found = min(fitting, key=len)
    kept[:] = [each for each in kept if each is not found]
    return found


def _give_back(scratch: Bytes) -> None:
    kept = _kept_scratch()
    if len(scratch) <= _KEPT_BYTES and len(kept) < _MOST_KEPT:
        kept.append(scratch)


def _kept_scratch() -> list[Bytes]:
    found: list[Bytes] | None = getattr(_of_thread, "scratch", None)
    if found is None:
        found = _of_thread.scratch = []
    return found
