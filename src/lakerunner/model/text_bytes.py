"""The bytes of a column of texts, as kernels read them.

They are read-only, whoever made the column: numba compiles a kernel once more for arrays that can be written, and the
client whose query brings the first such array would wait for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int32]


def read_only(buffer: pa.Buffer | bytes | None, kind: type) -> npt.NDArray[Any]:
    """The values of the buffer, without a copy."""
    found: npt.NDArray[Any] = np.frombuffer(b"" if buffer is None else buffer, kind)
    found.flags.writeable = False
    return found


_NO_TEXTS = read_only(bytes(4), np.int32)


def text_bytes(texts: pa.Array) -> tuple[Bytes, Offsets]:
    """The bytes, and where each text begins; the last offset is the end. A null is an empty text or any other."""
    _, offsets, data = texts.buffers()
    if offsets is None or not len(texts):
        return read_only(None, np.uint8), _NO_TEXTS
    return read_only(data, np.uint8), read_only(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
