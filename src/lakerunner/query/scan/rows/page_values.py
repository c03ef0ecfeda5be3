"""Decodes pages of the encodings that most columns of segments have: half the time that pyarrow takes for them.

These are flat columns of texts, integers and times: dictionaries, deltas, and texts behind their lengths, compressed
with zstd. `values_of` returns None for everything else, which `page_file.py` leaves to pyarrow. Pages are decompressed
one after another into the same piece of memory, and their values are copied from there once.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
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
    plain_texts,
    read_codes,
    read_deltas,
    read_lengths,
    read_levels,
    spread,
    total_lengths,
)

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

#: Numbers that Parquet gives to encodings and kinds of pages.
_PLAIN, _PLAIN_DICTIONARY, _RLE, _DELTA, _DELTA_LENGTH, _RLE_DICTIONARY, _BYTE_STREAM_SPLIT = 0, 2, 3, 5, 6, 8, 9
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_DICTIONARIES = (_PLAIN_DICTIONARY, _RLE_DICTIONARY)
_TEXT = pa.string()
_CODED_TEXT = pa.dictionary(pa.int32(), pa.string())
_INTEGERS: dict[pa.DataType, type[np.signedinteger[Any]]] = {
    pa.int64(): np.int64,
    pa.int32(): np.int32,
    pa.int16(): np.int16,
}
#: Texts of an array are counted in 32 bits.
_MAX_BYTES = (1 << 31) - 1
_of_thread = threading.local()


class _Unusual(Exception):
    """The pages are valid, but not of the kinds that are read here."""


def values_of(field: pa.Field, leaf: LeafBytes, rows: int) -> pa.Array | None:
    """The values of pages that hold this many rows; None if pyarrow must decode them. ValueError: bytes are damaged."""
    chunk = leaf.chunk
    if not leaf.is_flat or chunk.compression not in ("ZSTD", "UNCOMPRESSED") or not rows:
        return None
    read = _reader_of(field.type, chunk.physical_type)
    if read is None or chunk.total_uncompressed_size > _MAX_BYTES:
        return None
    try:
        return read(field.type, _Pages(leaf, rows))
    except _Unusual:
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


@dataclass(slots=True)
class _Page:
    """A page that was decompressed: `data[begin:end]` are its values, `rows` its rows, `present` those with a value."""

    data: Bytes
    begin: int
    end: int
    row: int
    rows: int
    present: int
    encoding: int


class _Pages:
    """The pages of a leaf, and which rows have a value."""

    def __init__(self, leaf: LeafBytes, rows: int) -> None:
        self._leaf, self.rows = leaf, rows
        self._bodies = [(body, page_heads(np.frombuffer(body, np.uint8))) for body in leaf.pages]
        sizes = [int(heads[:, PAGE_BYTES].sum()) for _, heads in self._bodies]
        self.size_bytes = sum(sizes)
        if self.size_bytes > leaf.chunk.total_uncompressed_size:
            raise ValueError("pages are larger than their column")
        if any((heads[:, KIND] != _DATA_PAGE).any() for _, heads in self._bodies):
            raise _Unusual
        largest = max((int(heads[:, PAGE_BYTES].max(initial=0)) for _, heads in self._bodies), default=0)
        self._scratch = np.empty(largest + SLACK_BYTES, np.uint8)
        self._present = np.ones(rows, np.uint8)
        self.nulls = 0

    def encoded(self, *encodings: int) -> Iterator[_Page]:
        """The data pages, one at a time: the next one replaces the bytes of the one before it."""
        if any(int(each) not in encodings for _, heads in self._bodies for each in heads[:, ENCODING]):
            raise _Unusual
        row = 0
        for body, heads in self._bodies:
            for head in heads.tolist():
                rows, size = head[VALUES], head[PAGE_BYTES]
                if row + rows > self.rows or rows < 0:
                    raise ValueError("pages hold more rows than they should")
                self._unpack(body, head, self._scratch)
                begin, present = 0, rows
                if self._leaf.is_optional:
                    if head[LEVELS] != _RLE:
                        raise _Unusual
                    begin, present = read_levels(self._scratch, size, rows, self._present[row : row + rows])
                    self.nulls += rows - present
                yield _Page(self._scratch, begin, size, row, rows, present, head[ENCODING])
                row += rows
        if row != self.rows:
            raise ValueError(f"pages hold {row} rows instead of {self.rows}")

    def present(self, page: _Page) -> Bytes:
        return self._present[page.row : page.row + page.rows]

    def dictionary(self) -> tuple[Bytes, int, int]:
        """The bytes of the dictionary, how many of them count, and the number of its values."""
        body = self._leaf.dictionary
        heads = page_heads(np.frombuffer(body, np.uint8)) if body else np.zeros((0, 0), np.int64)
        if len(heads) != 1 or heads[0, KIND] != _DICTIONARY_PAGE:
            raise _Unusual
        head = heads[0].tolist()
        if head[ENCODING] not in (_PLAIN, _PLAIN_DICTIONARY):
            raise _Unusual
        if head[PAGE_BYTES] > self._leaf.chunk.total_uncompressed_size:
            raise ValueError("a dictionary is larger than its column")
        found = np.empty(head[PAGE_BYTES] + SLACK_BYTES, np.uint8)
        self._unpack(body, head, found)
        return found, head[PAGE_BYTES], head[VALUES]

    @property
    def has_dictionary(self) -> bool:
        return bool(self._leaf.dictionary)

    @property
    def is_wide(self) -> bool:
        """Whether integers are stored with 64 bits."""
        return bool(self._leaf.chunk.physical_type == "INT64")

    def validity(self) -> pa.Buffer | None:
        return pa.py_buffer(np.packbits(self._present, bitorder="little")) if self.nulls else None

    def _unpack(self, body: bytes, head: list[int], into: Bytes) -> None:
        packed = memoryview(body)[head[AT] : head[AT] + head[PACKED_BYTES]]
        if len(packed) != head[PACKED_BYTES]:
            raise ValueError("a page is cut off")
        if head[HAS_CRC] and zlib.crc32(packed) != head[CRC] & 0xFFFFFFFF:
            raise ValueError("the checksum (CRC) of a page is wrong")
        size = head[PAGE_BYTES]
        if self._leaf.chunk.compression == "UNCOMPRESSED":
            if len(packed) != size:
                raise ValueError("a page has another size than its head says")
            into[:size] = np.frombuffer(packed, np.uint8)
            return
        with _decompressor().stream_reader(packed) as reader:
            if size and reader.readinto(into[:size].data) != size:
                raise ValueError("a page is shorter than its head says")


def _decompressor() -> zstandard.ZstdDecompressor:
    """The decompressor of this thread: making one costs more than decompressing a small page."""
    found = getattr(_of_thread, "decompressor", None)
    if found is None:
        found = _of_thread.decompressor = zstandard.ZstdDecompressor()
    return found


def _texts(kind: pa.DataType, pages: _Pages) -> pa.Array:
    # From Arrow's pool, which keeps what it freed: fresh memory would cost page faults.
    buffer, offset_buffer = pa.allocate_buffer(pages.size_bytes), pa.allocate_buffer(4 * (pages.rows + 1))
    data, offsets = np.frombuffer(buffer, np.uint8), np.frombuffer(offset_buffer, np.int32)
    offsets[0] = used = 0
    for page in pages.encoded(_DELTA_LENGTH):
        lengths = np.empty(page.present, np.int64)
        begin = read_lengths(page.data, page.begin, page.end, lengths)
        size = total_lengths(lengths, used, pages.present(page), offsets[page.row : page.row + page.rows + 1])
        if size < 0 or begin + size > page.end:
            raise ValueError("texts are longer than their page")
        data[used : used + size] = page.data[begin : begin + size]
        used += size
    return pa.Array.from_buffers(
        kind, pages.rows, [pages.validity(), offset_buffer, buffer.slice(0, used)], pages.nulls
    )


def _coded_texts(kind: pa.DataType, pages: _Pages) -> pa.Array:
    body, size, count = pages.dictionary()
    codes = _codes(pages, count)
    numbers = np.frombuffer(codes, np.int32)
    # Few rows of a group have few of its words: then only those are copied.
    is_cut = pages.rows < count
    places = np.zeros(count, np.int32) if is_cut else np.ones(count, np.int32)
    if is_cut:
        places[numbers] = 1
    words = int(places.sum())
    offsets, data = np.empty(words + 1, np.int32), np.empty(size + SLACK_BYTES, np.uint8)
    used = plain_texts(body, size, places, offsets, data)
    if used < 0:
        raise ValueError("a dictionary is damaged")
    texts = pa.Array.from_buffers(kind.value_type, words, [None, pa.py_buffer(offsets), pa.py_buffer(data)[:used]], 0)
    if is_cut:
        codes = pa.py_buffer(places[numbers])
    indices = pa.Array.from_buffers(kind.index_type, pages.rows, [pages.validity(), codes], pages.nulls)
    return pa.DictionaryArray.from_arrays(indices, texts)


def _codes(pages: _Pages, count: int) -> pa.Buffer:
    buffer = pa.allocate_buffer(4 * pages.rows)
    codes = np.frombuffer(buffer, np.int32)
    for page in pages.encoded(*_DICTIONARIES):
        of_page = codes[page.row : page.row + page.rows]
        if page.present and not read_codes(page.data, page.begin, page.end, count, of_page[: page.present]):
            raise ValueError("a page names values that its dictionary lacks")
        if page.present < page.rows:
            spread(of_page, pages.present(page), page.present)
    return buffer


def _integers(kind: pa.DataType, pages: _Pages) -> pa.Array:
    dtype = _INTEGERS.get(kind, np.int64)
    if pages.has_dictionary:
        values = _named_integers(pages, dtype)
    else:
        buffer = pa.allocate_buffer(8 * pages.rows)
        found = np.frombuffer(buffer, np.int64)
        for page in pages.encoded(_DELTA):
            of_page = found[page.row : page.row + page.rows]
            if page.present:
                read_deltas(page.data, page.begin, page.end, of_page[: page.present])
            if page.present < page.rows:
                spread(of_page, pages.present(page), page.present)
        values = buffer if dtype is np.int64 else pa.py_buffer(found.astype(dtype))
    return pa.Array.from_buffers(kind, pages.rows, [pages.validity(), values], pages.nulls)


def _doubles(kind: pa.DataType, pages: _Pages) -> pa.Array:
    if pages.has_dictionary:
        raise _Unusual
    buffer = pa.allocate_buffer(8 * pages.rows)
    found = np.frombuffer(buffer, np.float64)
    for page in pages.encoded(_BYTE_STREAM_SPLIT):
        if page.end - page.begin != 8 * page.present:
            raise ValueError("a page has another size than its values")
        of_page = found[page.row : page.row + page.rows]
        # The first bytes of all values, then the second ones, and so on.
        columns = page.data[page.begin : page.end].reshape(8, page.present)
        of_page[: page.present].view(np.uint8).reshape(page.present, 8)[:] = columns.T
        if page.present < page.rows:
            spread(of_page, pages.present(page), page.present)
    return pa.Array.from_buffers(kind, pages.rows, [pages.validity(), buffer], pages.nulls)


def _named_integers(pages: _Pages, dtype: type[np.signedinteger[Any]]) -> pa.Buffer:
    body, size, count = pages.dictionary()
    words = np.frombuffer(body[:size], np.int64 if pages.is_wide else np.int32)
    if len(words) != count:
        raise ValueError("a dictionary is damaged")
    codes = np.frombuffer(_codes(pages, count), np.int32)
    if not count:
        return pa.py_buffer(np.zeros(pages.rows, dtype))
    buffer = pa.allocate_buffer(np.dtype(dtype).itemsize * pages.rows)
    words.astype(dtype, copy=False).take(codes, out=np.frombuffer(buffer, dtype), mode="clip")
    return buffer
