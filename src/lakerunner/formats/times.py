"""Parse times in any common form, numbers or text, without knowing the unit.

The size of a number decides its unit: below 1e11 seconds, below 1e14 milliseconds, below 1e17 microseconds, else
nanoseconds. This is right for every time from March 1973 to the year 5138. Text without a zone is UTC.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import Ints
from lakerunner.formats.written_times import UTC_NANOS, Mask, from_written, plain

_SECONDS_BELOW, _MILLIS_BELOW, _MICROS_BELOW = 1e11, 1e14, 1e17
_NUMBER = r"^[+-]?\d{1,19}(\.\d+)?([eE][+-]?\d{1,2})?$"
_FOURTEEN_DIGITS = r"^(19|20)\d\d(0[1-9]|1[0-2])([0-2]\d|3[01])([01]\d|2[0-3])[0-5]\d[0-5]\d$"
_NONE = pa.scalar(None, pa.string())


def to_nanos(array: pa.Array, near_ns: int | None = None) -> tuple[Ints, Mask]:
    """Return nanoseconds since 1970 for each value, and a mask of those that could be parsed; the others are 0.

    `near_ns` is the time of the object. It supplies the year or the day where a text has none.
    """
    kind = array.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _from_timestamps(array)
    if pa.types.is_integer(kind):
        return _from_integers(array)
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _from_floats(array.cast(pa.float64()))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _from_texts(array.cast(pa.string()), near_ns)
    return np.zeros(len(array), np.int64), np.zeros(len(array), np.bool_)


def _from_timestamps(array: pa.Array) -> tuple[Ints, Mask]:
    if pa.types.is_timestamp(array.type) and array.type.tz is None:
        array = array.cast(pa.timestamp(array.type.unit, "UTC"))
    try:
        nanos = array.cast(UTC_NANOS)
    except pa.ArrowInvalid:
        # One time lies outside of 64-bit nanoseconds (1677 to 2262). As text, only that one fails.
        return from_written(pc.strftime(array.cast(pa.timestamp("us", "UTC")), "%Y-%m-%dT%H:%M:%SZ"), None)
    return plain(nanos)


def _from_integers(array: pa.Array) -> tuple[Ints, Mask]:
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    filled = array.fill_null(0)
    if filled.type == pa.uint64():
        unsigned = filled.to_numpy(zero_copy_only=False)
        valid &= unsigned <= np.uint64(np.iinfo(np.int64).max)
        whole = unsigned.view(np.int64)
    else:
        whole = filled.cast(pa.int64()).to_numpy(zero_copy_only=False)
    size = np.abs(whole.astype(np.float64))
    unit = _unit(size)
    valid &= size * unit < np.iinfo(np.int64).max
    return np.where(valid, whole * unit, 0), valid


def _from_floats(array: pa.Array) -> tuple[Ints, Mask]:
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    number = array.fill_null(0.0).to_numpy(zero_copy_only=False)
    valid &= np.isfinite(number)
    number = np.where(valid, number, 0.0)
    unit = _unit(np.abs(number))
    valid &= np.abs(number) * unit < np.iinfo(np.int64).max
    number = np.where(valid, number, 0.0)
    # The fraction is rounded to a microsecond on its own: a float of today's seconds resolves a quarter of one, so
    # 1763200000.123 keeps the digits as written.
    whole = np.floor(number)
    part = np.round((number - whole) * (unit / 1_000)).astype(np.int64) * 1_000
    return whole.astype(np.int64) * unit + part, valid


def _unit(size: npt.NDArray[np.float64]) -> Ints:
    """Return the nanoseconds in one unit of each number."""
    return np.select(
        [size < _SECONDS_BELOW, size < _MILLIS_BELOW, size < _MICROS_BELOW], [1_000_000_000, 1_000_000, 1_000], 1
    ).astype(np.int64)


def _from_texts(array: pa.Array, near_ns: int | None) -> tuple[Ints, Mask]:
    text = pc.utf8_trim_whitespace(array)
    numeric = pc.fill_null(pc.match_substring_regex(text, _NUMBER), False)
    # Fourteen digits that begin with a year are a date and a time, not milliseconds of the year 2612.
    numeric = pc.and_(numeric, pc.invert(pc.fill_null(pc.match_substring_regex(text, _FOURTEEN_DIGITS), False)))
    nanos, valid = from_written(pc.if_else(numeric, _NONE, text), near_ns)
    if pc.any(numeric).as_py():
        numbers, read = _from_digits(pc.if_else(numeric, text, _NONE))
        nanos, valid = np.where(read, numbers, nanos), valid | read
    return nanos, valid


#: Whole numbers that 64 bits hold, up to January 2262 as nanoseconds; the few beyond are read as decimals.
_WHOLE = r"^[+-]?(\d{1,18}|[0-8]\d{18}|9[01]\d{17}|92[01]\d{16}|922[0-2]\d{15})$"


def _from_digits(text: pa.Array) -> tuple[Ints, Mask]:
    """Parse decimal numbers. Whole numbers stay integers: a float cannot hold nanoseconds."""
    whole = pc.fill_null(pc.match_substring_regex(text, _WHOLE), False)
    nanos, valid = _from_integers(pc.utf8_ltrim(pc.if_else(whole, text, _NONE), "+").cast(pa.int64()))
    parts, read = _from_floats(pc.if_else(whole, _NONE, text).cast(pa.float64()))
    return np.where(read, parts, nanos), valid | read
