"""Errors between the API and its workers, translated to Flight's errors and back."""

from __future__ import annotations

import pyarrow.flight as flight

from lakerunner.model.errors import BadInput, Bug, Denied, LakeError, LimitHit, Unavailable


class Draining(Unavailable):
    """The worker accepts no new work. It finishes its requests, then restarts or leaves."""

    code = "draining"


class Unread(Unavailable):
    """A segment cannot be read. The worker is healthy; the caller decides how to proceed without the segment."""

    code = "unread"


def to_flight(error: LakeError) -> flight.FlightError:
    """The error as Flight carries it. It includes our code, because the transport raises Flight's own kinds too."""
    kind = flight.FlightUnauthenticatedError if isinstance(error, Denied) else flight.FlightServerError
    return kind(str(error), error.code.encode())


def from_flight(error: flight.FlightError, address: str) -> LakeError:
    """The worker's error, by its code. Without a code it is the transport's, and another worker may do better."""
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
