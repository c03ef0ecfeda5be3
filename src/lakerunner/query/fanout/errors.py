"""Errors between the API and its workers: as Flight carries them, and as they are from_flight on the other side."""

from __future__ import annotations

import pyarrow.flight as flight

from lakerunner.model.errors import BadInput, Bug, Denied, LakeError, LimitHit, Unavailable


class Draining(Unavailable):
    """The worker takes no new work: it finishes what it has and is then started anew, or is gone."""

    code = "draining"


class Unread(Unavailable):
    """A segment cannot be read. The worker is well; who asked decides what the answer is without it."""

    code = "unread"


def to_flight(error: LakeError) -> flight.FlightError:
    """The error as Flight carries it. Its code goes along, because Flight's own kinds also come from the transport."""
    kind = flight.FlightUnauthenticatedError if isinstance(error, Denied) else flight.FlightServerError
    return kind(str(error), error.code.encode())


def from_flight(error: flight.FlightError, address: str) -> LakeError:
    """What a worker said, by its code; anything else is the transport's, and another worker may do better."""
    text = str(error).split(". gRPC client debug context")[0].split(". Detail:")[0]
    code = (error.extra_info or b"").decode(errors="replace")
    if code == LimitHit.code or isinstance(error, flight.FlightTimedOutError):
        return LimitHit(text)
    if code == BadInput.code:
        return BadInput(text)
    if code == Bug.code:
        return Bug(text)
    if code == Denied.code:
        return Denied(f"cannot ask worker {address}: {text}")
    if code == Unread.code:
        return Unread(text)
    kind = Draining if code == Draining.code else Unavailable
    return kind(f"cannot read from worker {address}: {text}")
