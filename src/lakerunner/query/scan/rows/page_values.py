"""Decodes pages of the encodings that most columns of segments have: half the time that pyarrow takes for them.

These are flat columns of texts, integers and times: dictionaries, deltas, and texts behind their lengths, compressed
with zstd. `values_of` returns None for everything else, which `page_file.py` leaves to pyarrow. Kernels read all pages
of a column in one call (`page_columns.py`). Values are copied once from the memory into which pages are decompressed,
or only tested there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakerunner.query.scan.rows.page_bytes import (
    BYTE_STREAM_SPLIT,
    DELTA,
    DELTA_LENGTH,
    PLAIN_DICTIONARY,
    RLE_DICTIONARY,
    Bytes,
    LeafPages,
    Unusual,
    give_back,
)
from lakerunner.query.scan.rows.page_columns import (
    code_pages,
    delta_pages,
    dictionary_texts,
    double_pages,
    put_texts,
    size_of,
    text_page,
    text_pages,
    unpack,
)
from lakerunner.query.scan.rows.page_file import LeafBytes
from lakerunner.query.scan.rows.page_kernels import PAGE_BYTES, SLACK_BYTES, VALUES

Mask = npt.NDArray[np.bool_]
T = TypeVar("T")

_DICTIONARIES = (PLAIN_DICTIONARY, RLE_DICTIONARY)
_TEXT = pa.string()
_CODED_TEXT = pa.dictionary(pa.int32(), pa.string())
_INTEGERS: dict[pa.DataType, type[np.signedinteger[Any]]] = {
    pa.int64(): np.int64,
    pa.int32(): np.int32,
    pa.int16(): np.int16,
}
#: Pages differ; with so much more room than the first one asks for, it seldom has to grow.
_SPARE = 1.1
#: Texts of an array are counted in 32 bits.
_MAX_BYTES = (1 << 31) - 1


def values_of(field: pa.Field, leaf: LeafBytes, rows: int, span: tuple[int, int] | None = None) -> pa.Array | None:
    """The values of pages that hold this many rows; None if pyarrow must decode them. ValueError: bytes are damaged.

    With `span`, only those of the rows from its first up to its second number.
    """
    read = None if not _is_usual(leaf, rows) else _reader_of(field.type, leaf)
    if read is None:
        return None
    begin, end = (0, rows) if span is None else span
    return _guarded(lambda: read(field.type, leaf, rows, begin, end))


def tested_texts(
    leaf: LeafBytes, rows: int, test: Callable[[pa.Array], Mask], kept: KeptTexts | None = None
) -> tuple[Mask, Mask | None] | None:
    """Which texts pass the test, and which rows have none; None if pyarrow must decode them.

    The test gets the texts of one page at a time. The next page replaces them, except those that `kept` copies.
    """
    if not _is_usual(leaf, rows) or leaf.chunk.physical_type != "BYTE_ARRAY":
        return None
    return _guarded(lambda: _tested(LeafPages(leaf, rows, DELTA_LENGTH), test, kept))


class KeptTexts:
    """The texts of some rows of a column, as far as they pass a test, or as far as they fail it."""

    def __init__(self, passed: bool, wanted: Mask | None) -> None:
        """`wanted` are the rows to look at; None: all."""
        self._passed, self._wanted = passed, wanted
        self._ends: list[npt.NDArray[np.int32]] = [np.zeros(1, np.int32)]
        self._rows: list[npt.NDArray[np.int64]] = []
        self._used = 0
        self._buffer = pa.allocate_buffer(0, resizable=True)

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """Whose texts were kept, counted from the first row of the pages."""
        return np.concatenate([np.zeros(0, np.int64), *self._rows])

    def texts(self) -> pa.Array:
        ends = np.concatenate(self._ends)
        self._buffer.resize(self._used, shrink_to_fit=True)
        return pa.Array.from_buffers(_TEXT, len(ends) - 1, [None, pa.py_buffer(ends), self._buffer], 0)

    def add(self, first: int, passed: Mask, texts: Bytes, at: int, ends: npt.NDArray[np.int32], left: float) -> None:
        """Look at a page, whose rows begin with `first`. `left` is how many times as many rows are still to come."""
        chosen = passed if self._passed else ~passed
        if self._wanted is not None:
            chosen = chosen & self._wanted[first : first + len(passed)]
        rows = np.flatnonzero(chosen)
        size = size_of(ends, rows)
        if self._used + size > _MAX_BYTES:
            raise Unusual
        if self._used + size > len(self._buffer):
            # As if the other pages were like this one.
            self._buffer.resize(self._used + int(size * (1 + _SPARE * left)), shrink_to_fit=False)
        new_ends = np.empty(len(rows), np.int32)
        put_texts(texts, at, ends, rows, np.frombuffer(self._buffer, np.uint8), self._used, new_ends)
        self._used += size
        self._ends.append(new_ends)
        self._rows.append(rows + first)


def _tested(pages: LeafPages, test: Callable[[pa.Array], Mask], kept: KeptTexts | None) -> tuple[Mask, Mask | None]:
    passed = np.zeros(pages.rows, np.bool_)
    begin, into = 0, pages.take_scratch()
    for body, heads, _ in pages.bodies:
        for head in heads:
            rows = int(head[VALUES])
            present, ends = pages.present[begin : begin + rows], np.empty(rows + 1, np.int32)
            at, count = text_page(pages.zstd, body, head, pages.is_optional, into, rows, present, ends)
            validity, nulls = None, rows - count
            if nulls:
                validity = pa.py_buffer(np.packbits(present, bitorder="little"))
                pages.nulls += nulls
            buffers = [validity, pa.py_buffer(ends), pa.py_buffer(into)[at : at + int(ends[rows])]]
            of_page = test(pa.Array.from_buffers(_TEXT, rows, buffers, nulls))
            passed[begin : begin + rows] = of_page
            if kept is not None:
                kept.add(begin, of_page, into, at, ends, (pages.rows - begin - rows) / max(rows, 1))
            begin += rows
    give_back(into)
    return passed, pages.present == 0 if pages.nulls else None


def _is_usual(leaf: LeafBytes, rows: int) -> bool:
    chunk = leaf.chunk
    usual = leaf.is_flat and chunk.compression in ("ZSTD", "UNCOMPRESSED")
    return bool(usual and rows and chunk.total_uncompressed_size <= _MAX_BYTES)


def _guarded(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except Unusual:
        return None
    except IndexError as reason:
        raise ValueError(f"a page is damaged: {reason}") from reason


def _reader_of(kind: pa.DataType, leaf: LeafBytes) -> Callable[..., pa.Array] | None:
    physical = leaf.chunk.physical_type
    if physical == "BYTE_ARRAY":
        return {_TEXT: _texts, _CODED_TEXT: _coded_texts}.get(kind)
    if physical == "DOUBLE" and kind == pa.float64():
        return _doubles
    if physical in ("INT32", "INT64") and (kind in _INTEGERS or (pa.types.is_timestamp(kind) and kind.unit != "s")):
        return _coded_integers if leaf.dictionary else _integers
    return None


def _texts(kind: pa.DataType, leaf: LeafBytes, rows: int, begin: int, end: int) -> pa.Array:
    pages = LeafPages(leaf, rows, DELTA_LENGTH)
    # From Arrow's pool, which keeps what it freed: fresh memory would cost page faults.
    buffer, offset_buffer = pa.allocate_buffer(pages.size_bytes), pa.allocate_buffer(4 * (end - begin + 1))
    data, offsets = np.frombuffer(buffer, np.uint8), np.frombuffer(offset_buffer, np.int32)
    offsets[0] = row = used = 0
    into = pages.take_scratch()
    for body, heads, held in pages.bodies:
        first, last = max(begin - row, 0), min(end - row, held)
        if first < last:
            count, used = text_pages(
                pages.zstd, body, heads, pages.is_optional, into, first, last, pages.present[row : row + held],
                offsets[row + first - begin :], used, data,
            )  # fmt: skip
            pages.nulls += held - count
        row += held
    give_back(into)
    buffers = [pages.validity(begin, end), offset_buffer, buffer.slice(0, used)]
    return pa.Array.from_buffers(kind, end - begin, buffers, pages.nulls_in(begin, end))


def _coded_texts(kind: pa.DataType, leaf: LeafBytes, rows: int, begin: int, end: int) -> pa.Array:
    pages = LeafPages(leaf, rows, *_DICTIONARIES)
    body, head = pages.dictionary
    size, count = int(head[PAGE_BYTES]), int(head[VALUES])
    codes = _codes(pages, count).slice(4 * begin, 4 * (end - begin))
    numbers = np.frombuffer(codes, np.int32)
    # Few rows of a group have few of its words: then only those are copied, and nothing is read behind the last one.
    is_cut = end - begin < count
    places = np.zeros(count, np.int32) if is_cut else np.ones(count, np.int32)
    words = last = count
    if is_cut:
        places[numbers] = 1
        words, last = int(np.count_nonzero(places)), int(numbers.max(initial=-1)) + 1
    offset_buffer, buffer = pa.allocate_buffer(4 * (words + 1)), pa.allocate_buffer(size + SLACK_BYTES)
    offsets, data = np.frombuffer(offset_buffer, np.int32), np.frombuffer(buffer, np.uint8)
    into = pages.take_scratch(size)
    used = dictionary_texts(pages.zstd, body, head, into, places, last, offsets, data)
    give_back(into)
    texts = pa.Array.from_buffers(kind.value_type, words, [None, offset_buffer, buffer.slice(0, used)], 0)
    if is_cut:
        codes = pa.py_buffer(places[numbers])
    nulls = pages.nulls_in(begin, end)
    indices = pa.Array.from_buffers(kind.index_type, end - begin, [pages.validity(begin, end), codes], nulls)
    # The kernel has compared all codes with the number of words.
    return pa.DictionaryArray.from_arrays(indices, texts, safe=False)


def _codes(pages: LeafPages, count: int) -> pa.Buffer:
    buffer = pa.allocate_buffer(4 * pages.rows)
    _read_pages(pages, np.frombuffer(buffer, np.int32), code_pages, count)
    return buffer


def _read_pages(
    pages: LeafPages, values: npt.NDArray[Any], kernel: Callable[..., int], *arguments: int
) -> npt.NDArray[Any]:
    """Fill the values by a kernel for all pages."""
    row, into = 0, pages.take_scratch()
    for body, heads, held in pages.bodies:
        part, present = values[row : row + held], pages.present[row : row + held]
        count = kernel(pages.zstd, body, heads, pages.is_optional, into, *arguments, part, present)
        pages.nulls += held - count
        row += held
    give_back(into)
    return values


def _integers(kind: pa.DataType, leaf: LeafBytes, rows: int, begin: int, end: int) -> pa.Array:
    pages = LeafPages(leaf, rows, DELTA)
    dtype = _INTEGERS.get(kind, np.int64)
    buffer = pa.allocate_buffer(8 * rows)
    found = _read_pages(pages, np.frombuffer(buffer, np.int64), delta_pages)
    values = buffer if dtype is np.int64 else pa.py_buffer(found.astype(dtype))
    return _numbers(kind, pages, values, begin, end)


def _coded_integers(kind: pa.DataType, leaf: LeafBytes, rows: int, begin: int, end: int) -> pa.Array:
    pages = LeafPages(leaf, rows, *_DICTIONARIES)
    dtype = _INTEGERS.get(kind, np.int64)
    body, head = pages.dictionary
    size, count = int(head[PAGE_BYTES]), int(head[VALUES])
    into = pages.take_scratch(size)
    unpack(pages.zstd, body, head, into, size, np.zeros(2, np.int64))
    words = into[:size].view(np.int64 if pages.is_wide else np.int32).astype(dtype)
    give_back(into)
    if len(words) != count:
        raise ValueError("a dictionary is damaged")
    codes = np.frombuffer(_codes(pages, count), np.int32)[begin:end]
    buffer = pa.allocate_buffer(np.dtype(dtype).itemsize * (end - begin))
    values = np.frombuffer(buffer, dtype)
    if count:
        words.take(codes, out=values, mode="clip")
    else:
        values[:] = 0
    return pa.Array.from_buffers(kind, end - begin, [pages.validity(begin, end), buffer], pages.nulls_in(begin, end))


def _doubles(kind: pa.DataType, leaf: LeafBytes, rows: int, begin: int, end: int) -> pa.Array:
    pages = LeafPages(leaf, rows, BYTE_STREAM_SPLIT)
    if pages.has_dictionary:
        raise Unusual
    buffer = pa.allocate_buffer(8 * rows)
    _read_pages(pages, np.frombuffer(buffer, np.float64), double_pages)
    return _numbers(kind, pages, buffer, begin, end)


def _numbers(kind: pa.DataType, pages: LeafPages, values: pa.Buffer, begin: int, end: int) -> pa.Array:
    whole = pa.Array.from_buffers(kind, pages.rows, [pages.validity(), values], pages.nulls)
    return whole if end - begin == pages.rows else whole.slice(begin, end - begin)
