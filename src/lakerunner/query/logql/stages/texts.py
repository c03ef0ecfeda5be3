"""Columns of the bytes that kernels wrote, and pieces of columns for one call of a kernel."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from lakerunner.model.text_bytes import Bytes, Offsets
from lakerunner.query.logql.entries import Mask

#: Bytes that a kernel handles between two checks: about 25 ms of work.
BYTES_PER_CHECK = 8 << 20


def texts_of(data: Bytes, offsets: Offsets, present: Mask | None = None) -> pa.StringArray:
    """The column of the bytes. Texts that are not `present` are null."""
    bits = None if present is None or present.all() else np.packbits(present, bitorder="little")
    validity = None if bits is None else pa.py_buffer(bits)
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)


def slices(offsets: Offsets, most_bytes: int = BYTES_PER_CHECK) -> Iterator[tuple[int, int]]:
    """Ranges of rows whose texts have at most so many bytes, if there is more than one of them."""
    total, row = len(offsets) - 1, 0
    while row < total:
        end = int(np.searchsorted(offsets, int(offsets[row]) + most_bytes, side="right")) - 1
        end = min(max(end, row + 1), total)
        yield row, end
        row = end
