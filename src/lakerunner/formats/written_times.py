"""Parse written dates and times, in the forms that loggers use, to nanoseconds.

A text is brought into ISO 8601 first, by regular expressions over the whole column, and Arrow parses that. A text
without a zone is UTC. Where the year or the day is missing, it is taken from the time of the object, so that the
result is not in its future.
"""

# ruff: noqa: E501  a pattern is easier to read on one line

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import Ints
from lakerunner.formats.patterns import order_of
from lakerunner.model.time import NS_PER_DAY

UTC_NANOS = pa.timestamp("ns", "UTC")
Mask = npt.NDArray[np.bool_]

_NONE = pa.scalar(None, pa.string())
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
#: Zones that logs name. A zone that is not here is not guessed: the text counts as unreadable.
_ZONES = {
    "Z": "Z", "UTC": "Z", "GMT": "Z", "WET": "Z", "BST": "+01:00", "WEST": "+01:00", "CET": "+01:00", "MEZ": "+01:00",
    "CEST": "+02:00", "EET": "+02:00", "EEST": "+03:00", "MSK": "+03:00", "JST": "+09:00", "KST": "+09:00",
    "AEST": "+10:00", "AEDT": "+11:00", "EST": "-05:00", "EDT": "-04:00", "CST": "-06:00", "CDT": "-05:00",
    "MST": "-07:00", "MDT": "-06:00", "PST": "-08:00", "PDT": "-07:00",
}  # fmt: skip

_MONTH = "(?P<month>" + "|".join(_MONTHS) + r")[A-Z]*\.?"
_WEEKDAY = r"(?:(?:MON|TUE|WED|THU|FRI|SAT|SUN)[A-Z]*,?\s+)?"
_CLOCK = (
    r"(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,:](?P<fraction>\d{1,12}))?)?(?:\s*(?P<half>AM|PM))?"
)
_ZONE = r"\s*(?:\(?(?P<zone>Z|[+-]\d\d(?::?\d\d)?|[A-Z]{2,4})\)?)?"
#: ISO 8601 as Arrow reads it.
_ISO = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d(:?\d\d)?)?$"
_UNZONED = r"[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?$"

#: The written forms, in upper case, with an example of each. The first that matches wins.
SHAPES: tuple[tuple[str, str], ...] = (
    ("2026-11-16 05:00:00,123 +0100", rf"^(?P<year>\d{{4}})[-/.](?P<month>\d{{1,2}})[-/.](?P<day>\d{{1,2}})[T\s_,-]+{_CLOCK}{_ZONE}$"),
    ("2026-11-16", r"^(?P<year>\d{4})[-/.](?P<month>\d\d)[-/.](?P<day>\d\d)$"),
    ("16/Nov/2026:05:00:00 +0000", rf"^{_WEEKDAY}(?P<day>\d{{1,2}})[-/\s]{_MONTH}[-/\s,]+(?P<year>\d{{4}}|\d\d)[:\s,T]+{_CLOCK}{_ZONE}$"),
    ("16 Nov 05:00:00.123", rf"^(?P<day>\d{{1,2}})[-/\s]{_MONTH}\s+{_CLOCK}{_ZONE}$"),
    ("Nov 16, 2026 5:00:00 AM", rf"^{_WEEKDAY}{_MONTH}\s+(?P<day>\d{{1,2}}),?\s+(?P<year>\d{{4}}),?\s+{_CLOCK}{_ZONE}$"),
    ("Mon Nov 16 05:00:00.123456 2026", rf"^{_WEEKDAY}{_MONTH}\s+(?P<day>\d{{1,2}})\s+{_CLOCK}{_ZONE}\s+(?P<year>\d{{4}})$"),
    ("Nov 16 05:00:00", rf"^{_WEEKDAY}{_MONTH}\s+(?P<day>\d{{1,2}})\s+{_CLOCK}{_ZONE}$"),
    ("16/11/2026 05:00:00", rf"^(?P<day>1[3-9]|2\d|3[01])[-/.](?P<month>\d{{1,2}})[-/.](?P<year>\d{{4}}),?\s+{_CLOCK}{_ZONE}$"),
    ("16.11.2026 05:00:00", rf"^(?P<day>\d{{1,2}})\.(?P<month>\d{{1,2}})\.(?P<year>\d{{4}}),?\s+{_CLOCK}{_ZONE}$"),
    ("11/16/2026, 5:00:00 AM", rf"^(?P<month>\d{{1,2}})[-/](?P<day>\d{{1,2}})[-/](?P<year>\d{{4}}),?\s+{_CLOCK}{_ZONE}$"),
    ("26/11/16 05:00:00", rf"^(?P<year>\d\d)/(?P<month>0\d|1[0-2])/(?P<day>\d\d)\s+{_CLOCK}{_ZONE}$"),
    ("11/16/26 05:00:00", rf"^(?P<month>\d\d)/(?P<day>\d\d)/(?P<year>\d\d),?\s+{_CLOCK}{_ZONE}$"),
    ("20261116T050000.123Z", r"^(?P<year>\d{4})(?P<month>\d\d)(?P<day>\d\d)[T\s_-]?(?P<hour>\d\d):?(?P<minute>\d\d):?(?P<second>\d\d)(?:[.,:](?P<fraction>\d{1,12}))?" + _ZONE + "$"),
    ("261116 050000", r"^(?P<year>\d\d)(?P<month>\d\d)(?P<day>\d\d)\s+(?P<hour>\d{1,2}):?(?P<minute>\d\d):?(?P<second>\d\d)(?:\.(?P<fraction>\d{1,12}))?$"),
    ("1116 05:00:00.123456", rf"^(?P<month>\d\d)[-/]?(?P<day>\d\d)[\s|]+{_CLOCK}$"),
    ("2026-11-16-05.00.00.123456", r"^(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)[-\s](?P<hour>\d\d)\.(?P<minute>\d\d)\.(?P<second>\d\d)(?:\.(?P<fraction>\d{1,12}))?$"),
    ("05:00:00.123", rf"^{_CLOCK}{_ZONE}$"),
)  # fmt: skip
_PARTS = ("year", "month", "day", "hour", "minute", "second", "fraction", "half", "zone")
#: A record without a year may be this much later than its object (a clock that is ahead) before it belongs to the
#: year before; one without a day, before it belongs to the day before.
_AHEAD_OF_YEAR_NS = 2 * NS_PER_DAY
_AHEAD_OF_DAY_NS = NS_PER_DAY // 2


