"""A raw object: one version of one object that a collector wrote, and how reading it ended."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass, field

from lakerunner.model.ids import hashed_id
from lakerunner.model.row_report import RowReport

#: A version that begins so is a hash of the content. The others are etags.
CONTENT_VERSION = "blake2b-"


def content_hash(body: bytes = b"") -> hashlib.blake2b:
    return hashlib.blake2b(body, digest_size=16)


@dataclass(frozen=True, slots=True)
class RawObject:
    """One version of one object. The same key uploaded again is another object."""

    org_id: uuid.UUID
    collector: str
    signal: str
    bucket: str
    key: str
    #: The etag: listings give it, version ids they do not. In a folder a hash of the content, which outlives copies.
    version: str
    size_bytes: int
    #: When the bucket stored it: its last-modified time. Not known where an object is read back from a message.
    arrived_ns: int | None = field(default=None, compare=False)

    @property
    def object_id(self) -> uuid.UUID:
        """A hash of bucket, key and version: the same for every event that names the object.

        Of a folder only the name counts, not its path, so that a lake may be moved. An etag of a folder is older than
        content hashes; its id has the path.
        """
        bucket = self.bucket
        if self.version.startswith(CONTENT_VERSION):
            bucket = "file:" + bucket.rpartition("/")[2]
        return hashed_id(bucket.encode(), self.key.encode(), self.version.encode())


#: Enough of a reason to act on it. The ledger must not grow with what somebody wrote into an object.
_REASON_CHARS = 1_000


@dataclass(frozen=True, slots=True)
class ObjectOutcome:
    """How an object ended: as rows, superseded by a later version of its key, or in quarantine with its reason."""

    object_id: uuid.UUID
    row_count: int
    quarantine_reason: str | None = None
    #: It was overwritten before it was read. The later version is an object of its own.
    superseded: bool = False
    reports: tuple[RowReport, ...] = ()


def quarantined(raw: RawObject, reason: str) -> ObjectOutcome:
    # PostgreSQL's text cannot hold NUL.
    return ObjectOutcome(raw.object_id, 0, reason.replace("\0", "\\0")[:_REASON_CHARS])
