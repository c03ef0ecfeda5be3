"""The bytes of a column of texts, as kernels read and write them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakerunner.query.logql.entries import Mask

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int32]

#: Bytes that a kernel handles between two checks: about 25 ms of work.
BYTES_PER_CHECK = 8 << 20

_NO_BYTES = np.zeros(0, np.uint8)


def bytes_of(texts: pa.StringArray) -> tuple[Bytes, Offsets]:
    """The bytes, and where each text begins; the last offset is the end. A null is an empty text or any other."""
    _, offsets, data = texts.buffers()
    if offsets is None or not len(texts):
        return _NO_BYTES, np.zeros(1, np.int32)
    positions = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return (_NO_BYTES if data is None else np.frombuffer(data, np.uint8)), positions


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
