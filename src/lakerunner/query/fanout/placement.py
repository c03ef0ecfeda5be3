"""Which worker reads what: the same one each time, so that caches stay warm, without any coordination."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import xxhash


def ranked(workers: Sequence[str], org_id: uuid.UUID, slot: int) -> list[str]:
    """The workers in the order in which they should be tried for an org's segments of a slot of time.

    Rendezvous hashing: a worker that joins or leaves changes the first place of only its own share.

    >>> org_id = uuid.UUID(int=1)
    >>> ranked(["a:1", "b:1"], org_id, 7) == ranked(["b:1", "a:1"], org_id, 7)
    True
    """
    place = org_id.bytes + slot.to_bytes(8, "little", signed=True)
    return sorted(workers, key=lambda worker: (xxhash.xxh3_64_intdigest(worker.encode() + place), worker), reverse=True)
