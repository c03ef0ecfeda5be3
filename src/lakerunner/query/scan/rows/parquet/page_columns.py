"""Compiled loops over the pages of a column: each page is checked, decompressed into the same memory, and read.

One call reads all pages, so that threads hardly wait for the interpreter's lock. `zstd` is that of the thread
(`zstd_calls.py`), or zeros for pages that are not compressed; `into` is memory for the largest page, `SLACK_BYTES` more
than it needs; `present` says which rows have a value, and holds ones before.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from lakerunner.model.byte_copy import put_bytes
from lakerunner.query.scan.rows.parquet.addresses import bytes_at
from lakerunner.query.scan.rows.parquet.checksum import checksum
from lakerunner.query.scan.rows.parquet.page_kernels import (
    ADDRESS,
    CRC,
    HAS_CRC,
    PACKED_BYTES,
    PAGE_BYTES,
    PARTS,
    VALUES,
    load,
    read_codes,
    read_deltas,
    read_levels,
    spread,
    total_lengths,
)
from lakerunner.query.scan.rows.parquet.zstd_calls import NO_ZSTD, begin_stream, decompress, decompress_until

#: If more of the rows of a page are needed, it is decompressed at once, which is faster per byte.
_MOST_OF_PAGE = 0.7
#: What is decompressed beyond the share of a page that its rows are: lengths come first, and rows differ.
_SPARE_SHARE, _SPARE_BYTES = 0.05, 16 << 10


@njit(cache=True, nogil=True)
def unpack(zstd, head, into, ready, progress):  # type: ignore[no-untyped-def]
    """Check a page, and decompress at least its first `ready` bytes. `progress` says how many are there."""
    packed, size = head[PACKED_BYTES], head[PAGE_BYTES]
    body = bytes_at(head[ADDRESS], packed)
    if head[HAS_CRC] and checksum(body, 0, packed) != head[CRC] & 0xFFFFFFFF:
        raise ValueError("the checksum (CRC) of a page is wrong")
    if zstd[0] == 0:
        if packed != size:
            raise ValueError("a page has another size than its head says")
        put_bytes(body, 0, packed, into, 0)
        progress[0] = size
    elif ready >= size:
        if decompress(zstd, body, 0, packed, into, size) != size:
            raise ValueError("a page is damaged: it cannot be decompressed to the size that its head says")
        progress[0] = size
    else:
        begin_stream(zstd, progress)
        fill(zstd, head, into, ready, progress)


@njit(cache=True, nogil=True)
def fill(zstd, head, into, until, progress):  # type: ignore[no-untyped-def]
    """Decompress more of a page, so that these bytes are there; all of it if they are more than it has."""
    until = min(until, head[PAGE_BYTES])
    body = bytes_at(head[ADDRESS], head[PACKED_BYTES])
    if progress[0] < until and not decompress_until(zstd, body, 0, len(body), into, until, progress):
        raise ValueError("a page is damaged: it cannot be decompressed to the size that its head says")


@njit(cache=True, nogil=True)
def _open(zstd, head, is_optional, into, ready, progress, present):  # type: ignore[no-untyped-def]
    """Where the values of a page begin, and how many there are."""
    unpack(zstd, head, into, ready, progress)
    if not is_optional:
        return np.int64(0), head[VALUES]
    # Runs of levels take few bytes; should they take more than are there, all are needed.
    fill(zstd, head, into, 4, progress)
    fill(zstd, head, into, 4 + np.int64(load(into, np.uint64(0)) & np.uint64(0xFFFFFFFF)), progress)
    return read_levels(into, progress[0], head[VALUES], present)


@njit(cache=True, nogil=True)
def code_pages(zstd, heads, is_optional, into, words, codes, present):  # type: ignore[no-untyped-def]
    """The codes of a dictionary with so many words. Returns the number of values."""
    progress, row, total = np.zeros(2, np.int64), 0, 0
    for number in range(len(heads)):
        head = heads[number]
        rows, size = head[VALUES], head[PAGE_BYTES]
        begin, count = _open(zstd, head, is_optional, into, size, progress, present[row : row + rows])
        if count and not read_codes(into, begin, size, words, codes[row : row + count]):
            raise ValueError("a page names values that its dictionary lacks")
        if count < rows:
            spread(codes[row : row + rows], present[row : row + rows], count)
        row += rows
        total += count
    return total


@njit(cache=True, nogil=True)
def delta_pages(zstd, heads, is_optional, into, numbers, present):  # type: ignore[no-untyped-def]
    """Numbers that are stored as differences. Returns how many there are."""
    progress, row, total = np.zeros(2, np.int64), 0, 0
    for number in range(len(heads)):
        head = heads[number]
        rows, size = head[VALUES], head[PAGE_BYTES]
        begin, count = _open(zstd, head, is_optional, into, size, progress, present[row : row + rows])
        if count and read_deltas(into, begin, size, numbers[row : row + count]) < 0:
            raise ValueError("deltas are cut off")
        if count < rows:
            spread(numbers[row : row + rows], present[row : row + rows], count)
        row += rows
        total += count
    return total


@njit(cache=True, nogil=True)
def double_pages(zstd, heads, is_optional, into, doubles, present):  # type: ignore[no-untyped-def]
    """Floats that are stored by byte: the first bytes of all values, then the second ones, and so on."""
    progress, row, total = np.zeros(2, np.int64), 0, 0
    for number in range(len(heads)):
        head = heads[number]
        rows, size = head[VALUES], head[PAGE_BYTES]
        begin, count = _open(zstd, head, is_optional, into, size, progress, present[row : row + rows])
        if size - begin != 8 * count:
            raise ValueError("a page has another size than its values")
        bits = doubles[row : row + count].view(np.uint64)
        start, step = np.uint64(begin), np.uint64(count)
        for place in range(count):
            value = np.uint64(0)
            for byte in range(8):
                at = start + np.uint64(byte) * step + np.uint64(place)
                value |= np.uint64(into[at]) << np.uint64(8 * byte)
            bits[place] = value
        if count < rows:
            spread(doubles[row : row + rows], present[row : row + rows], count)
        row += rows
        total += count
    return total


@njit(cache=True, nogil=True)
def text_page(zstd, head, is_optional, into, last, present, ends):  # type: ignore[no-untyped-def]
    """Open a page of texts behind their lengths. Those before the row `last` are decompressed.

    Returns where the texts begin, and how many there are. `ends` gets where each of them ends after that.
    """
    rows, size = head[VALUES], head[PAGE_BYTES]
    progress = np.zeros(2, np.int64)
    share = last / max(rows, 1)
    ready = size if share > _MOST_OF_PAGE else min(size, np.int64(size * (share + _SPARE_SHARE)) + _SPARE_BYTES)
    begin, count = _open(zstd, head, is_optional, into, ready, progress, present)
    lengths = np.empty(count, np.int64)
    at = read_deltas(into, begin, progress[0], lengths) if count else begin
    if at < 0 and progress[0] < size:
        fill(zstd, head, into, size, progress)
        at = read_deltas(into, begin, size, lengths)
    if at < 0:
        raise ValueError("lengths are cut off")
    ends[0] = 0
    total = total_lengths(lengths, present, ends)
    if total < 0 or at + total > size:
        raise ValueError("texts are longer than their page")
    fill(zstd, head, into, at + ends[last], progress)
    return at, count


@njit(cache=True, nogil=True)
def text_pages(zstd, heads, is_optional, into, begin, end, present, offsets, used, data):  # type: ignore[no-untyped-def]
    """Copy the texts of the rows from `begin` up to `end` to `data`, from `used` on, and write where they end.

    Returns how many texts the pages have that hold these rows, and how many bytes of `data` are used then.
    """
    most = 0
    for number in range(len(heads)):
        most = max(most, heads[number, VALUES])
    ends = np.empty(most + 1, np.int32)
    row, total = 0, 0
    for number in range(len(heads)):
        head = heads[number]
        rows = head[VALUES]
        first, last = max(begin - row, 0), min(end - row, rows)
        if first < last:
            of_page = present[row : row + rows]
            at, count = text_page(zstd, head, is_optional, into, last, of_page, ends[: rows + 1])
            low = ends[first]
            place = row + first - begin
            for i in range(first, last):
                offsets[place + i - first + 1] = used + ends[i + 1] - low
            used = put_bytes(into, at + low, at + ends[last], data, used)
            total += count
        else:
            total += rows
        row += rows
    return total, used


@njit(cache=True, nogil=True)
def size_of(ends, rows):  # type: ignore[no-untyped-def]
    """The bytes of the texts of these rows."""
    size = 0
    for row in rows:
        size += ends[row + 1] - ends[row]
    return size


@njit(cache=True, nogil=True)
def put_texts(texts, at, ends, rows, data, used, new_ends):  # type: ignore[no-untyped-def]
    """Copy the texts of these rows to `data`, from `used` on, and write where they end. The first one is at `at`."""
    for i in range(len(rows)):
        used = put_bytes(texts, at + ends[rows[i]], at + ends[rows[i] + 1], data, used)
        new_ends[i] = used


@njit(cache=True, nogil=True)
def dictionary_texts(zstd, head, into, places, last, offsets, data):  # type: ignore[no-untyped-def]
    """The wanted words of a dictionary of texts, none of which is at `last` or later. Returns the bytes of them.

    `places` is not 0 for the words that are wanted, and gets their numbers among these; it is -1 for the others before
    `last`. `data` has `SLACK_BYTES` more than the page: words are copied eight bytes at a time.
    """
    progress = np.zeros(2, np.int64)
    size = head[PAGE_BYTES]
    share = last / max(len(places), 1)
    ready = size if share > _MOST_OF_PAGE else min(size, np.int64(size * (share + _SPARE_SHARE)) + _SPARE_BYTES)
    unpack(zstd, head, into, ready, progress)
    at, used, count = np.int64(0), np.int64(0), 0
    offsets[0] = 0
    for i in range(last):
        if at + 4 > progress[0]:
            fill(zstd, head, into, at + at // 2 + _SPARE_BYTES, progress)
        length = np.int64(load(into, np.uint64(at)) & np.uint64(0xFFFFFFFF))
        at += 4
        if at + length > size:
            raise ValueError("a dictionary is damaged")
        if at + length > progress[0]:
            fill(zstd, head, into, at + length + at // 2 + _SPARE_BYTES, progress)
        if places[i]:
            for j in range(0, length, 8):
                word = load(into, np.uint64(at + j))
                for k in range(8):
                    data[np.uint64(used + j + k)] = np.uint8((word >> np.uint64(8 * k)) & np.uint64(255))
            used += length
            places[i] = count
            count += 1
            offsets[count] = used
        else:
            places[i] = -1
        at += length
    return used


def warm() -> None:
    """Compile or load the kernels that are called for single pages; others are parts of larger ones."""
    # One empty text.
    body = np.frombuffer(b"\x80\x01\x04\x01\0", np.uint8)
    into, present, offsets = np.zeros(64, np.uint8), np.ones(1, np.uint8), np.zeros(2, np.int32)
    heads = np.zeros((1, PARTS), np.int64)
    heads[0, VALUES], heads[0, PAGE_BYTES], heads[0, PACKED_BYTES], heads[0, ADDRESS] = 1, 5, 5, body.ctypes.data
    text_page(NO_ZSTD, heads[0], False, into, 1, present, offsets)
    rows = np.zeros(1, np.int64)
    put_texts(into, size_of(offsets, rows), offsets, rows, into.copy(), 0, offsets[1:].copy())
