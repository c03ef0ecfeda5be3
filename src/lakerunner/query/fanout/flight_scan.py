"""The state of one scan over several workers."""

from __future__ import annotations

import queue
import uuid
from dataclasses import dataclass, field

from lakerunner.model.errors import LakeError
from lakerunner.query.fanout.answer import Check, SegmentAnswer
from lakerunner.query.fanout.ask import POLL_S, Ask
from lakerunner.query.fanout.protocol import ScanRequest, SegmentObjects


@dataclass(frozen=True, slots=True)
class AskEnded:
    """The end of a request to one worker. Segments without an answer need another worker."""

    ask: Ask
    error: LakeError | None


@dataclass(slots=True)
class FlightScan:
    """The requests under way, and the workers that each segment was tried on."""

    request: ScanRequest
    check: Check
    events: queue.SimpleQueue[SegmentAnswer | AskEnded] = field(default_factory=queue.SimpleQueue)
    asks: list[Ask] = field(default_factory=list)
    tried: dict[uuid.UUID, list[str]] = field(default_factory=dict)
    #: Segments without an answer so far.
    open: dict[uuid.UUID, SegmentObjects] = field(default_factory=dict)
    #: Why the last attempt at a segment failed.
    reasons: dict[uuid.UUID, str] = field(default_factory=dict)
    #: Segments that no worker is left to try for.
    left: list[SegmentObjects] = field(default_factory=list)
    #: Segments whose last worker could not be reached. That worker may be back soon.
    unreached: set[uuid.UUID] = field(default_factory=set)

    def next_event(self) -> SegmentAnswer | AskEnded | None:
        """The next event; None if there is none within a moment."""
        try:
            return self.events.get(timeout=POLL_S)
        except queue.Empty:
            return None

    def accept(self, answer: SegmentAnswer) -> bool:
        """Whether the caller gets this answer. Failures are tried elsewhere first; late duplicates are dropped."""
        if answer.segment_id not in self.open:
            return False
        if answer.error is None:
            del self.open[answer.segment_id]
            return True
        self.reasons[answer.segment_id] = answer.error
        self.unreached.discard(answer.segment_id)
        return False
