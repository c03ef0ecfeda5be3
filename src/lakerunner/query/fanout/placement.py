"""Chooses the worker of each segment: always the same one, so that caches stay warm, and without coordination."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import xxhash


def ranked(workers: Sequence[str], org_id: uuid.UUID, slot: int) -> list[str]:
    """The workers in the order in which to try them for an org's segments of one time slot.

    Rendezvous hashing: when a worker joins or leaves, only its own share of segments changes workers.

    >>> org_id = uuid.UUID(int=1)
    >>> ranked(["a:1", "b:1"], org_id, 7) == ranked(["b:1", "a:1"], org_id, 7)
    True
    """
    shard = org_id.bytes + slot.to_bytes(8, "little", signed=True)
    return sorted(workers, key=lambda worker: (xxhash.xxh3_64_intdigest(worker.encode() + shard), worker), reverse=True)
