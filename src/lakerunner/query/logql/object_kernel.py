"""Writes labels as JSON objects, byte by byte in machine code: one object per entry, its labels in the given order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
from numba import njit

from lakerunner.model.text_bytes import read_only, text_bytes

_OPEN, _CLOSE, _QUOTE, _BACKSLASH, _SPACE = ord("{"), ord("}"), ord('"'), ord("\\"), 32
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_UNICODE = np.frombuffer(b"\\u00", np.uint8)
#: Control character -> the letter of its short escape; 0 where it has none.
_SHORT = np.zeros(32, np.uint8)
for _byte, _letter in ((8, "b"), (9, "t"), (10, "n"), (12, "f"), (13, "r")):
    _SHORT[_byte] = ord(_letter)


def objects(names: tuple[str, ...], columns: Sequence[pa.StringArray], *, empty: bool) -> pa.StringArray:
    """For every entry, an object of its labels. A null is no label; nor is an empty text, unless `empty`."""
    rows = len(columns[0])
    texts = pa.concat_arrays(columns) if len(columns) > 1 else columns[0]
    body, places = text_bytes(texts)
    # Without nulls, there may be no bitmap.
    present = read_only(texts.buffers()[0] if texts.null_count else None, np.uint8)
    heads, head_offsets = _heads(names)
    sizes = np.zeros(rows + 1, np.int32)
    arguments = body, places, present, texts.offset, empty, heads, head_offsets
    total = _sizes(*arguments, sizes)
    out = np.empty(total, np.uint8)
    _write(*arguments, sizes, out)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(sizes), pa.py_buffer(out))


@lru_cache(maxsize=256)
def _heads(names: tuple[str, ...]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """`,"name":` of every label, and where each begins."""
    heads = [b"," + orjson.dumps(name) + b":" for name in names]
    joined = np.frombuffer(b"".join(heads), np.uint8)
    return joined, np.cumsum([0, *map(len, heads)], dtype=np.int64)


@njit(cache=True, nogil=True)
def _has(places, present, first, empty, text):  # type: ignore[no-untyped-def]
    if len(present) and not present[(first + text) >> 3] >> ((first + text) & 7) & 1:
        return False
    return empty or places[text + 1] > places[text]


@njit(cache=True, nogil=True)
def _sizes(data, places, present, first, empty, heads, head_offsets, sizes):  # type: ignore[no-untyped-def]
    """Fill in where each object begins. Returns the length of all."""
    rows, total = len(sizes) - 1, 0
    for row in range(rows):
        sizes[row] = total
        size = 1
        for column in range(len(head_offsets) - 1):
            text = column * rows + row
            if not _has(places, present, first, empty, text):
                continue
            size += head_offsets[column + 1] - head_offsets[column] + 2 + places[text + 1] - places[text]
            for at in range(places[text], places[text + 1]):
                byte = data[at]
                if byte in (_QUOTE, _BACKSLASH):
                    size += 1
                elif byte < _SPACE:
                    size += 1 if _SHORT[byte] else 5
        # The first label has no comma before it.
        total += size + (0 if size > 1 else 1)
    sizes[rows] = total
    return total


@njit(cache=True, nogil=True)
def _write(data, places, present, first, empty, heads, head_offsets, sizes, out):  # type: ignore[no-untyped-def]
    rows = len(sizes) - 1
    for row in range(rows):
        at = sizes[row]
        for column in range(len(head_offsets) - 1):
            text = column * rows + row
            if not _has(places, present, first, empty, text):
                continue
            for i in range(head_offsets[column], head_offsets[column + 1]):
                out[at] = heads[i]
                at += 1
            out[at] = _QUOTE
            at += 1
            for i in range(places[text], places[text + 1]):
                byte = data[i]
                if byte >= _SPACE and byte != _QUOTE and byte != _BACKSLASH:
                    out[at] = byte
                    at += 1
                elif byte >= _SPACE or _SHORT[byte]:
                    out[at] = _BACKSLASH
                    out[at + 1] = byte if byte >= _SPACE else _SHORT[byte]
                    at += 2
                else:
                    for j in range(4):
                        out[at + j] = _UNICODE[j]
                    out[at + 4], out[at + 5] = _HEX[byte >> 4], _HEX[byte & 15]
                    at += 6
            out[at] = _QUOTE
            at += 1
        if at == sizes[row]:
            at += 1
        # Instead of the comma of the first label.
        out[sizes[row]] = _OPEN
        out[at] = _CLOSE
