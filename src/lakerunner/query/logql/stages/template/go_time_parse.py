"""Times from texts by Go's layouts."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from lakerunner.query.logql.stages.template.go_layout import chunks
from lakerunner.query.logql.stages.template.go_time import UTC, Time, Zone, date_of, days_of, is_leap
from lakerunner.query.logql.stages.template.go_types import MONTHS, WEEKDAYS

_MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_SPACE = " "
_SHORT_YEAR = re.compile("[-+0-9][0-9]")
#: What is left of a text must be as long, even where the zone is not.
_SHORTEST_ZONE = 3
_ZONE_NAME = re.compile(
    r"ChST|MeST|GMT(?:[+-][0-9]+)?|[+-][0-9]+|[A-Z]{4}T(?![A-Z])|[A-Z]{3}T(?![A-Z])|WITA(?![A-Z])|[A-Z]{3}(?![A-Z])"
)


class _BadTime(Exception):
    """The text does not fit the layout."""


@dataclass(slots=True)
class _Parts:
    """What a text says so far."""

    year: int = 0
    month: int = -1
    day: int = -1
    year_day: int = -1
    hour: int = 0
    minute: int = 0
    second: int = 0
    nanos: int = 0
    afternoon: bool | None = None
    zone: Zone | None = None
    offset_s: int | None = None
    zone_name: str = ""


def parse_time(layout: str, text: str, place: Zone) -> Time | None:
    """The time that a text says, in the zone of a place unless it names one; None if it does not fit the layout.

    >>> print(parse_time("Jan 2 2006", "Nov 1 2026", UTC))
    2026-11-01 00:00:00 +0000 UTC
    """
    parts = _Parts()
    pairs = chunks(layout)
    try:
        for number, (literal, part) in enumerate(pairs):
            text = _skipped(text, literal)
            if part:
                text = _read(parts, part, text, pairs[number + 1][1])
            elif text:
                return None
        return _time(parts, place)
    except (_BadTime, IndexError):
        return None


def _skipped(text: str, literal: str) -> str:
    """The text after the literal. Any spaces match any spaces."""
    while literal:
        if literal[0] == _SPACE:
            if text and text[0] != _SPACE:
                raise _BadTime
            literal, text = literal.lstrip(_SPACE), text.lstrip(_SPACE)
            continue
        if not text or text[0] != literal[0]:
            raise _BadTime
        literal, text = literal[1:], text[1:]
    return text


def _digit(text: str, at: int) -> bool:
    return at < len(text) and text[at] in "0123456789"


def _number(text: str, least: int, most: int) -> tuple[int, str]:
    """A number of some digits, as many as there are up to `most`."""
    length = 0
    while length < most and _digit(text, length):
        length += 1
    if length < least:
        raise _BadTime
    return int(text[:length]), text[length:]


def _ranged(value: int, least: int, most: int) -> int:
    if not least <= value <= most:
        raise _BadTime
    return value


def _name(names: tuple[str, ...], text: str, width: int | None = None) -> tuple[int, str]:
    """Which of the names the text begins with, in any case."""
    for number, name in enumerate(names):
        shown = name[:width]
        if text[: len(shown)].lower() == shown.lower():
            return number, text[len(shown) :]
    raise _BadTime


def _read(parts: _Parts, part: str, text: str, following: str) -> str:
    """Read one part of the layout; give back the rest of the text."""
    if part in _DATE_READERS:
        return _DATE_READERS[part](parts, text)
    if part in ("15", "3", "03"):
        parts.hour, text = _number(text, 2 if part == "03" else 1, 2)
        _ranged(parts.hour, 0, 23 if part == "15" else 12)
    elif part in ("4", "04"):
        parts.minute, text = _number(text, len(part), 2)
        _ranged(parts.minute, 0, 59)
    elif part in ("5", "05"):
        parts.second, text = _number(text, len(part), 2)
        _ranged(parts.second, 0, 59)
        # A fraction may follow the seconds though the layout does not mention it.
        if text[:1] in (".", ",") and _digit(text, 1) and following[:1] not in (".", ","):
            text = _read_fraction(parts, text)
    elif part in ("PM", "pm"):
        word = text[:2]
        if word not in (("AM", "PM") if part == "PM" else ("am", "pm")):
            raise _BadTime
        parts.afternoon, text = word[0] in "Pp", text[2:]
    elif part[0] in ".,":
        if part[1] == "0":
            return _read_exact_fraction(parts, text, len(part) - 1)
        if text[:1] in (".", ",") and _digit(text, 1):
            text = _read_fraction(parts, text)
    elif part == "MST":
        text = _read_zone_name(parts, text)
    else:
        text = _read_offset(parts, part, text)
    return text


def _read_fraction(parts: _Parts, text: str) -> str:
    end = 1
    while _digit(text, end):
        end += 1
    parts.nanos = int(text[1:end][:9].ljust(9, "0"))
    return text[end:]


def _read_exact_fraction(parts: _Parts, text: str, digits: int) -> str:
    if len(text) < digits + 1 or text[0] not in ".," or not all(_digit(text, at) for at in range(1, digits + 1)):
        raise _BadTime
    parts.nanos = int(text[1 : digits + 1][:9].ljust(9, "0"))
    return text[digits + 1 :]


def _read_long_year(parts: _Parts, text: str) -> str:
    parts.year, text = _number(text, 4, 4)
    return text


def _read_year(parts: _Parts, text: str) -> str:
    # A sign may take the place of the first digit.
    found = _SHORT_YEAR.match(text)
    if found is None:
        raise _BadTime
    year, text = int(found[0]), text[2:]
    parts.year = year + (1900 if year >= 69 else 2000)
    return text


def _read_month_name(parts: _Parts, text: str) -> str:
    month, text = _name(MONTHS, text, 3)
    parts.month = month + 1
    return text


def _read_long_month_name(parts: _Parts, text: str) -> str:
    month, text = _name(MONTHS, text)
    parts.month = month + 1
    return text


def _read_month(parts: _Parts, text: str, least: int = 1) -> str:
    parts.month, text = _number(text, least, 2)
    _ranged(parts.month, 1, 12)
    return text


def _read_day(parts: _Parts, text: str, least: int = 1) -> str:
    # Whether the month has the day is known only at the end.
    parts.day, text = _number(text, least, 2)
    return text


def _read_year_day(parts: _Parts, text: str, least: int = 1) -> str:
    parts.year_day, text = _number(text, least, 3)
    return text


def _without_spaces(text: str, most: int) -> str:
    for _ in range(most):
        text = text.removeprefix(_SPACE)
    return text


_DATE_READERS: dict[str, Callable[[_Parts, str], str]] = {
    "2006": _read_long_year,
    "06": _read_year,
    "Jan": _read_month_name,
    "January": _read_long_month_name,
    "1": _read_month,
    "01": lambda parts, text: _read_month(parts, text, 2),
    "Mon": lambda parts, text: _name(WEEKDAYS, text, 3)[1],
    "Monday": lambda parts, text: _name(WEEKDAYS, text)[1],
    "2": _read_day,
    "_2": lambda parts, text: _read_day(parts, _without_spaces(text, 1)),
    "02": lambda parts, text: _read_day(parts, text, 2),
    "__2": lambda parts, text: _read_year_day(parts, _without_spaces(text, 2)),
    "002": lambda parts, text: _read_year_day(parts, text, 3),
}


def _read_zone_name(parts: _Parts, text: str) -> str:
    if text.startswith("UTC"):
        parts.zone = UTC
        return text[3:]
    found = _ZONE_NAME.match(text)
    if found is None or len(text) < _SHORTEST_ZONE:
        raise _BadTime
    name = found[0]
    hours = re.search("[0-9]+", name)
    if hours is not None and int(hours[0]) > 23:
        if not name.startswith("GMT"):
            raise _BadTime
        name = "GMT"
    parts.zone_name = name
    return text[len(name) :]


def _read_offset(parts: _Parts, part: str, text: str) -> str:
    if part[0] == "Z" and text[:1] == "Z":
        parts.zone = UTC
        return text[1:]
    shape = "([+-])([0-9]{2})" + part[3:].replace("00", "([0-9]{2})")
    found = re.match(shape, text)
    if found is None:
        raise _BadTime
    numbers = [int(each) for each in found.groups()[1:]] + [0, 0]
    _ranged(numbers[0], 0, 24)
    _ranged(numbers[1], 0, 60)
    _ranged(numbers[2], 0, 60)
    offset = (numbers[0] * 60 + numbers[1]) * 60 + numbers[2]
    parts.offset_s = -offset if found[1] == "-" else offset
    return text[found.end() :]


def _time(parts: _Parts, place: Zone) -> Time:
    if parts.afternoon is True and parts.hour < 12:
        parts.hour += 12
    elif parts.afternoon is False and parts.hour == 12:
        parts.hour = 0
    date = _date(parts)
    clock = (parts.hour, parts.minute, parts.second)
    if parts.zone is not None:
        return Time.of_clock(date, clock, parts.nanos, parts.zone)
    if parts.offset_s is None and not parts.zone_name:
        return Time.of_clock(date, clock, parts.nanos, place)
    time = Time.of_clock(date, clock, parts.nanos)
    if parts.offset_s is not None:
        time = Time(time.seconds - parts.offset_s, time.nanos)
        name, offset = place.at(time.seconds)
        if offset == parts.offset_s and parts.zone_name in ("", name):
            return time.within(place)
        return time.within(Zone(parts.zone_name, parts.offset_s))
    found = place.offset_of(parts.zone_name, time.seconds)
    if found is not None:
        return Time(time.seconds - found, time.nanos, place)
    hours = int(parts.zone_name[3:]) if re.fullmatch("GMT[+-][0-9]+", parts.zone_name) else 0
    return time.within(Zone(parts.zone_name, hours * 3600))


def _date(parts: _Parts) -> tuple[int, int, int]:
    year, month, day = parts.year, parts.month, parts.day
    if parts.year_day >= 0:
        _ranged(parts.year_day, 1, 366 if is_leap(year) else 365)
        found = date_of(days_of(year, 1, 1) + parts.year_day - 1)
        if month not in (-1, found[1]) or day not in (-1, found[2]):
            raise _BadTime
        return found
    month, day = max(month, 1), 1 if day == -1 else day
    _ranged(day, 1, 29 if month == 2 and is_leap(year) else _MONTH_DAYS[month - 1])
    return year, month, day
