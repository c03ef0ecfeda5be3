"""Bytes of texts, wherever a column lies in its buffers."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest

from lakerunner.model.text_bytes import text_bytes


def _written() -> pa.StringArray:
    """A column over memory that can be written."""
    offsets, data = np.array([0, 1, 3], np.int32), np.frombuffer(b"abc", np.uint8).copy()
    return pa.StringArray.from_buffers(2, pa.py_buffer(offsets), pa.py_buffer(data))


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (_written(), ["a", "bc"]),
        (_written()[1:], ["bc"]),
        (_written()[:0], []),
        (pa.array(["a", None, "ü"]), ["a", "", "ü"]),
        (pa.array([], pa.string()), []),
        (pa.nulls(2, pa.string()), ["", ""]),
        (pa.array([b"\xff", b""]), [b"\xff", b""]),
    ],
)
def test_bytes_are_those_of_the_texts_and_cannot_be_written(texts: pa.Array, expected: list[str | bytes]) -> None:
    data, offsets = text_bytes(texts)
    found = [data[begin:end].tobytes() for begin, end in itertools.pairwise(offsets)]
    assert found == [each if isinstance(each, bytes) else each.encode() for each in expected]
    assert not data.flags.writeable and not offsets.flags.writeable
