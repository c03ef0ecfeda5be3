"""Ids: fresh ids that sort by time, and ids that are a hash of their content."""

from __future__ import annotations

import hashlib
import os
import time
import uuid

_VERSION_SHIFT, _VARIANT_SHIFT = 76, 62
_VARIANT = 0b10


def fresh_id() -> uuid.UUID:
    """Return a new id that sorts by creation time (UUID version 7), so that listings and B-trees stay in order."""
    millis = time.time_ns() // 1_000_000 & (1 << 48) - 1
    random = int.from_bytes(os.urandom(10), "big")
    return _uuid(7, millis << 80 | random)


def hashed_id(*parts: bytes) -> uuid.UUID:
    """Return the id that these parts hash to (UUID version 8): the same parts give the same id everywhere.

    Each part is hashed with its length, so that two different lists of parts never hash the same bytes.
    """
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return _uuid(8, int.from_bytes(digest.digest()[:16], "big"))


def _uuid(version: int, bits: int) -> uuid.UUID:
    """Return a UUID of these bits with version and variant set. Python 3.11 does not know versions 7 and 8."""
    bits &= ~(0xF << _VERSION_SHIFT | 0b11 << _VARIANT_SHIFT)
    return uuid.UUID(int=bits | version << _VERSION_SHIFT | _VARIANT << _VARIANT_SHIFT)
