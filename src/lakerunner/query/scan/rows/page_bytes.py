"""The pages of a leaf column, and the memory into which they are decompressed one after another."""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakerunner.query.scan.rows.page_file import LeafBytes
from lakerunner.query.scan.rows.page_kernels import (
    ENCODING,
    KIND,
    PAGE_BYTES,
    SLACK_BYTES,
    page_heads,
    totals_of,
)
from lakerunner.query.scan.rows.zstd_calls import NO_ZSTD, zstd_of_thread

Bytes = npt.NDArray[np.uint8]
Heads = npt.NDArray[np.int64]

#: Numbers that Parquet gives to encodings and kinds of pages.
PLAIN, PLAIN_DICTIONARY, RLE, DELTA, DELTA_LENGTH, RLE_DICTIONARY, BYTE_STREAM_SPLIT = 0, 2, 3, 5, 6, 8, 9
_DICTIONARY_PAGE = 2
#: Memory that a thread keeps for pages. Fresh memory would cost page faults for every column.
_KEPT_BYTES = 4 << 20
_of_thread = threading.local()


class Unusual(Exception):
    """The pages are valid, but not of the kinds that are read here."""


class LeafPages:
    """The pages of a leaf, which hold so many rows, and which rows have a value."""

    def __init__(self, leaf: LeafBytes, rows: int, encoding: int, other_encoding: int | None = None) -> None:
        """Unusual: a data page has another encoding than these."""
        self._leaf, self.rows = leaf, rows
        self.is_optional = leaf.is_optional
        self.size_bytes = self._largest = self.nulls = held = 0
        #: The bytes of pages that lie beside each other, their heads, and the number of their rows.
        self.bodies: list[tuple[Bytes, Heads, int]] = []
        for each in leaf.pages:
            body = np.frombuffer(each, np.uint8)
            heads = page_heads(body)
            other = encoding if other_encoding is None else other_encoding
            size, values, largest, is_usual = totals_of(heads, encoding, other, RLE if leaf.is_optional else -1)
            if not is_usual:
                raise Unusual
            self.bodies.append((body, heads, values))
            self.size_bytes, self._largest, held = self.size_bytes + size, max(self._largest, largest), held + values
        if self.size_bytes > leaf.chunk.total_uncompressed_size:
            raise ValueError("pages are larger than their column")
        if held != rows:
            raise ValueError(f"pages hold {held} rows instead of {rows}")
        self.zstd = NO_ZSTD if leaf.chunk.compression == "UNCOMPRESSED" else zstd_of_thread()
        self.present = np.ones(rows, np.uint8)

    def take_scratch(self, size: int | None = None) -> Bytes:
        """Memory for a page of this size, or for the largest one. To be given back."""
        return _taken_scratch((self._largest if size is None else size) + SLACK_BYTES)

    @property
    def dictionary(self) -> tuple[Bytes, Heads]:
        """The bytes of the dictionary page, and its head."""
        body = np.frombuffer(self._leaf.dictionary, np.uint8)
        heads = page_heads(body)
        if len(heads) != 1 or heads[0, KIND] != _DICTIONARY_PAGE:
            raise Unusual
        if heads[0, ENCODING] not in (PLAIN, PLAIN_DICTIONARY):
            raise Unusual
        if heads[0, PAGE_BYTES] > self._leaf.chunk.total_uncompressed_size:
            raise ValueError("a dictionary is larger than its column")
        return body, heads[0]

    @property
    def has_dictionary(self) -> bool:
        return bool(self._leaf.dictionary)

    @property
    def is_wide(self) -> bool:
        """Whether integers are stored with 64 bits."""
        return bool(self._leaf.chunk.physical_type == "INT64")

    def validity(self, begin: int = 0, end: int | None = None) -> pa.Buffer | None:
        """Which of the rows have a value; None: all."""
        return pa.py_buffer(np.packbits(self.present[begin:end], bitorder="little")) if self.nulls else None

    def nulls_in(self, begin: int, end: int) -> int:
        return end - begin - int(self.present[begin:end].sum()) if self.nulls else 0


def _taken_scratch(size: int) -> Bytes:
    """Memory of at least this size, which nobody else on this thread uses meanwhile."""
    kept: Bytes | None = getattr(_of_thread, "scratch", None)
    _of_thread.scratch = None
    return np.empty(size, np.uint8) if kept is None or len(kept) < size else kept


def give_back(scratch: Bytes) -> None:
    kept: Bytes | None = getattr(_of_thread, "scratch", None)
    if len(scratch) <= _KEPT_BYTES and (kept is None or len(kept) < len(scratch)):
        _of_thread.scratch = scratch
