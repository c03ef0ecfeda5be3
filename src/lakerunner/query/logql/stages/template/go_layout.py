"""Go's time layouts, in which the reference time `Mon Jan 2 15:04:05 MST 2006` shows how a time looks."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from lakerunner.query.logql.stages.template.go_types import MONTHS, WEEKDAYS

if TYPE_CHECKING:
    from lakerunner.query.logql.stages.template.go_time import Time

#: The parts of a layout, longest first where one begins like another.
_CHUNKS = re.compile(
    r"January|Jan(?![a-z])|Monday|Mon(?![a-z])|MST|002|0[1-6]|15|1|2006|2|_(?=2006)|__2|_2|3|4|5|PM|pm"
    r"|[-Z]07(?:00(?:00)?|:00(?::00)?)?|[.,](?:0+|9+)(?![0-9])"
)


@functools.lru_cache(maxsize=256)
def chunks(layout: str) -> tuple[tuple[str, str], ...]:
    """The layout as pairs of a literal text and the part that follows it; the last part is empty.

    >>> chunks("on 2006-01")
    (('on ', '2006'), ('-', '01'), ('', ''))
    """
    found: list[tuple[str, str]] = []
    start = 0
    at = 0
    while chunk := _CHUNKS.search(layout, at):
        at = chunk.end()
        if chunk[0] == "_":
            # `_2006` is an underscore before a year.
            continue
        found.append((layout[start : chunk.start()], chunk[0]))
        start = at
    return (*found, (layout[start:], ""))


def formatted(time: Time, layout: str) -> str:
    """The time by a layout.

    >>> from lakerunner.query.logql.stages.template.go_time import Time
    >>> formatted(Time(1_793_527_200), "Jan _2 Mon 3PM")
    'Nov  1 Sun 10AM'
    """
    return "".join(literal + (_shown(time, part) if part else "") for literal, part in chunks(layout))


def _shown(time: Time, part: str) -> str:
    if part[0] in ".,":
        return _fraction(time.nanos, part)
    if part == "MST" or part[:3] in ("-07", "Z07"):
        return _zone(time, part)
    year, month, day = time.date
    hour, minute, second = time.clock
    values: dict[str, Callable[[], str]] = {
        "2006": lambda: _padded(year, 4),
        "06": lambda: f"{year % 100:02d}",
        "January": lambda: MONTHS[month - 1],
        "Jan": lambda: MONTHS[month - 1][:3],
        "1": lambda: str(month),
        "01": lambda: f"{month:02d}",
        "Monday": lambda: WEEKDAYS[time.weekday],
        "Mon": lambda: WEEKDAYS[time.weekday][:3],
        "2": lambda: str(day),
        "_2": lambda: f"{day:2d}",
        "02": lambda: f"{day:02d}",
        "__2": lambda: f"{time.year_day:3d}",
        "002": lambda: f"{time.year_day:03d}",
        "15": lambda: f"{hour:02d}",
        "3": lambda: str(hour % 12 or 12),
        "03": lambda: f"{hour % 12 or 12:02d}",
        "4": lambda: str(minute),
        "04": lambda: f"{minute:02d}",
        "5": lambda: str(second),
        "05": lambda: f"{second:02d}",
        "PM": lambda: "PM" if hour >= 12 else "AM",
        "pm": lambda: "pm" if hour >= 12 else "am",
    }
    return values[part]()


def _padded(year: int, width: int) -> str:
    return f"-{-year:0{width}d}" if year < 0 else f"{year:0{width}d}"


def _fraction(nanos: int, part: str) -> str:
    digits = f"{nanos:09d}".ljust(len(part) - 1, "0")[: len(part) - 1]
    if part[1] == "9":
        digits = digits.rstrip("0")
        return part[0] + digits if digits else ""
    return part[0] + digits


def _zone(time: Time, part: str) -> str:
    name, offset = time.zone.at(time.seconds)
    if part == "MST" and name:
        return name
    if part[0] == "Z" and offset == 0:
        return "Z"
    sign, rest = ("-", -offset) if offset < 0 else ("+", offset)
    hours, minutes, seconds = rest // 3600, rest // 60 % 60, rest % 60
    if part == "MST":
        # A zone without a name.
        part = "-0700"
    colon = ":" if ":" in part else ""
    pieces = [f"{hours:02d}", f"{minutes:02d}", f"{seconds:02d}"]
    return sign + colon.join(pieces[: len(part.replace(":", "")[1:]) // 2])
