"""Compiled loops over the columns of a row group: several columns are read in two calls, however many there are.

A plan has one row per column. Python fills what is wanted (`FORM` to `LAST_BODY`); `measured` finds the pages and says
what memory the values need; Python fills the addresses of that memory; `read_columns` decompresses and decodes, without
the interpreter's lock, and says what it found (`NULLS` to `KEPT_WORDS`).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from lakerunner.query.scan.rows.parquet.addresses import bytes_at
from lakerunner.query.scan.rows.parquet.page_columns import (
    code_pages,
    delta_pages,
    dictionary_texts,
    double_pages,
    text_pages,
    unpack,
)
from lakerunner.query.scan.rows.parquet.page_kernels import (
    ENCODING,
    KIND,
    PAGE_BYTES,
    PARTS,
    SLACK_BYTES,
    VALUES,
    page_heads,
    totals_of,
)
from lakerunner.query.scan.rows.parquet.zstd_calls import NO_ZSTD

#: Numbers that Parquet gives to encodings and kinds of pages.
PLAIN, PLAIN_DICTIONARY, RLE, DELTA, DELTA_LENGTH, RLE_DICTIONARY, BYTE_STREAM_SPLIT = 0, 2, 3, 5, 6, 8, 9
_DICTIONARY_PAGE = 2
#: A text begins with its length, and numbers of 32 bits are the smallest ones.
_LEAST_WORD_BYTES = 4
#: How the values of a column are stored.
TEXTS, CODED_TEXTS, INTEGERS, CODED_INTEGERS, DOUBLES = range(5)
_ENCODINGS = np.array(
    [
        (DELTA_LENGTH, DELTA_LENGTH),
        (PLAIN_DICTIONARY, RLE_DICTIONARY),
        (DELTA, DELTA),
        (PLAIN_DICTIONARY, RLE_DICTIONARY),
        (BYTE_STREAM_SPLIT, BYTE_STREAM_SPLIT),
    ],
    np.int64,
)
#: What is wanted: how values are stored; the bytes of a number, read and stored; whether values may be null, and are
#: compressed; the bytes that the footer says; the rows of the pages, and those that are wanted; the dictionary's place
#: among the bodies, -1 if there is none, and the places of those with the pages.
(FORM, WIDTH, STORED_WIDTH, IS_OPTIONAL, IS_PACKED, MOST_BYTES, ROWS, BEGIN, END, DICTIONARY, FIRST_BODY, LAST_BODY) = (
    range(12)
)
WANTED = 12
#: What is measured: whether the pages are of the kinds that are read here, the places of their heads, the bytes of the
#: values and of words, the number of words, and the bytes of the largest page.
IS_USUAL, FIRST_HEAD, LAST_HEAD, DICTIONARY_HEAD, SIZE, WORD_BYTES, WORDS, LARGEST = range(12, 20)
#: Addresses of memory for the result: bits of rows with a value; numbers, codes or offsets of texts; texts; offsets of
#: words.
VALIDITY, NUMBERS, TEXT, WORD_OFFSETS = range(20, 24)
#: The result: rows without a value, bytes of texts, words that rows have.
NULLS, USED, KEPT_WORDS = range(24, 27)
WIDTH_OF_PLAN = 27


# With the interpreter's lock: another thread would take it for longer than this takes.
@njit(cache=True)
def measured(plan, bodies):  # type: ignore[no-untyped-def]
    """The heads of all pages. `bodies` has the address and the length of bytes of the file."""
    heads, count = np.empty((4 * len(plan) + 8, PARTS), np.int64), 0
    for column in plan:
        form, size, values, largest, usual = column[FORM], 0, 0, 0, True
        encoding, other = _ENCODINGS[form, 0], _ENCODINGS[form, 1]
        column[FIRST_HEAD] = count
        for body in range(column[FIRST_BODY], column[LAST_BODY]):
            found = page_heads(bytes_at(bodies[body, 0], bodies[body, 1]))
            of_body = totals_of(found, encoding, other, RLE if column[IS_OPTIONAL] else -1)
            size, values, largest, usual = (
                size + of_body[0], values + of_body[1], max(largest, of_body[2]), usual and of_body[3],
            )  # fmt: skip
            heads, count = _appended(heads, count, found)
        column[LAST_HEAD] = column[DICTIONARY_HEAD] = count
        if column[DICTIONARY] >= 0:
            found = page_heads(bytes_at(bodies[column[DICTIONARY], 0], bodies[column[DICTIONARY], 1]))
            usual = usual and form in (CODED_TEXTS, CODED_INTEGERS) and _is_dictionary(found)
            if usual:
                column[WORD_BYTES], column[WORDS] = found[0, PAGE_BYTES], found[0, VALUES]
                largest = max(largest, found[0, PAGE_BYTES])
            heads, count = _appended(heads, count, found)
        elif form in (CODED_TEXTS, CODED_INTEGERS):
            usual = False
        column[IS_USUAL], column[SIZE], column[LARGEST] = usual, size, largest
        if usual:
            if size > column[MOST_BYTES] or column[WORD_BYTES] > column[MOST_BYTES]:
                raise ValueError("pages are larger than their column")
            if _LEAST_WORD_BYTES * column[WORDS] > column[WORD_BYTES]:
                raise ValueError("a dictionary has more words than fit into it")
            if values != column[ROWS]:
                raise ValueError("pages hold another number of rows than the index of pages says")
    return heads[:count]


@njit(cache=True)
def _is_dictionary(heads):  # type: ignore[no-untyped-def]
    if len(heads) != 1 or heads[0, KIND] != _DICTIONARY_PAGE:
        return False
    return heads[0, ENCODING] == PLAIN or heads[0, ENCODING] == PLAIN_DICTIONARY


@njit(cache=True)
def _appended(heads, count, more):  # type: ignore[no-untyped-def]
    if count + len(more) > len(heads):
        grown = np.empty((2 * (count + len(more)), PARTS), np.int64)
        grown[:count] = heads[:count]
        heads = grown
    heads[count : count + len(more)] = more
    return heads, count + len(more)


@njit(cache=True, nogil=True)
def read_columns(zstd, no_zstd, plan, heads, into):  # type: ignore[no-untyped-def]
    """Write the values of the wanted rows to the memory that the plan names.

    `zstd` is that of the thread (`zstd_calls.py`), `no_zstd` zeros; `into` is memory for the largest page, with
    `SLACK_BYTES` more than it needs.
    """
    for column in plan:
        if not column[IS_USUAL]:
            continue
        own = zstd if column[IS_PACKED] else no_zstd
        rows, begin, end = column[ROWS], column[BEGIN], column[END]
        pages, is_optional = heads[column[FIRST_HEAD] : column[LAST_HEAD]], column[IS_OPTIONAL] != 0
        present = np.ones(rows, np.uint8)
        if column[FORM] == TEXTS:
            offsets = bytes_at(column[NUMBERS], 4 * (end - begin + 1)).view(np.int32)
            offsets[0] = 0
            data = bytes_at(column[TEXT], column[SIZE])
            count, used = text_pages(own, pages, is_optional, into, begin, end, present, offsets, 0, data)
            column[USED] = used
        elif column[FORM] == CODED_TEXTS:
            count = _coded_texts(own, column, heads, into, present)
        elif column[FORM] == INTEGERS:
            count = _integers(own, column, pages, into, present)
        elif column[FORM] == CODED_INTEGERS:
            count = _coded_integers(own, column, heads, into, present)
        elif begin == 0 and end == rows:
            doubles = bytes_at(column[NUMBERS], 8 * rows).view(np.float64)
            count = double_pages(own, pages, is_optional, into, doubles, present)
        else:
            doubles = np.empty(rows, np.float64)
            count = double_pages(own, pages, is_optional, into, doubles, present)
            bytes_at(column[NUMBERS], 8 * (end - begin)).view(np.float64)[:] = doubles[begin:end]
        column[NULLS] = 0
        if count < rows:
            column[NULLS] = _put_validity(present, begin, end, bytes_at(column[VALIDITY], (end - begin + 7) // 8))


@njit(cache=True, nogil=True)
def _put_validity(present, begin, end, bits):  # type: ignore[no-untyped-def]
    """One bit per row, from the lowest of each byte on. Returns how many rows have no value."""
    nulls = 0
    bits[:] = 0
    for row in range(begin, end):
        place = row - begin
        if present[row]:
            bits[place >> 3] |= np.uint8(1) << np.uint8(place & 7)
        else:
            nulls += 1
    return nulls


@njit(cache=True, nogil=True)
def _coded_texts(zstd, column, heads, into, present):  # type: ignore[no-untyped-def]
    rows, begin, end, words = column[ROWS], column[BEGIN], column[END], column[WORDS]
    out = bytes_at(column[NUMBERS], 4 * (end - begin)).view(np.int32)
    codes = out if begin == 0 and end == rows else np.empty(rows, np.int32)
    pages = heads[column[FIRST_HEAD] : column[LAST_HEAD]]
    count = code_pages(zstd, pages, column[IS_OPTIONAL] != 0, into, words, codes, present)
    # Few rows of a group have few of its words: then only those are copied, and nothing is read behind the last one.
    is_cut = end - begin < words
    places = np.ones(words, np.int32)
    last = kept = words
    if is_cut:
        places[:] = 0
        last = kept = 0
        for row in range(begin, end):
            code = np.int64(codes[row])
            if not places[code]:
                places[code] = 1
                kept += 1
                last = max(last, code + 1)
    offsets = bytes_at(column[WORD_OFFSETS], 4 * (kept + 1)).view(np.int32)
    data = bytes_at(column[TEXT], column[WORD_BYTES] + SLACK_BYTES)
    column[USED] = dictionary_texts(zstd, heads[column[DICTIONARY_HEAD]], into, places, last, offsets, data)
    column[KEPT_WORDS] = kept
    if is_cut:
        for row in range(begin, end):
            out[row - begin] = places[codes[row]]
    elif end - begin < rows:
        out[:] = codes[begin:end]
    return count


@njit(cache=True, nogil=True)
def _integers(zstd, column, pages, into, present):  # type: ignore[no-untyped-def]
    rows, begin, end, width = column[ROWS], column[BEGIN], column[END], column[WIDTH]
    memory = bytes_at(column[NUMBERS], width * (end - begin))
    is_optional = column[IS_OPTIONAL] != 0
    if width == 8 and begin == 0 and end == rows:
        return delta_pages(zstd, pages, is_optional, into, memory.view(np.int64), present)
    numbers = np.empty(rows, np.int64)
    count = delta_pages(zstd, pages, is_optional, into, numbers, present)
    _put_numbers(numbers[begin:end], memory, width)
    return count


@njit(cache=True, nogil=True)
def _coded_integers(zstd, column, heads, into, present):  # type: ignore[no-untyped-def]
    rows, begin, end, width, words = column[ROWS], column[BEGIN], column[END], column[WIDTH], column[WORDS]
    if column[WORD_BYTES] != words * column[STORED_WIDTH]:
        raise ValueError("a dictionary is damaged")
    unpack(zstd, heads[column[DICTIONARY_HEAD]], into, column[WORD_BYTES], np.zeros(2, np.int64))
    values = np.empty(max(words, 1), np.int64)
    values[0] = 0
    if column[STORED_WIDTH] == 8:
        values[:words] = into[: 8 * words].view(np.int64)
    else:
        values[:words] = into[: 4 * words].view(np.int32)
    codes = np.empty(rows, np.int32)
    pages = heads[column[FIRST_HEAD] : column[LAST_HEAD]]
    count = code_pages(zstd, pages, column[IS_OPTIONAL] != 0, into, words, codes, present)
    memory = bytes_at(column[NUMBERS], width * (end - begin))
    if width == 8:
        wide = memory.view(np.int64)
        for row in range(begin, end):
            wide[row - begin] = values[codes[row]]
    elif width == 4:
        half = memory.view(np.int32)
        for row in range(begin, end):
            half[row - begin] = np.int32(values[codes[row]])
    else:
        short = memory.view(np.int16)
        for row in range(begin, end):
            short[row - begin] = np.int16(values[codes[row]])
    return count


@njit(cache=True, nogil=True)
def _put_numbers(numbers, memory, width):  # type: ignore[no-untyped-def]
    """Write numbers of so many bytes."""
    if width == 8:
        memory.view(np.int64)[:] = numbers
    elif width == 4:
        half = memory.view(np.int32)
        for i in range(len(numbers)):
            half[i] = np.int32(numbers[i])
    else:
        short = memory.view(np.int16)
        for i in range(len(numbers)):
            short[i] = np.int16(numbers[i])


def warm() -> None:
    """Compile or load the kernels."""
    plan = np.zeros((1, WIDTH_OF_PLAN), np.int64)
    plan[0, DICTIONARY] = -1
    heads = measured(plan, np.zeros((1, 2), np.int64))
    read_columns(NO_ZSTD, NO_ZSTD, plan[:0], heads, np.zeros(SLACK_BYTES, np.uint8))
