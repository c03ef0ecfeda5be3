"""Numbers, durations and sizes in the values of labels, read as Go's libraries read them, with their error texts.

Each distinct value is read once. Plain decimal numbers, which seldom repeat, are read as a whole column, and short ones
by a kernel.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.errors import BadInput
from lakerunner.model.text_bytes import text_bytes
from lakerunner.query.logql.durations import parse_go_duration_ns
from lakerunner.query.logql.entries import Check, Mask, encoded, plain, valid
from lakerunner.query.logql.stages.decimal_kernel import read_short_decimals
from lakerunner.query.logql.stages.go_errors import GoError
from lakerunner.query.syntax.strings import quote

Numbers = npt.NDArray[np.float64] | npt.NDArray[np.int64]

_VALUES_PER_CHECK = 1 << 14
_PLAIN_NUMBER = r"^-?[0-9]{1,15}(\.[0-9]{1,15})?$"
_DIGITS = r"\d+(?:_\d+)*"
_NUMBER = re.compile(rf"[+-]?(?:{_DIGITS}\.?(?:{_DIGITS})?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?", re.ASCII)
_HEX_NUMBER = re.compile(r"[+-]?0[xX]_?(?:[0-9a-fA-F_]+\.?[0-9a-fA-F_]*|\.[0-9a-fA-F_]+)[pP][+-]?\d+", re.ASCII)
_INFINITE = re.compile(r"[+-]?inf(?:inity)?", re.IGNORECASE | re.ASCII)
_NAN = re.compile("nan", re.IGNORECASE | re.ASCII)
#: Digits of all scripts.
_SIZE = re.compile(r"[\d.,]*")
_PREFIXES = "kmgtpe"
_UNITS = {"": 1, "b": 1} | {
    f"{prefix}{suffix}": base**power
    for power, prefix in enumerate(_PREFIXES, 1)
    for suffix, base in (("", 1000), ("b", 1000), ("i", 1024), ("ib", 1024))
}
_DURATION_NUMBER = re.compile(r"(\d*)(\.\d*)?", re.ASCII)
_DURATION_UNIT = re.compile(r"[^.\d]*", re.ASCII)
_DURATION_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9}
_DURATION_UNITS["h"] = 60 * _DURATION_UNITS["m"]
#: Digits behind the point that count.
_FRACTION_DIGITS = 18
_MOST_DIGITS = 1 << 63
_NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Quantities:
    """One number per entry. It means nothing where there is no value, or an unreadable one."""

    numbers: Numbers
    #: The entries that have a value.
    present: Mask
    #: Why a value could not be read; null: it was. None: all were.
    errors: pa.StringArray | None

    @property
    def unreadable(self) -> Mask:
        return np.zeros(len(self.present), np.bool_) if self.errors is None else valid(self.errors)


Reader = Callable[[str], float]


def quantities(values: pa.Array, read: Reader, check: Check) -> Quantities:
    """The numbers of a column of texts."""
    if not pa.types.is_dictionary(values.type) or len(values.dictionary) > len(values):
        # Of a large dictionary, most values may be those of entries that were filtered out.
        return _of_texts(plain(values), read, check)
    found = _of_texts(values.dictionary, read, check)
    indices = pc.fill_null(values.indices, -1).to_numpy(zero_copy_only=False)
    # One more number, for the entries without a value: their index is -1.
    numbers: Numbers = np.append(found.numbers, found.numbers.dtype.type(0))[indices]
    errors = None if found.errors is None else found.errors.take(values.indices)
    return Quantities(numbers, valid(values), errors)


def _of_texts(values: pa.StringArray, read: Reader, check: Check) -> Quantities:
    present = valid(values)
    # Nanoseconds of more than a hundred days are not exact as floats.
    kind = np.int64 if read is nanoseconds else np.float64
    numbers: Numbers = np.zeros(len(values), kind)
    if read is number:
        simple = read_short_decimals(*text_bytes(values), present, numbers)
        if simple == np.count_nonzero(present):
            return Quantities(numbers, present, None)
        plain_ones = pc.fill_null(pc.match_substring_regex(values, _PLAIN_NUMBER), False)
        if pc.any(plain_ones).as_py():
            parsed = pc.cast(pc.if_else(plain_ones, values, pa.scalar(None, pa.string())), pa.float64())
            numbers = pc.fill_null(parsed, 0.0).to_numpy(zero_copy_only=False).copy()
            values = pc.if_else(plain_ones, pa.scalar(None, pa.string()), values)
            if values.null_count == len(values):
                return Quantities(numbers, present, None)
    rest = encoded(values)
    read_numbers = np.zeros(len(rest.dictionary) + 1, kind)
    errors: list[str | None] = []
    for place, text in enumerate(rest.dictionary.to_pylist()):
        if place % _VALUES_PER_CHECK == 0:
            check()
        error = None
        try:
            read_numbers[place] = read(text)
        except GoError as reason:
            error = str(reason)
        errors.append(error)
    indices = pc.fill_null(rest.indices, len(rest.dictionary)).to_numpy(zero_copy_only=False)
    numbers = np.where(valid(rest), read_numbers[indices], numbers)
    if not any(error is not None for error in errors):
        return Quantities(numbers, present, None)
    return Quantities(numbers, present, pa.array(errors, pa.string()).take(rest.indices))


def number(text: str) -> float:
    """A number as Go's `strconv.ParseFloat` reads it.

    >>> number("1_000"), number("-0.5e3"), number("+Inf")
    (1000.0, -500.0, inf)
    """
    if _NUMBER.fullmatch(text):
        value = float(text)
        if math.isinf(value):
            raise GoError(f"strconv.ParseFloat: parsing {quote(text)}: value out of range")
        return value
    if _INFINITE.fullmatch(text) or _NAN.fullmatch(text):
        return float(text)
    if _HEX_NUMBER.fullmatch(text) and "__" not in text:
        return float.fromhex(text.replace("_", ""))
    raise GoError(f"strconv.ParseFloat: parsing {quote(text)}: invalid syntax")


def seconds(text: str) -> float:
    """A duration as `unwrap duration(…)` reads it.

    >>> seconds("1m0.5s")
    60.5
    """
    whole, rest = divmod(abs(int(nanoseconds(text))), _NS_PER_S)
    value = whole + rest / _NS_PER_S
    return -value if text.startswith("-") else value


def nanoseconds(text: str) -> int:
    """A duration as Go's `time.ParseDuration` reads it.

    >>> nanoseconds("1h15m30.5s")
    4530500000000
    """
    try:
        return parse_go_duration_ns(text)
    except BadInput:
        raise GoError(_duration_error(text)) from None


def _duration_error(text: str) -> str:
    invalid = f"time: invalid duration {_time_quoted(text)}"
    rest = text[1:] if text[:1] in ("+", "-") else text
    total_ns = 0
    while rest:
        found = _DURATION_NUMBER.match(rest)
        assert found is not None
        digits, fraction = found[1], found[2] or ""
        if (not digits and len(fraction) < 2) or int(digits or 0) > _MOST_DIGITS:
            return invalid
        rest = rest[found.end() :]
        unit = _DURATION_UNIT.match(rest)
        assert unit is not None
        if not unit[0]:
            return f"time: missing unit in duration {_time_quoted(text)}"
        if unit[0] not in _DURATION_UNITS:
            return f"time: unknown unit {_time_quoted(unit[0])} in duration {_time_quoted(text)}"
        fraction = fraction[1 : 1 + _FRACTION_DIGITS]
        unit_ns = _DURATION_UNITS[unit[0]]
        total_ns += int(digits or 0) * unit_ns + int(fraction or 0) * unit_ns // 10 ** len(fraction)
        if total_ns > _MOST_DIGITS:
            return invalid
        rest = rest[unit.end() :]
    return invalid


def _time_quoted(text: str) -> str:
    """A text as Go's `time` package quotes it: with the bytes of everything that is not printable ASCII.

    >>> print(_time_quoted('5 é"'))
    "5 \\xc3\\xa9\\""
    """
    shown = (
        f"\\{chr(byte)}" if byte in b'"\\' else chr(byte) if 0x20 <= byte < 0x80 else f"\\x{byte:02x}"
        for byte in text.encode(errors="surrogateescape")
    )
    return f'"{"".join(shown)}"'


def size(text: str) -> float:
    """A size in bytes as `humanize.ParseBytes` reads it.

    >>> size("1.5KiB"), size("2 mb")
    (1536.0, 2000000.0)
    """
    found = _SIZE.match(text)
    assert found is not None
    digits = found[0]
    if not digits.isascii():
        # Characters are counted, and as many bytes are read, so that the last one may be cut.
        digits = text.encode()[: len(digits)].decode(errors="surrogateescape")
    amount = number(digits.replace(",", ""))
    unit = text[found.end() :].strip().lower()
    if unit not in _UNITS:
        raise GoError(f"unhandled size name: {unit}")
    amount *= _UNITS[unit]
    if amount >= 2.0**64:
        raise GoError(f"too large: {text}")
    return float(int(amount))
