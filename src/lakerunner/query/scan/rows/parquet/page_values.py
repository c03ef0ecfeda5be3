"""Decodes pages of the encodings that most columns of segments have: half the time that pyarrow takes for them.

These are flat columns of texts, integers and times: dictionaries, deltas, and texts behind their lengths, compressed
with zstd. `columns_of` returns None for everything else, which `page_file.py` leaves to pyarrow. Kernels read all pages
of all columns in one call (`column_plans.py`). Values are copied once from the memory into which pages are
decompressed, or only tested there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakerunner.query.scan.rows.parquet import column_plans as plans
from lakerunner.query.scan.rows.parquet.page_bytes import Bytes, TextPages, Unusual, give_back, taken_scratch
from lakerunner.query.scan.rows.parquet.page_columns import put_texts, size_of, text_page
from lakerunner.query.scan.rows.parquet.page_file import LeafBytes
from lakerunner.query.scan.rows.parquet.page_kernels import SLACK_BYTES, VALUES
from lakerunner.query.scan.rows.parquet.zstd_calls import NO_ZSTD, zstd_of_thread

Mask = npt.NDArray[np.bool_]
T = TypeVar("T")

_TEXT = pa.string()
_CODED_TEXT = pa.dictionary(pa.int32(), pa.string())
_INT32 = pa.int32()
_INTEGERS = ((pa.int64(), 8), (pa.int32(), 4), (pa.uint32(), 4), (pa.int16(), 2))
#: Pages differ; with so much more room than the first one asks for, it seldom has to grow.
_SPARE = 1.1
#: Texts of an array are counted in 32 bits.
_MAX_BYTES = (1 << 31) - 1


class Form(NamedTuple):
    """How the values of a leaf are stored, and the bytes of a number in memory."""

    form: int
    width: int = 0


@dataclass(frozen=True, slots=True)
class Wanted:
    """Pages of a leaf that hold so many rows, and the rows from `begin` up to `end` of which the values are wanted."""

    kind: pa.DataType
    form: Form
    leaf: LeafBytes
    rows: int
    begin: int
    end: int


def form_of(kind: pa.DataType, leaf: LeafBytes) -> Form | None:
    """How the values are stored, if kernels can read that; None: pyarrow must decode them."""
    chunk = leaf.chunk
    if not leaf.is_flat or chunk.compression not in ("ZSTD", "UNCOMPRESSED"):
        return None
    if chunk.total_uncompressed_size > _MAX_BYTES:
        return None
    if chunk.physical_type == "BYTE_ARRAY":
        if kind == _CODED_TEXT:
            return Form(plans.CODED_TEXTS)
        return Form(plans.TEXTS) if kind == _TEXT else None
    if chunk.physical_type == "DOUBLE":
        return Form(plans.DOUBLES, 8) if kind == pa.float64() else None
    if chunk.physical_type not in ("INT32", "INT64"):
        return None
    form = plans.CODED_INTEGERS if leaf.dictionary else plans.INTEGERS
    if pa.types.is_timestamp(kind):
        return Form(form, 8) if kind.unit != "s" else None
    return next((Form(form, width) for integers, width in _INTEGERS if kind == integers), None)


def columns_of(wanted: Sequence[Wanted]) -> list[pa.Array | None]:
    """The values of each column; None where pyarrow must decode them. ValueError: bytes are damaged."""
    if not wanted:
        return []
    bodies: list[pa.Buffer] = []
    lines: list[tuple[int, ...]] = []
    for form, leaf, rows, begin, end in ((each.form, each.leaf, each.rows, each.begin, each.end) for each in wanted):
        chunk, dictionary = leaf.chunk, -1
        if leaf.dictionary:
            dictionary = len(bodies)
            bodies.append(pa.py_buffer(leaf.dictionary))
        first = len(bodies)
        bodies += map(pa.py_buffer, leaf.pages)
        stored_width = 8 if chunk.physical_type == "INT64" else 4
        is_packed = chunk.compression != "UNCOMPRESSED"
        lines.append(
            (*form, stored_width, leaf.is_optional, is_packed, chunk.total_uncompressed_size,
             rows, begin, end, dictionary, first, len(bodies))
        )  # fmt: skip
    plan = np.zeros((len(lines), plans.WIDTH_OF_PLAN), np.int64)
    plan[:, : plans.WANTED] = lines
    try:
        heads = plans.measured(plan, np.array([(body.address, body.size) for body in bodies], np.int64))
        memory = [_allocated(line) for line in plan.tolist()]
        plan[:, plans.VALIDITY : plans.NULLS] = [[0 if part is None else part.address for part in of] for of in memory]
        into = taken_scratch(int(plan[:, plans.LARGEST].max(initial=0)) + SLACK_BYTES)
        plans.read_columns(zstd_of_thread(), NO_ZSTD, plan, heads, into)
        give_back(into)
    except IndexError as reason:
        raise ValueError(f"a page is damaged: {reason}") from reason
    lengths = (each.end - each.begin for each in wanted)
    found = zip(wanted, lengths, plan.tolist(), memory, strict=True)
    return [_array(each.kind, length, line, parts) for each, length, line, parts in found]


#: Memory for bits of rows with a value; numbers, codes or offsets of texts; texts; offsets of words.
_Memory = tuple[pa.Buffer | None, pa.Buffer | None, pa.Buffer | None, pa.Buffer | None]


def _allocated(line: list[int]) -> _Memory:
    """Memory for the values of a column, from Arrow's pool, which keeps what it freed: fresh one costs page faults."""
    if not line[plans.IS_USUAL]:
        return None, None, None, None
    form, rows = line[plans.FORM], line[plans.END] - line[plans.BEGIN]
    validity = pa.allocate_buffer((rows + 7) >> 3) if line[plans.IS_OPTIONAL] else None
    if form == plans.TEXTS:
        return validity, pa.allocate_buffer(4 * (rows + 1)), pa.allocate_buffer(line[plans.SIZE]), None
    if form == plans.CODED_TEXTS:
        texts = pa.allocate_buffer(line[plans.WORD_BYTES] + SLACK_BYTES)
        return validity, pa.allocate_buffer(4 * rows), texts, pa.allocate_buffer(4 * (line[plans.WORDS] + 1))
    return validity, pa.allocate_buffer(line[plans.WIDTH] * rows), None, None


