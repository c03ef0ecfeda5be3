"""Decodes pages of the encodings that most columns of segments have: half the time that pyarrow takes for them.

These are flat columns of texts, integers and times: dictionaries, deltas, and texts behind their lengths, compressed
with zstd. `values_of` returns None for everything else, which `page_file.py` leaves to pyarrow. Values are copied once
from the memory into which pages are decompressed (`page_bytes.py`), or only tested there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import zstandard

from lakerunner.query.scan.rows.page_bytes import (
    BYTE_STREAM_SPLIT,
    DELTA,
    DELTA_LENGTH,
    PLAIN_DICTIONARY,
    RLE_DICTIONARY,
    LeafPages,
    Page,
    Unusual,
)
from lakerunner.query.scan.rows.page_file import LeafBytes
from lakerunner.query.scan.rows.page_kernels import (
    SLACK_BYTES,
    plain_texts,
    read_codes,
    read_deltas,
    read_lengths,
    spread,
    total_lengths,
)

Ints = npt.NDArray[np.int64]
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
#: Texts of an array are counted in 32 bits.
_MAX_BYTES = (1 << 31) - 1


def values_of(field: pa.Field, leaf: LeafBytes, rows: int, span: tuple[int, int] | None = None) -> pa.Array | None:
    """The values of pages that hold this many rows; None if pyarrow must decode them. ValueError: bytes are damaged.

    With `span`, only those of the rows from its first up to its second number.
    """
    read = None if not _is_usual(leaf, rows) else _reader_of(field.type, leaf.chunk.physical_type)
    if read is None:
        return None
    begin, end = (0, rows) if span is None else span

    def values() -> pa.Array:
        pages = LeafPages(leaf, rows)
        if read in (_texts, _coded_texts):
            return read(field.type, pages, begin, end)
        whole = read(field.type, pages)
        return whole if span is None else whole.slice(begin, end - begin)

    return _guarded(values)


def tested_texts(leaf: LeafBytes, rows: int, test: Callable[[pa.Array], Mask]) -> tuple[Mask, Mask | None] | None:
    """Which texts pass the test, and which rows have none; None if pyarrow must decode them.

    The test gets the texts of one page at a time, and they are not copied: the next page replaces them.
    """
    if not _is_usual(leaf, rows) or leaf.chunk.physical_type != "BYTE_ARRAY":
        return None
    return _guarded(lambda: _tested(LeafPages(leaf, rows), rows, test))


def _tested(pages: LeafPages, rows: int, test: Callable[[pa.Array], Mask]) -> tuple[Mask, Mask | None]:
    passed, absent = np.zeros(rows, np.bool_), np.zeros(rows, np.bool_)
    for page in pages.encoded(DELTA_LENGTH):
        at, ends = _text_places(pages, page, page.rows)
        begin, end = page.row, page.row + page.rows
        validity, nulls = None, page.rows - page.present
        if nulls:
            present = pages.present(page)
            validity = pa.py_buffer(np.packbits(present, bitorder="little"))
            absent[begin:end] = present == 0
        texts = pa.py_buffer(page.data)[at : at + int(ends[-1])]
        passed[begin:end] = test(pa.Array.from_buffers(_TEXT, page.rows, [validity, pa.py_buffer(ends), texts], nulls))
    return passed, absent if pages.nulls else None


def _is_usual(leaf: LeafBytes, rows: int) -> bool:
    chunk = leaf.chunk
    usual = leaf.is_flat and chunk.compression in ("ZSTD", "UNCOMPRESSED")
    return bool(usual and rows and chunk.total_uncompressed_size <= _MAX_BYTES)


def _guarded(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except Unusual:
        return None
    except (IndexError, zstandard.ZstdError) as reason:
        raise ValueError(f"a page is damaged: {reason}") from reason


def _reader_of(kind: pa.DataType, physical: str) -> Any:
    if physical == "BYTE_ARRAY":
        return {_TEXT: _texts, _CODED_TEXT: _coded_texts}.get(kind)
    if physical == "DOUBLE" and kind == pa.float64():
        return _doubles
    if physical in ("INT32", "INT64") and (kind in _INTEGERS or (pa.types.is_timestamp(kind) and kind.unit != "s")):
        return _integers
    return None


def _texts(kind: pa.DataType, pages: LeafPages, begin: int, end: int) -> pa.Array:
    # From Arrow's pool, which keeps what it freed: fresh memory would cost page faults.
    buffer, offset_buffer = pa.allocate_buffer(pages.size_bytes), pa.allocate_buffer(4 * (end - begin + 1))
    data, offsets = np.frombuffer(buffer, np.uint8), np.frombuffer(offset_buffer, np.int32)
    offsets[0] = used = 0
    for page in pages.encoded(DELTA_LENGTH, until=end):
        # The rows of this page that are wanted.
        first, last = max(begin - page.row, 0), min(end - page.row, page.rows)
        if first >= last:
            continue
        at, ends = _text_places(pages, page, last)
        low, high = int(ends[first]), int(ends[last])
        data[used : used + high - low] = page.data[at + low : at + high]
        row = page.row + first - begin
        np.add(ends[first : last + 1], used - low, out=offsets[row : row + last - first + 1])
        used += high - low
    buffers = [pages.validity(begin, end), offset_buffer, buffer.slice(0, used)]
    return pa.Array.from_buffers(kind, end - begin, buffers, pages.nulls_in(begin, end))


def _text_places(pages: LeafPages, page: Page, last: int) -> tuple[int, npt.NDArray[np.int32]]:
    """Where the texts of a page begin, and where each ends after that. Those before the row `last` are ready then."""
    lengths = np.empty(page.present, np.int64)
    try:
        at = read_lengths(page.data, page.begin, page.ready, lengths)
    except ValueError:
        if page.ready == page.end:
            raise
        page.fill(page.end)
        at = read_lengths(page.data, page.begin, page.ready, lengths)
    ends = np.zeros(page.rows + 1, np.int32)
    size = total_lengths(lengths, 0, pages.present(page), ends)
    if size < 0 or at + size > page.end:
        raise ValueError("texts are longer than their page")
    page.fill(at + int(ends[last]))
    return int(at), ends


def _coded_texts(kind: pa.DataType, pages: LeafPages, begin: int, end: int) -> pa.Array:
    with pages.dictionary() as (body, size, count):
        codes = _codes(pages, count).slice(4 * begin, 4 * (end - begin))
        numbers = np.frombuffer(codes, np.int32)
        # Few rows of a group have few of its words: then only those are copied.
        is_cut = end - begin < count
        places = np.zeros(count, np.int32) if is_cut else np.ones(count, np.int32)
        if is_cut:
            places[numbers] = 1
        words = int(places.sum())
        offset_buffer, buffer = pa.allocate_buffer(4 * (words + 1)), pa.allocate_buffer(size + SLACK_BYTES)
        offsets, data = np.frombuffer(offset_buffer, np.int32), np.frombuffer(buffer, np.uint8)
        used = plain_texts(body, size, places, offsets, data)
    if used < 0:
        raise ValueError("a dictionary is damaged")
    texts = pa.Array.from_buffers(kind.value_type, words, [None, offset_buffer, buffer.slice(0, used)], 0)
    if is_cut:
        codes = pa.py_buffer(places[numbers])
    nulls = pages.nulls_in(begin, end)
    indices = pa.Array.from_buffers(kind.index_type, end - begin, [pages.validity(begin, end), codes], nulls)
    return pa.DictionaryArray.from_arrays(indices, texts)


def _codes(pages: LeafPages, count: int) -> pa.Buffer:
    buffer = pa.allocate_buffer(4 * pages.rows)
    codes = np.frombuffer(buffer, np.int32)
    for page in pages.encoded(*_DICTIONARIES):
        of_page = codes[page.row : page.row + page.rows]
        if page.present and not read_codes(page.data, page.begin, page.end, count, of_page[: page.present]):
            raise ValueError("a page names values that its dictionary lacks")
        if page.present < page.rows:
            spread(of_page, pages.present(page), page.present)
    return buffer


def _integers(kind: pa.DataType, pages: LeafPages) -> pa.Array:
    dtype = _INTEGERS.get(kind, np.int64)
    if pages.has_dictionary:
        values = _named_integers(pages, dtype)
    else:
        buffer = pa.allocate_buffer(8 * pages.rows)
        found = np.frombuffer(buffer, np.int64)
        for page in pages.encoded(DELTA):
            of_page = found[page.row : page.row + page.rows]
            if page.present:
                read_deltas(page.data, page.begin, page.end, of_page[: page.present])
            if page.present < page.rows:
                spread(of_page, pages.present(page), page.present)
        values = buffer if dtype is np.int64 else pa.py_buffer(found.astype(dtype))
    return pa.Array.from_buffers(kind, pages.rows, [pages.validity(), values], pages.nulls)


def _doubles(kind: pa.DataType, pages: LeafPages) -> pa.Array:
    if pages.has_dictionary:
        raise Unusual
    buffer = pa.allocate_buffer(8 * pages.rows)
    found = np.frombuffer(buffer, np.float64)
    for page in pages.encoded(BYTE_STREAM_SPLIT):
        if page.end - page.begin != 8 * page.present:
            raise ValueError("a page has another size than its values")
        of_page = found[page.row : page.row + page.rows]
        # The first bytes of all values, then the second ones, and so on.
        columns = page.data[page.begin : page.end].reshape(8, page.present)
        of_page[: page.present].view(np.uint8).reshape(page.present, 8)[:] = columns.T
        if page.present < page.rows:
            spread(of_page, pages.present(page), page.present)
    return pa.Array.from_buffers(kind, pages.rows, [pages.validity(), buffer], pages.nulls)


def _named_integers(pages: LeafPages, dtype: type[np.signedinteger[Any]]) -> pa.Buffer:
    with pages.dictionary() as (body, size, count):
        words = np.frombuffer(body[:size], np.int64 if pages.is_wide else np.int32).astype(dtype)
    if len(words) != count:
        raise ValueError("a dictionary is damaged")
    codes = np.frombuffer(_codes(pages, count), np.int32)
    if not count:
        return pa.py_buffer(np.zeros(pages.rows, dtype))
    buffer = pa.allocate_buffer(np.dtype(dtype).itemsize * pages.rows)
    words.take(codes, out=np.frombuffer(buffer, dtype), mode="clip")
    return buffer
