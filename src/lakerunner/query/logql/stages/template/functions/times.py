"""Functions of times, and the methods of times."""

from __future__ import annotations

import time
from collections.abc import Callable

from lakerunner.query.logql.stages.go_errors import GoError
from lakerunner.query.logql.stages.template.functions.signature import (
    ANY,
    DURATION,
    INT,
    STRING,
    TIME,
    ZONE,
    Function,
    takes,
)
from lakerunner.query.logql.stages.template.go_layout import formatted
from lakerunner.query.logql.stages.template.go_numbers import parse_int, wrapped
from lakerunner.query.logql.stages.template.go_time import UTC, ZERO, Time, Zone, load_zone
from lakerunner.query.logql.stages.template.go_time_parse import parse_time
from lakerunner.query.logql.stages.template.go_types import Duration, Int64, Month, Value, Weekday

_DAY_S = 86_400
#: Digits of a number of days, seconds, … since 1970, and how many nanoseconds one of them has.
_UNITS_NS = {5: _DAY_S * 1_000_000_000, 10: 1_000_000_000, 13: 1_000_000, 16: 1_000, 19: 1}


def now() -> Time:
    return Time.of_ns(time.time_ns())


def _date(layout: str, value: Value) -> str:
    """A time by a layout, in UTC. A whole number is seconds; anything else is the present."""
    if type(value) in (int, Int64):
        value = Time(int(value))
    moment = value if isinstance(value, Time) else now()
    return formatted(moment.within(UTC), layout)


def _to_date_in_zone(layout: str, zone: str, text: str) -> Time:
    return parse_time(layout, text, load_zone(zone)) or ZERO


def _unix_to_time(text: str) -> Time:
    try:
        number = parse_int(text)
    except GoError as reason:
        raise GoError(f"unable to parse time '{text}': {reason}") from None
    unit = _UNITS_NS.get(len(text))
    if unit is None:
        raise GoError(f"unable to parse time '{text}': %!w(<nil>)")
    if unit >= 1_000_000_000:
        return Time(number * unit // 1_000_000_000)
    return Time.of_ns(wrapped(number * unit))


FUNCTIONS: tuple[Function, ...] = (
    takes("date", (STRING, ANY), _date),
    takes("toDate", (STRING, STRING), lambda layout, text: _to_date_in_zone(layout, "UTC", text)),
    takes("toDateInZone", (STRING, STRING, STRING), _to_date_in_zone),
    takes("unixEpoch", (TIME,), lambda moment: str(moment.seconds)),
    takes("unixEpochMillis", (TIME,), lambda moment: str(wrapped(moment.unix_ns // 1_000_000))),
    takes("unixEpochNanos", (TIME,), lambda moment: str(wrapped(moment.unix_ns))),
    takes("unixToTime", (STRING,), _unix_to_time),
    Function("now", (), now, pure=False),
)


def _rounded(moment: Time, unit: int) -> Time:
    """Rounded to a multiple of the unit since year 1, half up."""
    if unit <= 0:
        return moment
    rest = (moment.unix_ns - ZERO.unix_ns) % unit
    return moment.plus(-rest if rest + rest < unit else unit - rest)


def _truncated(moment: Time, unit: int) -> Time:
    return moment if unit <= 0 else moment.plus(-((moment.unix_ns - ZERO.unix_ns) % unit))


def _method(name: str, call: Callable[..., Value], *parameters: str) -> Function:
    return Function(name, parameters, call)


def _with_many_results(name: str, *results: str) -> Function:
    """A method that Go has but templates refuse, because it returns more than a value and an error."""
    reason = f"function {name} has {len(results)} return values; should be 1 or 2"
    if len(results) == 2:
        reason = f"invalid function signature for {name}: second return value should be error; is {results[1]}"
    return Function(name, (), str, refused=reason)


_OF_TIME = (
    _with_many_results("Clock", INT, INT, INT),
    _with_many_results("Date", INT, "time.Month", INT),
    _with_many_results("ISOWeek", INT, INT),
    _with_many_results("Zone", STRING, INT),
    _with_many_results("ZoneBounds", TIME, TIME),
    _method("Add", lambda moment, duration: moment.plus(duration), DURATION),
    _method("AddDate", lambda moment, years, months, days: moment.plus_date(years, months, days), INT, INT, INT),
    _method("After", lambda moment, other: moment.unix_ns > other.unix_ns, TIME),
    _method("Before", lambda moment, other: moment.unix_ns < other.unix_ns, TIME),
    _method("Compare", lambda moment, other: (moment.unix_ns > other.unix_ns) - (moment.unix_ns < other.unix_ns), TIME),
    _method("Equal", lambda moment, other: moment.unix_ns == other.unix_ns, TIME),
    _method("Sub", lambda moment, other: moment.minus(other), TIME),
    _method("Day", lambda moment: moment.date[2]),
    _method("Format", lambda moment, layout: formatted(moment, layout), STRING),
    _method("GoString", lambda moment: moment.go_string()),
    _method("Hour", lambda moment: moment.clock[0]),
    _method("In", lambda moment, zone: moment.within(zone), ZONE),
    _method("IsDST", lambda moment: moment.is_summer),
    _method("IsZero", lambda moment: moment.is_zero),
    _method("Local", lambda moment: moment.within(UTC)),
    _method("Location", lambda moment: moment.zone),
    _method("Minute", lambda moment: moment.clock[1]),
    _method("Month", lambda moment: moment.month),
    _method("Nanosecond", lambda moment: moment.nanos),
    _method("Round", _rounded, DURATION),
    _method("Second", lambda moment: moment.clock[2]),
    _method("String", str),
    _method("Truncate", _truncated, DURATION),
    _method("UTC", lambda moment: moment.within(UTC)),
    _method("Unix", lambda moment: Int64(moment.seconds)),
    _method("UnixMicro", lambda moment: Int64(wrapped(moment.unix_ns // 1_000))),
    _method("UnixMilli", lambda moment: Int64(wrapped(moment.unix_ns // 1_000_000))),
    _method("UnixNano", lambda moment: Int64(wrapped(moment.unix_ns))),
    _method("Weekday", lambda moment: moment.weekday),
    _method("Year", lambda moment: moment.date[0]),
    _method("YearDay", lambda moment: moment.year_day),
)
_OF_DURATION = (
    _method("Abs", lambda duration: Duration(abs(duration))),
    _method("Hours", lambda duration: duration / 3.6e12),
    _method("Microseconds", lambda duration: Int64(int(duration / 1_000))),
    _method("Milliseconds", lambda duration: Int64(int(duration / 1_000_000))),
    _method("Minutes", lambda duration: duration / 6e10),
    _method("Nanoseconds", lambda duration: Int64(duration)),
    _method("Seconds", lambda duration: duration / 1e9),
    _method("String", str),
)
_STRING = (_method("String", str),)

#: The methods of each type that has some.
METHODS: dict[type, dict[str, Function]] = {
    kind: {method.name: method for method in methods}
    for kind, methods in (
        (Time, _OF_TIME),
        (Duration, _OF_DURATION),
        (Month, _STRING),
        (Weekday, _STRING),
        (Zone, _STRING),
    )
}
