"""A deletion on request: which rows of which org and time range are to go, and what became of a segment of it."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class DeletionState(enum.StrEnum):
    #: Its rows are hidden, and it may be cancelled.
    PENDING = "pending"
    #: Segments are being rewritten.
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class DeletionRequest:
    """What is asked for. The time range is half-open."""

    org_id: uuid.UUID
    signal: str
    #: As the caller wrote it.
    selector: str
    #: The selector as data (`query/scan/hidden.py`).
    condition: str
    start_ns: int
    end_ns: int
    created_by: str


class SegmentEnd(enum.StrEnum):
    """What became of a segment that a deletion concerned."""

    REWRITTEN = "rewritten"
    #: It had no matching row.
    UNTOUCHED = "untouched"
    #: All its rows matched.
    EMPTIED = "emptied"


@dataclass(frozen=True, slots=True)
class SegmentDeleted:
    """An attempt's result for one segment: the deletions that it applied, and what is left."""

    dateint: int
    segment_id: uuid.UUID
    deletion_ids: Sequence[uuid.UUID]
    end: SegmentEnd
    rows_after: int
    #: Id, keys and checksums of the segment that replaces it.
    made: Mapping[str, Any] | None = None
