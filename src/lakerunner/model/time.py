"""Time: UTC nanoseconds, half-open ranges, date integers and durations."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from lakerunner.model.errors import BadInput

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
NS_PER_HOUR = 3_600 * NS_PER_S
NS_PER_DAY = 24 * NS_PER_HOUR
#: Event times lie from 1970 up to here, in the year 2255. The end of a segment must still fit into 64 bits.
MAX_TIME_NS = 9_000_000_000_000 * NS_PER_MS

#: Times are clamped to this many milliseconds from the epoch: no sample lies beyond, and arithmetic cannot overflow.
FAR_MS = 1 << 52

_EPOCH = dt.date(1970, 1, 1)
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
#: The minimum and maximum times as Prometheus clients write them.
_EARLIEST, _LATEST = "-292273086-05-16T16:47:06Z", "+292277025-08-18T07:12:54.999999999Z"
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")


@dataclass(frozen=True, slots=True, order=True)
class TimeRange:
    """A half-open range: it includes `start_ns` and excludes `end_ns`."""

    start_ns: int
    end_ns: int

    def __post_init__(self) -> None:
        if self.end_ns < self.start_ns:
            raise BadInput(f"cannot make a time range: its end {self.end_ns} is before its start {self.start_ns}")

    def overlaps(self, other: TimeRange) -> bool:
        return self.start_ns < other.end_ns and other.start_ns < self.end_ns

    def hull(self, other: TimeRange) -> TimeRange:
        """Return the smallest range that contains both."""
        return TimeRange(min(self.start_ns, other.start_ns), max(self.end_ns, other.end_ns))

    def dateints(self) -> Iterator[int]:
        """Yield the days that the range overlaps, as date integers. An empty range overlaps none."""
        if self.start_ns == self.end_ns:
            return
        for day in range(self.start_ns // NS_PER_DAY, (self.end_ns - 1) // NS_PER_DAY + 1):
            yield _dateint_of_day(day)


def dateint(time_ns: int) -> int:
    """Return the UTC day as an integer that sorts and reads well.

    >>> dateint(1_700_000_000 * NS_PER_S)
    20231114
    """
    return _dateint_of_day(time_ns // NS_PER_DAY)


def hour_of_day(time_ns: int) -> int:
    """Return the UTC hour, 0 to 23."""
    return time_ns % NS_PER_DAY // NS_PER_HOUR


def day_range(date_integer: int) -> TimeRange:
    """Return the range of one day.

    >>> day_range(19700102).start_ns == NS_PER_DAY
    True
    """
    try:
        day = dt.date(date_integer // 10_000, date_integer // 100 % 100, date_integer % 100)
    except ValueError as reason:
        raise BadInput(f"cannot read {date_integer} as a date integer: {reason}", hint="write it as yyyymmdd") from None
    start_ns = (day - _EPOCH).days * NS_PER_DAY
    return TimeRange(start_ns, start_ns + NS_PER_DAY)


def parse_duration_s(text: str) -> float:
    """Parse a duration as people write it; return seconds.

    >>> parse_duration_s("1h30m"), parse_duration_s("250ms"), parse_duration_s("2")
    (5400.0, 0.25, 2.0)
    """
    text = text.strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    if not text or _DURATION.sub("", text):
        raise BadInput(f"cannot read {text!r} as a duration", hint="write it like 500ms, 30s, 5m, 1h30m or 7d")
    return sum(float(number) * _UNIT_S[unit] for number, unit in _DURATION.findall(text))


def _dateint_of_day(day: int) -> int:
    date = _EPOCH + dt.timedelta(days=day)
    return date.year * 10_000 + date.month * 100 + date.day


def parse_time_ms(name: str, text: str) -> int:
    """Parse seconds since the epoch, or an RFC 3339 time, to milliseconds.

    >>> parse_time_ms("time", "1.5"), parse_time_ms("time", "1970-01-01T00:00:02.25+00:00")
    (1500, 2250)
    """
    try:
        seconds = float(text)
    except ValueError:
        return _calendar_ms(name, text)
    if not math.isfinite(seconds) or "_" in text:
        raise _bad_time(name, text)
    return round(min(max(seconds * 1000, -FAR_MS), FAR_MS))


def _calendar_ms(name: str, text: str) -> int:
    if text in (_EARLIEST, _LATEST):
        return -FAR_MS if text == _EARLIEST else FAR_MS
    if not _TIME.fullmatch(text):
        raise _bad_time(name, text)
    head, _, fraction = text.upper().replace("Z", "+00:00").partition(".")
    digits = re.match(r"\d+", fraction)
    zone = fraction[digits.end() :] if digits else ""
    try:
        moment = dt.datetime.fromisoformat(head + zone)
        whole_s = (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)).total_seconds()
    except (ValueError, OverflowError):
        raise _bad_time(name, text) from None
    milliseconds = int((digits.group() if digits else "0").ljust(3, "0")[:3])
    return int(whole_s) * 1000 + milliseconds


def _bad_time(name: str, text: str) -> BadInput:
    return BadInput(f'invalid parameter "{name}": cannot parse {text[:50]!r} to a valid timestamp')
