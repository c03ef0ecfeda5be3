"""The pages of a column of texts, and the memory into which pages are decompressed one after another."""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakerunner.query.scan.rows.parquet import column_plans as plans
from lakerunner.query.scan.rows.parquet.page_file import LeafBytes
from lakerunner.query.scan.rows.parquet.zstd_calls import NO_ZSTD, zstd_of_thread

Bytes = npt.NDArray[np.uint8]

#: Memory that a thread keeps for pages. Fresh memory would cost page faults for every column.
_KEPT_BYTES = 4 << 20
_of_thread = threading.local()


class Unusual(Exception):
    """The pages are valid, but not of the kinds that are read here."""


class TextPages:
    """The pages of a leaf of texts, which hold so many rows, and which rows have a value."""

    def __init__(self, leaf: LeafBytes, rows: int) -> None:
        """Unusual: a page has another encoding."""
        self._bodies = [pa.py_buffer(each) for each in leaf.pages]
        self.rows, self.is_optional = rows, leaf.is_optional
        plan = np.zeros((1, plans.WIDTH_OF_PLAN), np.int64)
        is_packed = leaf.chunk.compression != "UNCOMPRESSED"
        size = leaf.chunk.total_uncompressed_size
        plan[0, : plans.WANTED] = (
            plans.TEXTS, 0, 0, leaf.is_optional, is_packed, size, rows, 0, rows, -1, 0, len(self._bodies)
        )  # fmt: skip
        self.heads = plans.measured(plan, np.array([(body.address, body.size) for body in self._bodies], np.int64))
        if not plan[0, plans.IS_USUAL]:
            raise Unusual
        self.largest = int(plan[0, plans.LARGEST])
        self.zstd = zstd_of_thread() if is_packed else NO_ZSTD
        self.present = np.ones(rows, np.uint8)


def taken_scratch(size: int) -> Bytes:
    """Memory of at least this size, which nobody else on this thread uses meanwhile."""
    kept: Bytes | None = getattr(_of_thread, "scratch", None)
    _of_thread.scratch = None
    return np.empty(size, np.uint8) if kept is None or len(kept) < size else kept


def give_back(scratch: Bytes) -> None:
    kept: Bytes | None = getattr(_of_thread, "scratch", None)
    if len(scratch) <= _KEPT_BYTES and (kept is None or len(kept) < len(scratch)):
        _of_thread.scratch = scratch
