"""Kernels decompress what the package zstandard compresses: at once or in parts, by every library, and safely."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.query.scan.rows.parquet.zstd_calls import (
    ZstdContext,
    begin_stream,
    decompress,
    decompress_until,
    libraries,
    zstd_of_thread,
)

_bodies = st.one_of(st.binary(max_size=300), st.binary(min_size=1, max_size=9).map(lambda each: each * 40_000))

_of_every_library = pytest.mark.parametrize("context", [ZstdContext(library) for library in libraries()])


def _packed(body: bytes) -> np.ndarray:
    return np.frombuffer(zstandard.ZstdCompressor().compress(body), np.uint8)


@_of_every_library
@given(body=_bodies, data=st.data())
def test_at_once_and_in_parts(context: ZstdContext, body: bytes, data: st.DataObject) -> None:
    zstd, packed, into = context.numbers, _packed(body), np.zeros(len(body) + 8, np.uint8)
    assert decompress(zstd, packed, 0, len(packed), into, len(body)) == len(body)
    assert into[: len(body)].tobytes() == body
    into[:] = 0
    progress = np.ones(2, np.int64)
    begin_stream(zstd, progress)
    for until in sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=4))):
        assert decompress_until(zstd, packed, 0, len(packed), into, until, progress)
        assert into[:until].tobytes() == body[:until] and not into[until:].any()


@_of_every_library
@given(body=st.binary(min_size=1, max_size=300), data=st.data())
def test_damaged_bytes_are_refused(context: ZstdContext, body: bytes, data: st.DataObject) -> None:
    zstd, packed, into = context.numbers, _packed(body), np.zeros(len(body), np.uint8)
    kept = data.draw(st.integers(0, len(packed) - 1))
    assert decompress(zstd, packed, 0, kept, into, len(into)) != len(body) or kept == 0
    progress = np.zeros(2, np.int64)
    begin_stream(zstd, progress)
    # Neither more bytes than there are, nor those of a page that is cut off.
    assert not decompress_until(
        zstd, packed, 0, len(packed), np.zeros(len(body) + 1, np.uint8), len(body) + 1, progress
    )
    begin_stream(zstd, progress)
    assert not decompress_until(zstd, packed[:0], 0, 0, into, len(body), progress)
    # A page that is larger than it says does not fit.
    assert decompress(zstd, packed, 0, len(packed), into, len(body) - 1) < 0


def test_threads_do_not_disturb_each_other() -> None:
    bodies = [np.random.default_rng(number).bytes(1_000) * 300 for number in range(4)]

    def same(body: bytes) -> bool:
        zstd, packed, into = zstd_of_thread(), _packed(body), np.zeros(len(body), np.uint8)
        progress = np.zeros(2, np.int64)
        found = True
        for _ in range(20):
            begin_stream(zstd, progress)
            found &= all(
                bool(decompress_until(zstd, packed, 0, len(packed), into, until, progress))
                for until in range(10_000, len(body) + 1, 10_000)
            )
            found &= into.tobytes() == body
        return found

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(same, bodies))
