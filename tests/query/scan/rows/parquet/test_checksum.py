"""The checksum of kernels is that of the standard library."""

from __future__ import annotations

import zlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.query.scan.rows.parquet.checksum import checksum


@given(body=st.one_of(st.binary(max_size=40), st.binary(min_size=60, max_size=700)), data=st.data())
def test_it_is_that_of_zlib(body: bytes, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(body)))
    end = data.draw(st.integers(begin, len(body)))
    assert checksum(np.frombuffer(body, np.uint8), begin, end) == zlib.crc32(body[begin:end])


def test_a_large_page_too() -> None:
    body = np.random.default_rng(3).bytes(1_000_003)
    assert checksum(np.frombuffer(body, np.uint8), 0, len(body)) == zlib.crc32(body)