def from_written(text: pa.Array, near_ns: int | None) -> tuple[Ints, Mask]:
    """Return nanoseconds for each text, and a mask of those that could be parsed."""
    text = pc.replace_substring_regex(text, r"^(\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d),(\d)", r"\1.\2")
    nanos, valid = _from_iso(text)
    if valid.all():
        return nanos, valid
    # Most of these forms resolve a second, so a file has few of them.
    rows = np.flatnonzero(~valid & text.is_valid().to_numpy(zero_copy_only=False))
    encoded = text.take(pa.array(rows)).dictionary_encode()
    known, read = _from_shapes(pc.utf8_upper(encoded.dictionary), near_ns)
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    nanos[rows], valid[rows] = known[codes], read[codes]
    return nanos, valid


def _from_shapes(text: pa.Array, near_ns: int | None) -> tuple[Ints, Mask]:
    nanos, valid = np.zeros(len(text), np.int64), np.zeros(len(text), np.bool_)
    left = np.arange(len(text))
    for number in order_of([pattern for _, pattern in SHAPES], text):
        if not len(left):
            break
        parts = pc.extract_regex(text, SHAPES[number][1])
        hit = parts.is_valid().to_numpy(zero_copy_only=False)
        if hit.any():
            found, read = _from_parts(parts.filter(pa.array(hit)), near_ns)
            nanos[left[hit]], valid[left[hit]] = found, read
            left, text = left[~hit], text.filter(pa.array(~hit))
    return nanos, valid


def _from_iso(text: pa.Array) -> tuple[Ints, Mask]:
    """Parse the texts that are ISO 8601 already."""
    iso = pc.fill_null(pc.match_substring_regex(text, _ISO), False)
    text = pc.if_else(iso, text, _NONE)
    unzoned = pc.fill_null(pc.match_substring_regex(text, _UNZONED), False)
    if pc.any(unzoned).as_py():
        text = pc.if_else(unzoned, pc.binary_join_element_wise(text, "Z", ""), text)
    try:
        nanos, valid = plain(text.cast(UTC_NANOS))
        return nanos.copy(), valid.copy()
    except pa.ArrowInvalid:
        # One of them is no date, such as a 13th month. Only that one fails.
        encoded = text.dictionary_encode()
        known = pa.array([_timestamp(value) for value in encoded.dictionary], UTC_NANOS)
        nanos, valid = plain(known.take(encoded.indices))
        return nanos.copy(), valid.copy()


