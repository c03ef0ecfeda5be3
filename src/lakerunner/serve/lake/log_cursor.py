"""The position of a stream of log entries: each entry has an id from which any server can resume the stream.

Entries are ordered by time, and those of one instant by their place in the segments. So an id holds the time of its
entry and its place among those of the instant, the range of the query, and a fingerprint of the segments.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakerunner.model.errors import BadInput

_ID = re.compile(r"log_(-?\d{1,19})_(-?\d{1,19})_([0-9a-f]{32}|none)_(-?\d{1,19})_(\d{1,12})_(\d{1,15})")


@dataclass(frozen=True, slots=True)
class LogCursor:
    start_ns: int
    end_ns: int
    #: The segments of the stream; None if their set was not known, or if some of them could not be read.
    fingerprint: str | None
    #: The time of the last entry that the client received, and how many entries of that instant it received.
    time_ns: int
    of_instant: int
    #: How many entries the client received in all.
    sent: int

    @classmethod
    def parse(cls, text: str) -> LogCursor:
        match = _ID.fullmatch(text.strip())
        if match is None:
            raise BadInput(
                f"cannot resume from {text[:80]!r}: it is not the id of an event of this stream", where="Last-Event-ID"
            )
        start_ns, end_ns, time_ns, of_instant, sent = (int(match[number]) for number in (1, 2, 4, 5, 6))
        if not start_ns <= time_ns < end_ns:
            raise BadInput(f"cannot resume from {text[:80]!r}: its times are inconsistent", where="Last-Event-ID")
        return cls(start_ns, end_ns, None if match[3] == "none" else match[3], time_ns, of_instant, sent)


def log_id_stem(start_ns: int, end_ns: int, fingerprint: str | None) -> bytes:
    """The common prefix of all event ids of a stream."""
    return b"log_%d_%d_%s_" % (start_ns, end_ns, (fingerprint or "none").encode())
