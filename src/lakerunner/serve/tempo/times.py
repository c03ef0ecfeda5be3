"""Times, durations and limits of requests, as Tempo reads them."""

from __future__ import annotations

import datetime as dt
import re
import time
from dataclasses import dataclass
from decimal import Decimal

from lakerunner.model.errors import BadInput
from lakerunner.model.time import MAX_TIME_NS, NS_PER_S
from lakerunner.query.traceql.literals import duration_ns
from lakerunner.serve.params import Params

#: How far back a request without times looks.
SINCE_NS = 3_600 * NS_PER_S
#: A number of more digits before the point is nanoseconds, not seconds.
_SECONDS_DIGITS = 12
_NUMBER = re.compile(r"(\d{1,25})(\.\d{0,25})?", re.ASCII)
_CALENDAR = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_DURATION = re.compile(r"(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|ms|[smhdw]))+")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class Bounds:
    start_ns: int
    end_ns: int


def read_bounds(params: Params) -> Bounds:
    """Parse `start` and `end`, of which both or neither must be given; else the last hour, or `since`."""
    start, end = params.text("start"), params.text("end")
    if not start and not end:
        now_ns = time.time_ns()
        since_ns = parse_duration_ns("since", params.text("since")) if params.text("since") else SINCE_NS
        return Bounds(now_ns - since_ns, now_ns)
    if not start or not end:
        raise BadInput("only one of start and end is given", hint="give both or neither")
    return Bounds(parse_time_ns("start", start), parse_time_ns("end", end))


def parse_time_ns(name: str, text: str) -> int:
    """Seconds, nanoseconds or an RFC 3339 time, at most the latest time that a stored row can have.

    >>> parse_time_ns("start", "1793527800.5"), parse_time_ns("start", "1793527800000000001")
    (1793527800500000000, 1793527800000000001)
    """
    if (number := _NUMBER.fullmatch(text)) is not None:
        scale = NS_PER_S if len(number[1]) <= _SECONDS_DIGITS else 1
        return min(int(Decimal(text.rstrip(".")) * scale), MAX_TIME_NS)
    if (parts := _CALENDAR.fullmatch(text)) is not None:
        try:
            moment = dt.datetime.fromisoformat(parts[1] + parts[3].replace("Z", "+00:00"))
        except ValueError:
            raise _bad(name, text) from None
        since = moment - _EPOCH
        time_ns = (since.days * 86_400 + since.seconds) * NS_PER_S + int((parts[2] or "0").ljust(9, "0"))
        return min(time_ns, MAX_TIME_NS)
    raise _bad(name, text)


def parse_duration_ns(name: str, text: str) -> int:
    """
    >>> parse_duration_ns("step", "1m30s"), parse_duration_ns("step", "0.5")
    (90000000000, 500000000)
    """
    if _DURATION.fullmatch(text):
        return duration_ns(text)
    if _NUMBER.fullmatch(text):
        return int(Decimal(text.rstrip(".")) * NS_PER_S)
    raise BadInput(f'invalid parameter "{name}": cannot parse {text[:50]!r} to a valid duration')


def read_count(params: Params, name: str, default: int, most: int, *, least: int = 1) -> int:
    text = params.text(name)
    if not text:
        return default
    if not re.fullmatch(r"\d{1,18}", text, re.ASCII):
        raise BadInput(f'invalid parameter "{name}": {text[:50]!r} is not a whole number')
    count = int(text)
    if count < least:
        raise BadInput(f'invalid parameter "{name}": it must be at least {least}')
    if count > most:
        raise BadInput(f'invalid parameter "{name}": {count} is more than {most}')
    return count


def _bad(name: str, text: str) -> BadInput:
    return BadInput(f'invalid parameter "{name}": cannot parse {text[:50]!r} to a valid time')
