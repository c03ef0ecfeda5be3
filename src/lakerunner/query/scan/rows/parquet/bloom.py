"""Parquet's split-block bloom filters, probed with one read of 32 bytes.

A filter's size is a power of two, in blocks of 32 bytes. A value's hash selects a block, and one bit in each of its
eight words. So one block is enough to probe a filter of 256 KiB.
"""

from __future__ import annotations

import struct

import xxhash

BLOCK_BYTES = 32
#: Possible sizes of the small thrift struct before the blocks. A filter with another layout is not probed.
_HEAD_BYTES = range(8, 33)
_SALT = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
_WORDS = struct.Struct("<8I")


def hash_of(text: str) -> int:
    return xxhash.xxh64_intdigest(text.encode(), seed=0)


def block_place(offset: int | None, length: int | None, hashed: int) -> int | None:
    """The file offset of the block for the hash; None if the filter cannot be probed."""
    if not offset or not length or length <= BLOCK_BYTES:
        return None
    blocks_bytes = 1 << (length.bit_length() - 1)
    head_bytes = length - blocks_bytes
    if head_bytes not in _HEAD_BYTES:
        return None
    blocks = blocks_bytes // BLOCK_BYTES
    return offset + head_bytes + ((hashed >> 32) * blocks >> 32) * BLOCK_BYTES


def may_hold(block: bytes, hashed: int) -> bool:
    """Whether a value with that hash may be among the values of the filter."""
    key = hashed & 0xFFFFFFFF
    return all(
        word >> ((key * salt & 0xFFFFFFFF) >> 27) & 1 for word, salt in zip(_WORDS.unpack(block), _SALT, strict=True)
    )
