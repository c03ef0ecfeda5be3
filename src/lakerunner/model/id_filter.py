"""A bloom filter of the ids in a segment, small enough for the index, probed without opening the segment.

Blocks of 32 bytes, as in Parquet's filters: the upper half of an id's hash selects a block, the lower half one bit in
each of its eight words. 12 bits per distinct id make about one false answer in 200. The filter of a segment with very
many ids would be large; then there is none, and the segment's own filters decide.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

BLOCK_BYTES = 32
_BITS_PER_ID = 12
#: A filter that would be larger is not made: the index must stay small.
MAX_BYTES = 256 << 10
MAX_IDS = MAX_BYTES * 8 // _BITS_PER_ID
#: Ids are compared by this many bytes at their end; shorter ones are filled up with zeros.
_ID_BYTES = 32
_SALT = np.array(
    (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31), np.uint32
)

Words = npt.NDArray[np.uint64]


def filter_of(ids: pa.Array | pa.ChunkedArray) -> bytes:
    """Return the filter of these ids, nulls left out; empty bytes if there would be too many."""
    distinct = pc.unique(ids).drop_null()
    blocks = max(1, -(-len(distinct) * _BITS_PER_ID // (8 * BLOCK_BYTES)))
    if not len(distinct) or blocks * BLOCK_BYTES > MAX_BYTES:
        return b""
    hashes = _hashes(distinct)
    words = np.zeros((blocks, len(_SALT)), np.uint32)
    place = ((hashes >> np.uint64(32)) * np.uint64(blocks)) >> np.uint64(32)
    for number, bits in enumerate(_bits(hashes).T):
        np.bitwise_or.at(words[:, number], place.astype(np.int64), bits)
    return words.astype("<u4").tobytes()


class IdFilterBuilder:
    """Takes the ids of a segment in parts."""

    def __init__(self) -> None:
        self._parts: list[pa.Array] = []
        self._count = 0

    def add(self, ids: pa.Array | pa.ChunkedArray) -> None:
        if self._count <= MAX_IDS:
            distinct = pc.unique(ids)
            if pa.types.is_dictionary(distinct.type):
                distinct = distinct.dictionary_decode()
            self._parts.append(distinct)
            self._count += len(distinct)

    def result(self) -> bytes:
        return filter_of(pa.chunked_array(self._parts, pa.string())) if 0 < self._count <= MAX_IDS else b""


def may_hold(made: bytes, probe: tuple[int, int]) -> bool:
    """Whether the id of the probe may be among the filter's ids. No filter may hold anything."""
    if not made:
        return True
    upper, mask = probe
    start = (upper * (len(made) // BLOCK_BYTES) >> 32) * BLOCK_BYTES
    return int.from_bytes(made[start : start + BLOCK_BYTES], "little") & mask == mask


@lru_cache(maxsize=1024)
def probe_of(text: str) -> tuple[int, int]:
    """Return what `may_hold` asks filters of any size: the upper half of the hash, and the bits of its block."""
    hashes = _hashes(pa.array([text], pa.string()))
    return int(hashes[0] >> np.uint64(32)), int.from_bytes(_bits(hashes).astype("<u4").tobytes(), "little")


def _hashes(ids: pa.Array) -> Words:
    lengths = pc.binary_length(ids)
    if pc.any(pc.not_equal(lengths, _ID_BYTES)).as_py():
        padded = [text.encode()[-_ID_BYTES:].rjust(_ID_BYTES, b"0") for text in ids.to_pylist()]
        data: bytes | memoryview = b"".join(padded)
    else:
        whole = ids.cast(pa.large_string())
        starts = np.frombuffer(whole.buffers()[1], np.int64, len(whole) + 1, whole.offset * 8)
        data = memoryview(whole.buffers()[2])[int(starts[0]) : int(starts[-1])]
    words = np.frombuffer(data, "<u8").reshape(len(ids), _ID_BYTES // 8)
    mixed = np.zeros(len(ids), np.uint64)
    for column in words.T:
        mixed = _mix(mixed ^ column)
    return mixed


def _mix(values: Words) -> Words:
    """The finalizer of splitmix64: every bit of the input changes half of the output's."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Words = values ^ (values >> np.uint64(31))
    return mixed


def _bits(hashes: Words) -> npt.NDArray[np.uint32]:
    """One bit for each of the eight words of a block; one row per hash."""
    key = (hashes & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    bits: npt.NDArray[np.uint32] = np.uint32(1) << ((key[:, None] * _SALT) >> np.uint32(27))
    return bits