def _array(kind: pa.DataType, length: int, line: list[int], memory: _Memory) -> pa.Array | None:
    if not line[plans.IS_USUAL]:
        return None
    validity, numbers, texts, word_offsets = memory
    nulls, used = line[plans.NULLS], line[plans.USED]
    validity = validity if nulls else None
    if texts is None:
        return pa.Array.from_buffers(kind, length, [validity, numbers], nulls)
    if word_offsets is None:
        return pa.Array.from_buffers(kind, length, [validity, numbers, texts.slice(0, used)], nulls)
    words = line[plans.KEPT_WORDS]
    dictionary = pa.Array.from_buffers(_TEXT, words, [None, word_offsets, texts.slice(0, used)], 0)
    indices = pa.Array.from_buffers(_INT32, length, [validity, numbers], nulls)
    # The kernel has compared all codes with the number of words.
    return pa.DictionaryArray.from_arrays(indices, dictionary, safe=False)


def tested_texts(
    leaf: LeafBytes, rows: int, test: Callable[[pa.Array], Mask], kept: KeptTexts | None = None
) -> tuple[Mask, Mask | None] | None:
    """Which texts pass the test, and which rows have none; None if pyarrow must decode them.

    The test gets the texts of one page at a time. The next page replaces them, except those that `kept` copies.
    """
    if not rows or form_of(_TEXT, leaf) is None:
        return None
    try:
        return _tested(TextPages(leaf, rows), test, kept)
    except Unusual:
        return None
    except IndexError as reason:
        raise ValueError(f"a page is damaged: {reason}") from reason


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


def _tested(pages: TextPages, test: Callable[[pa.Array], Mask], kept: KeptTexts | None) -> tuple[Mask, Mask | None]:
    passed = np.zeros(pages.rows, np.bool_)
    begin, total_nulls, into = 0, 0, taken_scratch(pages.largest + SLACK_BYTES)
    for head in pages.heads:
        rows = int(head[VALUES])
        present, ends = pages.present[begin : begin + rows], np.empty(rows + 1, np.int32)
        at, count = text_page(pages.zstd, head, pages.is_optional, into, rows, present, ends)
        validity, nulls = None, rows - count
        if nulls:
            validity = pa.py_buffer(np.packbits(present, bitorder="little"))
            total_nulls += nulls
        buffers = [validity, pa.py_buffer(ends), pa.py_buffer(into)[at : at + int(ends[rows])]]
        of_page = test(pa.Array.from_buffers(_TEXT, rows, buffers, nulls))
        passed[begin : begin + rows] = of_page
        if kept is not None:
            kept.add(begin, of_page, into, at, ends, (pages.rows - begin - rows) / max(rows, 1))
        begin += rows
    give_back(into)
    return passed, pages.present == 0 if total_nulls else None
