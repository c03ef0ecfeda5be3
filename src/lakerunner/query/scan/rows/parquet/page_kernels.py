"""Compiled loops over the bytes of Parquet pages: heads, levels, deltas, and codes of dictionaries.

Every kernel checks that what it reads lies in its page, and raises or says so where it does not. Values are unpacked
eight bytes at a time, so a buffer must have `SLACK_BYTES` more than its pages.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from lakerunner.query.scan.rows.parquet.thrift import field_head, signed, skip, varint

SLACK_BYTES = 16
#: What is known of a page, by column of `page_heads`.
KIND, PAGE_BYTES, PACKED_BYTES, CRC, HAS_CRC, VALUES, ENCODING, LEVELS, ADDRESS = range(9)
PARTS = 9
#: The number that Parquet gives to data pages.
_DATA_PAGE = 0
#: Parquet counts in 32 bits with a sign.
_MAX_SIZE = (1 << 31) - 1
_MAX_WIDTH = 64
#: Values of this many bits lie in eight bytes, wherever they begin.
_SHORT_WIDTH = 57


# With the interpreter's lock: another thread would take it for longer than this takes.
@njit(cache=True, boundscheck=True)
def page_heads(body):  # type: ignore[no-untyped-def]
    """One row per page: its kind, sizes, checksum, number of values, encodings, and the address of its bytes."""
    found = np.zeros((16, PARTS), np.int64)
    count, at = 0, 0
    while at < len(body):
        if count == len(found):
            grown = np.zeros((2 * count, PARTS), np.int64)
            grown[:count] = found
            found = grown
        head = found[count]
        last = 0
        while True:
            last, kind, at = field_head(body, at, last)
            if kind == 0:
                break
            if kind == 5 and last <= 4:
                value, at = signed(body, at)
                head[last - 1] = value
                if last == 4:
                    head[HAS_CRC] = 1
            elif kind == 12 and (last == 5 or last == 7):
                inner = 0
                while True:
                    inner, kind, at = field_head(body, at, inner)
                    if kind == 0:
                        break
                    if kind == 5 and inner <= 3:
                        value, at = signed(body, at)
                        head[VALUES + inner - 1] = value
                    else:
                        at = skip(body, at, kind)
            else:
                at = skip(body, at, kind)
        head[ADDRESS] = body.ctypes.data + at
        for size in (head[PACKED_BYTES], head[PAGE_BYTES], head[VALUES]):
            # Sums of larger ones could pass the end of 64 bits, and so every check.
            if size < 0 or size > _MAX_SIZE:
                raise ValueError("a page has an impossible size")
        if at + head[PACKED_BYTES] > len(body):
            raise ValueError("a page is cut off")
        at += head[PACKED_BYTES]
        count += 1
    return found[:count]


@njit(cache=True)
def totals_of(heads, encoding, other_encoding, levels):  # type: ignore[no-untyped-def]
    """Of data pages: the bytes and values of all of them, the bytes of the largest, and whether all are usual.

    These have one of two encodings, and this one of levels; -1: they have no levels.
    """
    size, values, largest, usual = 0, 0, 0, True
    for number in range(len(heads)):
        head = heads[number]
        size += head[PAGE_BYTES]
        values += head[VALUES]
        largest = max(largest, head[PAGE_BYTES])
        usual &= head[KIND] == _DATA_PAGE and (levels < 0 or head[LEVELS] == levels)
        usual &= head[ENCODING] == encoding or head[ENCODING] == other_encoding
    return size, values, largest, usual


@njit(cache=True, nogil=True, inline="always")
def load(body, at):  # type: ignore[no-untyped-def]
    """Eight bytes as a number. With unsigned places the compiler makes one load of it."""
    found = np.uint64(0)
    for i in range(8):
        found |= np.uint64(body[at + np.uint64(i)]) << np.uint64(8 * i)
    return found


@njit(cache=True, nogil=True, inline="always")
def _bits(body, bit, width, mask):  # type: ignore[no-untyped-def]
    """The number of so many bits at a place that counts bits."""
    at, shift = bit >> np.uint64(3), bit & np.uint64(7)
    found = load(body, at) >> shift
    if shift + width > np.uint64(64):
        found |= np.uint64(body[at + np.uint64(8)]) << (np.uint64(64) - shift)
    return found & mask


@njit(cache=True, nogil=True)
def _mask(width):  # type: ignore[no-untyped-def]
    return np.uint64(0xFFFFFFFFFFFFFFFF) if width >= 64 else (np.uint64(1) << np.uint64(width)) - np.uint64(1)


@njit(cache=True, nogil=True)
def _read_hybrid(body, at, end, width, out):  # type: ignore[no-untyped-def]
    """Runs of equal values and packed ones, as many as `out` takes. False if the page ends before."""
    done, count = 0, len(out)
    value_bytes = (width + 7) // 8
    mask = _mask(width)
    while done < count:
        if at >= end:
            return False
        head, at = varint(body, at)
        if head & 1:
            groups = head >> 1
            if groups <= 0 or groups > (end - at) or at + groups * width > end:
                return False
            number = min(groups * 8, count - done)
            bit, step = np.uint64(at) << np.uint64(3), np.uint64(width)
            for i in range(number):
                # Widths are at most 31 here, so that eight bytes have all bits of a value.
                out[done + i] = (load(body, bit >> np.uint64(3)) >> (bit & np.uint64(7))) & mask
                bit += step
            at += groups * width
        else:
            number = head >> 1
            if number <= 0 or at + value_bytes > end:
                return False
            number = min(number, count - done)
            value = np.int64(0)
            for i in range(value_bytes):
                value |= np.int64(body[at + i]) << (8 * i)
            out[done : done + number] = value
            at += value_bytes
        done += number
    return True


@njit(cache=True, nogil=True)
def _unsigned(body, at, end):  # type: ignore[no-untyped-def]
    """A number of up to 64 bits in groups of seven; the place after it is -1 if the page ends before."""
    value, shift = np.uint64(0), 0
    while at < end and shift < 64:
        byte = np.uint64(body[at])
        at += 1
        value |= (byte & np.uint64(0x7F)) << np.uint64(shift)
        shift += 7
        if byte < np.uint64(0x80):
            return value, at
    return value, -1


@njit(cache=True, nogil=True)
def read_levels(body, end, rows, present):  # type: ignore[no-untyped-def]
    """Which rows have a value. Returns where the values begin, and how many there are. `present` has ones before."""
    if end < 4:
        raise ValueError("levels are cut off")
    size = np.int64(0)
    for i in range(4):
        size |= np.int64(body[i]) << (8 * i)
    if size < 0 or 4 + size > end:
        raise ValueError("levels are cut off")
    # Nearly always it is one run of ones: its length, doubled, in up to five bytes, and a byte of its value.
    run, at = _unsigned(body, 4, 4 + size)
    if at == 3 + size and run & np.uint64(1) == 0 and np.int64(run >> np.uint64(1)) >= rows and body[at] == 1:
        return 4 + size, rows
    if not _read_hybrid(body, 4, 4 + size, 1, present):
        raise ValueError("levels are damaged")
    total = 0
    for i in range(rows):
        total += present[i]
    return 4 + size, total


@njit(cache=True, nogil=True)
def read_codes(body, begin, end, words, out):  # type: ignore[no-untyped-def]
    """Codes of a dictionary with this many words; False if the page ends before, or has another code."""
    if begin >= end:
        return False
    width = int(np.int64(body[begin]))
    if width > 31 or not _read_hybrid(body, begin + 1, end, width, out):
        return False
    least, most = 0, 0
    for i in range(len(out)):
        least, most = min(least, out[i]), max(most, out[i])
    return least >= 0 and most < words


@njit(cache=True, nogil=True)
def _zigzag(value):  # type: ignore[no-untyped-def]
    return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1))


@njit(cache=True, nogil=True)
def read_deltas(body, begin, end, out):  # type: ignore[no-untyped-def]
    """Numbers stored as differences, as many as `out` takes, which is at least one.

    Returns where they end; -1 if the page ends before.
    """
    block, at = _unsigned(body, begin, end)
    if at < 0:
        return -1
    minis, at = _unsigned(body, at, end)
    if at < 0:
        return -1
    total, at = _unsigned(body, at, end)
    if at < 0:
        return -1
    first, at = _unsigned(body, at, end)
    if at < 0 or minis == 0 or minis > 512 or block == 0 or block > 1 << 20 or block % (minis * np.uint64(8)) != 0:
        raise ValueError("deltas are damaged")
    if total != np.uint64(len(out)):
        raise ValueError("a page has another number of deltas than of values")
    per_mini, number_of_minis = np.int64(block // minis), np.int64(minis)
    value = _zigzag(first)
    out[0] = value
    done = 1
    while done < len(out):
        least, at = _unsigned(body, at, end)
        if at < 0 or at + number_of_minis > end:
            return -1
        smallest = _zigzag(least)
        widths = at
        at += number_of_minis
        for mini in range(number_of_minis):
            if done >= len(out):
                break
            width = np.int64(body[widths + mini])
            if width > _MAX_WIDTH:
                raise ValueError("deltas are damaged")
            if at + width * per_mini // 8 > end:
                return -1
            number: Any = min(per_mini, len(out) - done)
            mask, bit, step = _mask(width), np.uint64(at) << np.uint64(3), np.uint64(width)
            if width == 0:
                for i in range(number):
                    value += smallest
                    out[done + i] = value
            elif width <= _SHORT_WIDTH:
                for i in range(number):
                    packed = (load(body, bit >> np.uint64(3)) >> (bit & np.uint64(7))) & mask
                    value += smallest + np.int64(packed)
                    out[done + i] = value
                    bit += step
            else:
                for i in range(number):
                    value += smallest + np.int64(_bits(body, bit, step, mask))
                    out[done + i] = value
                    bit += step
            at += width * per_mini // 8
            done += number
    return at


@njit(cache=True, nogil=True)
def total_lengths(lengths, present, ends):  # type: ignore[no-untyped-def]
    """Write where each text ends, and return the bytes of all of them; -1 if a length is negative or too large."""
    at, place = np.int64(0), 0
    for i in range(len(present)):
        if present[i]:
            if lengths[place] < 0 or lengths[place] > 1 << 31:
                return -1
            at += lengths[place]
            place += 1
        ends[i + 1] = at
    return at if at < 1 << 31 else -1


@njit(cache=True, nogil=True)
def spread(values, present, count):  # type: ignore[no-untyped-def]
    """Move the first `count` values to the rows that have one. Other rows get 0."""
    place = count - 1
    for i in range(len(present) - 1, -1, -1):
        if present[i]:
            values[i] = values[place]
            place -= 1
        else:
            values[i] = 0
