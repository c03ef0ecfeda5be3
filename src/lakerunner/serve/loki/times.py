"""Times and durations of requests, as Loki reads them: nanoseconds, seconds or RFC 3339."""

from __future__ import annotations

import datetime as dt
import re
import time
from dataclasses import dataclass

from lakerunner.model.errors import BadInput
from lakerunner.model.time import FAR_MS, NS_PER_MS, NS_PER_S
from lakerunner.serve.params import Params, parse_span_ms

#: How far back a request without a start looks: for data, and for labels and series.
QUERY_SINCE_NS = 3_600 * NS_PER_S
LABELS_SINCE_NS = 6 * 3_600 * NS_PER_S
#: The default step divides the range into about as many points.
_POINTS = 250
#: An integer of more digits than this is nanoseconds, not seconds.
_SECONDS_DIGITS = 10
_INTEGER = re.compile(r"[+-]?\d{1,25}", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(\d{1,25}\.\d{0,25}|\.\d{1,25})([eE][+-]?\d{1,2})?", re.ASCII)
_CALENDAR = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_FAR_NS = FAR_MS * 1_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """The time range of a request."""

    start_ns: int
    end_ns: int

    @property
    def range_ns(self) -> int:
        return self.end_ns - self.start_ns


def read_bounds(params: Params, since_ns: int = QUERY_SINCE_NS) -> Bounds:
    """Parse `start`, `end` and `since`. The start defaults to `since` before the end, or before now if that is less."""
    now_ns = time.time_ns()
    if params.text("since"):
        since_ns = _parse_since_ns(params.text("since"))
    end_ns = time_ns(params, "end", now_ns)
    start_ns = time_ns(params, "start", min(end_ns, now_ns) - since_ns)
    if end_ns < start_ns:
        raise BadInput("end timestamp must not be before or equal to start time")
    return Bounds(start_ns, end_ns)


def _parse_since_ns(text: str) -> int:
    """Parse a duration. Unlike a step, it has a unit."""
    if not text[-1:].isalpha() and text != "0":
        raise BadInput(f'invalid parameter "since": {text[:50]!r} has no unit', hint="give a duration like 90m")
    return parse_span_ms("since", text) * NS_PER_MS


def time_ns(params: Params, name: str, default_ns: int) -> int:
    text = params.text(name)
    return parse_time_ns(name, text) if text else default_ns


def parse_time_ns(name: str, text: str) -> int:
    """Parse a time. A number with a point is seconds to the millisecond; a short integer is seconds.

    >>> parse_time_ns("time", "1793527800"), parse_time_ns("time", "1793527800.75")
    (1793527800000000000, 1793527800750000000)
    >>> parse_time_ns("time", "1793527800000000001"), parse_time_ns("time", "1970-01-01T00:00:02.25+00:00")
    (1793527800000000001, 2250000000)
    """
    if _DECIMAL.fullmatch(text):
        return _near(round(float(text) * 1000) * NS_PER_MS)
    if _INTEGER.fullmatch(text) and -(1 << 63) <= int(text) < 1 << 63:
        return _near(int(text) * (NS_PER_S if len(text) <= _SECONDS_DIGITS else 1))
    if (parts := _CALENDAR.fullmatch(text)) is not None:
        try:
            moment = dt.datetime.fromisoformat(parts[1] + parts[3].replace("Z", "+00:00"))
        except ValueError:
            raise _bad(name, text) from None
        since = moment - _EPOCH
        whole_s = since.days * 86_400 + since.seconds
        return _near(whole_s * NS_PER_S + int((parts[2] or "0").ljust(9, "0")))
    raise _bad(name, text)


def _near(time_ns: int) -> int:
    return min(max(time_ns, -_FAR_NS), _FAR_NS)


def _bad(name: str, text: str) -> BadInput:
    return BadInput(f'invalid parameter "{name}": cannot parse {text[:50]!r} to a valid timestamp')


def _parse_span_ms(name: str, text: str) -> int:
    """Parse a number of seconds, or a duration. As Loki has it, seconds are cut to nanoseconds, then to milliseconds.

    >>> _parse_span_ms("step", "0.333"), _parse_span_ms("step", "1.001"), _parse_span_ms("step", "1001ms")
    (333, 1000, 1001)
    """
    span_ms = parse_span_ms(name, text)
    return span_ms if text[-1:].isalpha() else int(float(text) * NS_PER_S) // NS_PER_MS


def read_step_ms(params: Params, bounds: Bounds) -> int:
    """The step in milliseconds; without one, a whole number of seconds that fits the range."""
    if not params.text("step"):
        return max(bounds.range_ns // (_POINTS * NS_PER_S), 1) * 1000
    step_ms = _parse_span_ms("step", params.text("step"))
    if step_ms <= 0:
        raise BadInput("zero or negative query resolution step widths are not accepted. Try a positive integer")
    return step_ms


def read_few_steps_ms(params: Params, bounds: Bounds, most: int) -> int:
    """The step in milliseconds. One that divides the range into more than `most` steps is refused."""
    step_ms = read_step_ms(params, bounds)
    if bounds.range_ns // (step_ms * NS_PER_MS) > most:
        raise BadInput(
            f"exceeded maximum resolution of {most:,} points per time series (api.max_steps)", hint="widen the step"
        )
    return step_ms


def read_interval_ns(params: Params) -> int:
    interval_ms = _parse_span_ms("interval", params.text("interval")) if params.text("interval") else 0
    if interval_ms < 0:
        raise BadInput("interval must be >= 0")
    return interval_ms * NS_PER_MS


def read_limit(params: Params, default: int = 100, name: str = "limit") -> int:
    """A positive number of 64 bits."""
    text = params.text(name)
    if not text:
        return default
    if not _INTEGER.fullmatch(text) or not -(1 << 63) <= int(text) < 1 << 63:
        raise BadInput(f'invalid parameter "{name}": {text[:50]!r} is not an integer')
    if int(text) <= 0:
        raise BadInput(f"{name} must be a positive value")
    return int(text)


def check_entries(limit: int, most: int, name: str = "limit") -> None:
    """Refuse to show more than `most` entries."""
    if limit > most:
        raise BadInput(
            f"max entries limit per query exceeded, {name} > api.max_entries ({limit} > {most})",
            hint="ask for less, or export with `lakerunner query logs`, which has no limit",
        )


def read_newest_first(params: Params) -> bool:
    direction = (params.text("direction") or "backward").upper()
    if direction not in ("FORWARD", "BACKWARD"):
        raise BadInput(f"invalid direction {params.text('direction')[:50]!r}", hint="give forward or backward")
    return direction == "BACKWARD"
