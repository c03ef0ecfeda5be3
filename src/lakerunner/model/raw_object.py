"""A raw object: one version of one object that a collector wrote, and how reading it ended."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from lakerunner.model.ids import hashed_id


@dataclass(frozen=True, slots=True)
class RawObject:
    """One version of one object. The same key uploaded again is another object."""

    org_id: uuid.UUID
    collector: str
    signal: str
    bucket: str
    key: str
    #: The etag: listings give it, version ids they do not. The same bytes put again are the same object.
    version: str
    size_bytes: int
    #: When the bucket stored it: its last-modified time. Not known where an object is read back from a message.
    arrived_ns: int | None = field(default=None, compare=False)

    @property
    def object_id(self) -> uuid.UUID:
        """A hash of bucket, key and version: the same for every event that names the object."""
        return hashed_id(self.bucket.encode(), self.key.encode(), self.version.encode())


@dataclass(frozen=True, slots=True)
class ObjectOutcome:
    """How an object ended: as rows, or in quarantine with its reason."""

    object_id: uuid.UUID
    row_count: int
    quarantine_reason: str | None = None