def _timestamp(text: pa.StringScalar) -> pa.Scalar | None:
    try:
        return text.cast(UTC_NANOS)
    except pa.ArrowInvalid:
        return None


def _from_parts(parts: pa.StructArray, near_ns: int | None) -> tuple[Ints, Mask]:
    """Parse texts that a shape took apart."""
    names = {field.name for field in parts.type}
    part = {name: parts.field(name) if name in names else None for name in _PARTS}
    has_day, has_year = part["day"] is not None, part["year"] is not None
    if not has_year and near_ns is None:
        return np.zeros(len(parts), np.int64), np.zeros(len(parts), np.bool_)
    near = np.datetime64(near_ns or 0, "ns")
    year = part["year"] if has_year else str(near.astype("datetime64[Y]"))
    if not has_day:
        day = str(near.astype("datetime64[D]"))
        return _earlier(_from_iso(_iso(day, part)), near_ns, _AHEAD_OF_DAY_NS, -NS_PER_DAY)
    if has_year:
        return _from_iso(_iso(_date(_full_year(year), part), part))
    this = _from_iso(_iso(_date(year, part), part))
    last = _from_iso(_iso(_date(str(near.astype("datetime64[Y]") - 1), part), part))
    ahead = this[0] > (near_ns or 0) + _AHEAD_OF_YEAR_NS
    # The 29th of February exists in one of the two years only.
    before = (ahead | ~this[1]) & last[1]
    return np.where(before, last[0], this[0]), this[1] | last[1]


def _earlier(found: tuple[Ints, Mask], near_ns: int | None, ahead_ns: int, step_ns: int) -> tuple[Ints, Mask]:
    nanos, valid = found
    return np.where(nanos > (near_ns or 0) + ahead_ns, nanos + step_ns, nanos), valid


def _full_year(year: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(pc.utf8_length(year), 2), pc.binary_join_element_wise("20", year, ""), year)


def _date(year: pa.Array | str, part: dict[str, pa.Array | None]) -> pa.Array:
    numbers = {name: f"{number:02}" for number, name in enumerate(_MONTHS, 1)}
    month = _mapped(part["month"], lambda text: numbers.get(text[:3], text))
    return pc.binary_join_element_wise(year, pc.utf8_lpad(month, 2, "0"), pc.utf8_lpad(part["day"], 2, "0"), "-")


def _iso(date: pa.Array | str, part: dict[str, pa.Array | None]) -> pa.Array:
    hour = part["hour"]
    if hour is None:
        return pc.binary_join_element_wise(date, "T00:00:00Z", "")
    hour = pc.utf8_lpad(hour, 2, "0")
    if part["half"] is not None:
        hour = _mapped(pc.binary_join_element_wise(hour, part["half"], " "), _hour_of_day)
    fraction = part["fraction"]
    if fraction is None:
        fraction = ""
    else:
        fraction = pc.utf8_slice_codeunits(fraction, 0, 9)
        fraction = pc.if_else(pc.equal(fraction, ""), fraction, pc.binary_join_element_wise(".", fraction, ""))
    zone = "" if part["zone"] is None else _mapped(part["zone"], lambda text: _ZONES.get(text, text))
    second: pa.Array | str = "00"
    if part["second"] is not None:
        second = pc.if_else(pc.equal(part["second"], ""), "00", part["second"])
    clock = pc.binary_join_element_wise(hour, part["minute"], second, ":")
    return pc.binary_join_element_wise(pc.binary_join_element_wise(date, clock, "T"), fraction, zone, "")


def _hour_of_day(text: str) -> str:
    """Return the hour of `05 PM`, or of `05 ` where there is no AM or PM."""
    hour, _, half = text.partition(" ")
    return f"{int(hour) % 12 + (12 if half == 'PM' else 0):02}" if half else hour


def _mapped(texts: pa.Array, function: Callable[[str], str]) -> pa.Array:
    encoded = texts.dictionary_encode()
    return pa.array([function(text) for text in encoded.dictionary.to_pylist()], pa.string()).take(encoded.indices)


def plain(nanos: pa.Array) -> tuple[Ints, Mask]:
    valid = nanos.is_valid().to_numpy(zero_copy_only=False)
    return nanos.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False), valid
