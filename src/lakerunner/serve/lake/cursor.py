"""Where a stream stands: the id of every result frame, from which any server can go on.

The id holds the query's own times, since `now` is another time when the client comes back, and the step and the
place within it of the last result. Nothing is kept on the server for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakerunner.model.errors import BadInput

_ID = re.compile(r"(-?\d{1,17})_(-?\d{1,17})_(\d{1,17})_(-?\d{1,17})_(\d{1,9}|end)")


@dataclass(frozen=True, slots=True)
class Cursor:
    start_ms: int
    end_ms: int
    step_ms: int
    #: The step of the last result that arrived, and its place among the results of that step.
    time_ms: int
    place: int
    #: Everything arrived; only the end of the stream did not.
    ended: bool = False

    @classmethod
    def parse(cls, text: str) -> Cursor:
        found = _ID.fullmatch(text.strip())
        if found is None:
            raise BadInput(f"cannot read {text[:80]!r} as the id of an event of ours", where="Last-Event-ID")
        start_ms, end_ms, step_ms, time_ms = (int(part) for part in found.groups()[:4])
        if step_ms <= 0 or end_ms < start_ms or (time_ms - start_ms) % step_ms:
            raise BadInput(f"cannot go on from the event {text[:80]!r}: its times do not fit", where="Last-Event-ID")
        place = found[5]
        if place == "end":
            return cls(start_ms, end_ms, step_ms, time_ms, 0, ended=True)
        return cls(start_ms, end_ms, step_ms, time_ms, int(place))


def id_stem(start_ms: int, end_ms: int, step_ms: int) -> bytes:
    """What all ids of a stream begin with."""
    return b"%d_%d_%d_" % (start_ms, end_ms, step_ms)
