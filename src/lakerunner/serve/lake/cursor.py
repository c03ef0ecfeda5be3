"""The position of a stream: each result frame has an id from which any server can resume the stream.

The id holds the query's resolved times, because `now` has moved on when the client reconnects. It also holds the last
result's step and the position within that step, and a fingerprint of the segments that were read: over other segments,
the same position would be another result.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakerunner.model.errors import BadInput

_ID = re.compile(r"(-?\d{1,17})_(-?\d{1,17})_(\d{1,17})_([0-9a-f]{32}|none)_(-?\d{1,17})_(\d{1,9}|end)")


@dataclass(frozen=True, slots=True)
class Cursor:
    start_ms: int
    end_ms: int
    step_ms: int
    #: The segments of the stream; None if their set was not known, or if some of them could not be read.
    fingerprint: str | None
    #: The step of the last result that the client received, and its position among the results of that step.
    time_ms: int
    position: int
    #: The client received all results, but not the end of the stream.
    ended: bool = False

    @classmethod
    def parse(cls, text: str) -> Cursor:
        match = _ID.fullmatch(text.strip())
        if match is None:
            raise BadInput(
                f"cannot resume from {text[:80]!r}: it is not the id of an event of this stream", where="Last-Event-ID"
            )
        start_ms, end_ms, step_ms, time_ms = (int(match[number]) for number in (1, 2, 3, 5))
        fingerprint = None if match[4] == "none" else match[4]
        if step_ms <= 0 or end_ms < start_ms or (time_ms - start_ms) % step_ms:
            raise BadInput(f"cannot resume from {text[:80]!r}: its times are inconsistent", where="Last-Event-ID")
        position = match[6]
        if position == "end":
            return cls(start_ms, end_ms, step_ms, fingerprint, time_ms, 0, ended=True)
        return cls(start_ms, end_ms, step_ms, fingerprint, time_ms, int(position))


def id_stem(start_ms: int, end_ms: int, step_ms: int, fingerprint: str | None) -> bytes:
    """The common prefix of all event ids of a stream."""
    return b"%d_%d_%d_%s_" % (start_ms, end_ms, step_ms, (fingerprint or "none").encode())
