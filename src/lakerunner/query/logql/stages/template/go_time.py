"""Times as Go has them: any year, nanoseconds, and a zone that also says how the time is shown."""

from __future__ import annotations

import datetime
import functools
import zoneinfo
from dataclasses import dataclass
from typing import ClassVar

from lakerunner.query.logql.stages.template.go_layout import formatted
from lakerunner.query.logql.stages.template.go_types import Duration, Month, Weekday

_DAY_S = 86_400
_SECOND_NS = 1_000_000_000
_QUARTER_S = 91 * _DAY_S
#: Seconds from the first day of year 1 to 1970.
_YEAR_ONE_S = -62_135_596_800
#: Years that the zone database can be asked about. Others behave as the nearest of them.
_FIRST_S, _LAST_S = _YEAR_ONE_S + _DAY_S, 253_402_214_400


@dataclass(frozen=True, slots=True)
class Zone:
    """A fixed offset, or the rules of a place."""

    go_type: ClassVar[str] = "*time.Location"
    name: str
    offset_s: int = 0
    rules: zoneinfo.ZoneInfo | None = None

    def at(self, seconds: int) -> tuple[str, int]:
        """The abbreviation and the offset in effect at a time."""
        if self.rules is None:
            return self.name, self.offset_s
        inside = min(max(seconds, _FIRST_S), _LAST_S)
        moment = datetime.datetime.fromtimestamp(inside, datetime.UTC).astimezone(self.rules)
        offset = moment.utcoffset()
        return moment.tzname() or "", int(offset.total_seconds()) if offset is not None else 0

    def is_summer(self, seconds: int) -> bool:
        if self.rules is None:
            return False
        inside = min(max(seconds, _FIRST_S), _LAST_S)
        return bool(datetime.datetime.fromtimestamp(inside, datetime.UTC).astimezone(self.rules).dst())

    def offset_of(self, abbreviation: str, seconds: int) -> int | None:
        """The offset of an abbreviation such as `CEST`, if the place ever used it."""
        known = _abbreviations(self).get(abbreviation)
        if known is not None and self.at(seconds - known)[0] == abbreviation:
            return self.at(seconds - known)[1]
        return known

    def __str__(self) -> str:
        return self.name


UTC = Zone("UTC")


@functools.lru_cache(maxsize=512)
def _abbreviations(zone: Zone) -> dict[str, int]:
    """The abbreviations of a place and their offsets, found by looking at every quarter of a century and a half."""
    found: dict[str, int] = {}
    for quarter in range(-280, 272):
        name, offset = zone.at(quarter * _QUARTER_S)
        found.setdefault(name, offset)
    return found


@functools.lru_cache(maxsize=512)
def load_zone(name: str) -> Zone:
    """The zone of a name; UTC if nobody knows it. The server's own time is UTC too."""
    if name in ("", "UTC", "Local"):
        return UTC
    try:
        return Zone(name, rules=zoneinfo.ZoneInfo(name))
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


def days_of(year: int, month: int, day: int) -> int:
    """Days from 1970 to a date of the proleptic Gregorian calendar.

    >>> days_of(1970, 1, 1), days_of(0, 1, 1)
    (0, -719528)
    """
    year -= month <= 2
    era, within = divmod(year, 400)
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + within * 365 + within // 4 - within // 100 + day_of_year - 719_468


def date_of(days: int) -> tuple[int, int, int]:
    """The year, month and day that lie some days after 1970."""
    era, day = divmod(days + 719_468, 146_097)
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    return year + era * 400 + (month >= 10), month + (3 if month < 10 else -9), day - (153 * month + 2) // 5 + 1


def is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


@dataclass(frozen=True, slots=True)
class Time:
    """A moment, and the zone in which it is shown."""

    go_type: ClassVar[str] = "time.Time"
    seconds: int
    nanos: int = 0
    zone: Zone = UTC

    @classmethod
    def of_ns(cls, value_ns: int) -> Time:
        return cls(*divmod(value_ns, _SECOND_NS))

    @classmethod
    def of_clock(
        cls, date: tuple[int, int, int], clock: tuple[int, int, int], nanos: int = 0, zone: Zone = UTC
    ) -> Time:
        """The moment at which clocks in a zone show a date and a time. The parts may be out of range."""
        years, month = divmod(date[1] - 1, 12)
        days = days_of(date[0] + years, month + 1, 1) + date[2] - 1
        extra, nanos = divmod(nanos, _SECOND_NS)
        local = days * _DAY_S + clock[0] * 3600 + clock[1] * 60 + clock[2] + extra
        # As Go does: guess with the offset at that time in UTC, and look again.
        offset = zone.at(local)[1]
        offset = zone.at(local - offset)[1]
        return cls(local - offset, nanos, zone)

    @property
    def unix_ns(self) -> int:
        return self.seconds * _SECOND_NS + self.nanos

    def _local(self) -> int:
        return self.seconds + self.zone.at(self.seconds)[1]

    @property
    def date(self) -> tuple[int, int, int]:
        return date_of(self._local() // _DAY_S)

    @property
    def clock(self) -> tuple[int, int, int]:
        rest = self._local() % _DAY_S
        return rest // 3600, rest // 60 % 60, rest % 60

    @property
    def month(self) -> Month:
        return Month(self.date[1])

    @property
    def weekday(self) -> Weekday:
        return Weekday((self._local() // _DAY_S + 4) % 7)

    @property
    def year_day(self) -> int:
        return self._local() // _DAY_S - days_of(self.date[0], 1, 1) + 1

    @property
    def is_zero(self) -> bool:
        return self.seconds == _YEAR_ONE_S and self.nanos == 0

    @property
    def is_summer(self) -> bool:
        """Whether daylight saving time is in effect."""
        return self.zone.is_summer(self.seconds)

    def within(self, zone: Zone) -> Time:
        return Time(self.seconds, self.nanos, zone)

    def plus(self, duration_ns: int) -> Time:
        return Time(*divmod(self.unix_ns + duration_ns, _SECOND_NS), self.zone)

    def minus(self, other: Time) -> Duration:
        limit = (1 << 63) - 1
        return Duration(min(max(self.unix_ns - other.unix_ns, -limit - 1), limit))

    def plus_date(self, years: int, months: int, days: int) -> Time:
        year, month, day = self.date
        return Time.of_clock((year + years, month + months, day + days), self.clock, self.nanos, self.zone)

    def __str__(self) -> str:
        return formatted(self, "2006-01-02 15:04:05.999999999 -0700 MST")

    def go_string(self) -> str:
        """The time as `%#v` shows it."""
        year, month, day = self.date
        hour, minute, second = self.clock
        zone = "time.UTC" if self.zone == UTC else f'time.Location("{self.zone}")'
        parts = f"{year}, time.{Month(month)}, {day}, {hour}, {minute}, {second}, {self.nanos}"
        return f"time.Date({parts}, {zone})"


#: What Go's functions give for a text that is no time.
ZERO = Time(_YEAR_ONE_S)
