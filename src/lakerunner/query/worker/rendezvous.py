"""Which worker reads which segment: the same one each time, so that caches stay warm, without any coordination."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import xxhash


def ranked(workers: Sequence[str], segment_id: uuid.UUID) -> list[str]:
    """The workers in the order in which they should be tried for a segment (rendezvous hashing).

    A worker that joins or leaves changes the first place of only its own share of segments.

    >>> ranked(["a:1", "b:1"], uuid.UUID(int=1)) == ranked(["b:1", "a:1"], uuid.UUID(int=1))
    True
    """
    return sorted(
        workers, key=lambda worker: (xxhash.xxh3_64_intdigest(worker.encode() + segment_id.bytes), worker), reverse=True
    )
