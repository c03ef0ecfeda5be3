"""Split text into lines as one Arrow column, without a Python object per line."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import Ints
from lakerunner.formats.decoded import Tally, excerpt_of
from lakerunner.formats.limits import Limits

#: Colours and other terminal codes: ESC [ ... letter, and ESC ] ... BEL for links and titles.
_TERMINAL_CODES = r"\x1b\[[0-9;:?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"


def split_lines(data: bytes, limits: Limits, tally: Tally) -> tuple[pa.Array, Ints]:
    """Return the lines without their ends and without terminal codes, and the number of each, from 1.

    Blank lines stay: within a stack trace they count. Lines that are too long are rejected.
    """
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 0x0A) + 1
    if not len(ends) or ends[-1] != len(data):
        ends = np.append(ends, len(data))
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    lines = pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(data))
    numbers = np.arange(1, len(lines) + 1)
    lengths = np.diff(offsets)
    if (too_long := lengths > limits.line_bytes + 1).any():
        for at in np.flatnonzero(too_long).tolist():
            excerpt = excerpt_of(data[offsets[at] : offsets[at] + 200])
            tally.reject("line_bytes", where=f"line {at + 1}", excerpt=excerpt)
        lines, numbers = lines.filter(pa.array(~too_long)), numbers[~too_long]
    if b"\x1b" in data:
        lines = pc.replace_substring_regex(lines, _TERMINAL_CODES, "")
    return pc.ascii_rtrim(lines, "\r\n"), numbers


def joined(texts: pa.Array, starts: Ints, separator: str) -> pa.Array:
    """Join runs of texts. Run `i` begins at `starts[i]` and ends where the next begins.

    >>> joined(pa.array(["a", "b", "c"]), np.array([0, 2]), "-").to_pylist()
    ['a-b', 'c']
    """
    offsets = pa.array(np.append(starts, len(texts)).astype(np.int32))
    return pc.binary_join(pa.ListArray.from_arrays(offsets, texts), separator)
