"""Numbers, durations and sizes as texts, by the rules of Go's `strconv` and of the libraries that Loki uses."""

from __future__ import annotations

import math
import re
from decimal import Decimal

from lakerunner.query.logql.stages.template.go_errors import GoError, quoted

INT_MIN, INT_MAX = -(1 << 63), (1 << 63) - 1

_FLOAT = re.compile(r"[+-]?(?:[0-9_]+(?:\.[0-9_]*)?|\.[0-9_]+)(?:[eE][+-]?[0-9_]+)?", re.ASCII)
_HEX_FLOAT = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F_]+(?:\.[0-9a-fA-F_]*)?|\.[0-9a-fA-F_]+)[pP][+-]?[0-9_]+", re.ASCII)
_INFINITY = re.compile(r"([+-]?)inf(?:inity)?", re.IGNORECASE)
_DIGITS = {2: re.compile("[01]+"), 8: re.compile("[0-7]+"), 10: re.compile("[0-9]+"), 16: re.compile("[0-9a-fA-F]+")}
_PREFIXES = {"0x": 16, "0b": 2, "0o": 8}
_DECIMAL_TEXT = re.compile(r"([-+]?[0-9]*)(?:\.[0-9]*)?")
_DURATION_PART = re.compile(r"([0-9]*)(\.[0-9]*)?([^0-9.]*)")
_DURATION_UNITS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_SIZE_LETTERS = "kmgtpe"
_SIZES = {"": 1, "b": 1} | {
    letter + suffix: base ** (power + 1)
    for power, letter in enumerate(_SIZE_LETTERS)
    for suffix, base in (("", 1000), ("b", 1000), ("i", 1024), ("ib", 1024))
}


def wrapped(value: int) -> int:
    """The value as an int64, which wraps around.

    >>> wrapped(1 << 63)
    -9223372036854775808
    """
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def from_float(value: float) -> int:
    """A float converted to int64, as the processors do it that Loki runs on: out of range gives the least value.

    >>> from_float(-3.7), from_float(1e30)
    (-3, -9223372036854775808)
    """
    if not INT_MIN <= value < -INT_MIN:
        return INT_MIN
    return int(value)


def underscores_fit(text: str) -> bool:
    """Whether underscores only separate digits, or follow a prefix such as `0x`."""
    body = text.lstrip("+-").lower()
    hexadecimal = body.startswith("0x")
    if body[:2] in _PREFIXES:
        # A prefix counts as a digit.
        body = "0" + body[2:]
    digit = "[0-9a-f]" if hexadecimal else "[0-9]"
    return "_" not in re.sub(rf"(?<={digit})_(?={digit})", "", body)


def parse_int(text: str, base: int = 10, function: str = "ParseInt") -> int:
    """An int64. With base 0, the prefix of the text decides."""
    body = text.lstrip("+-") if text[:1] in ("+", "-") and text[1:2] not in ("+", "-") else text
    digits, radix = body, base
    if base == 0:
        radix = 10
        if body[:2].lower() in _PREFIXES:
            digits, radix = body[2:], _PREFIXES[body[:2].lower()]
        elif len(body) > 1 and body[0] == "0":
            digits, radix = body[1:], 8
        if "_" in digits:
            digits = digits.replace("_", "") if underscores_fit(text) else ""
    if not _DIGITS[radix].fullmatch(digits):
        raise GoError(f"strconv.{function}: parsing {quoted(text)}: invalid syntax")
    value = int(digits, radix)
    value = -value if text[0] == "-" else value
    if not INT_MIN <= value <= INT_MAX:
        raise GoError(f"strconv.{function}: parsing {quoted(text)}: value out of range")
    return value


def parse_float(text: str) -> float:
    value: float
    if _FLOAT.fullmatch(text) and ("_" not in text or underscores_fit(text)):
        value = float(text.replace("_", ""))
    elif _HEX_FLOAT.fullmatch(text) and ("_" not in text or underscores_fit(text)):
        try:
            value = float.fromhex(text.replace("_", ""))
        except OverflowError:
            value = math.inf
    elif found := _INFINITY.fullmatch(text):
        return -math.inf if found[1] == "-" else math.inf
    elif text.lower() == "nan":
        return math.nan
    else:
        raise GoError(f"strconv.ParseFloat: parsing {quoted(text)}: invalid syntax")
    if math.isinf(value):
        raise GoError(f"strconv.ParseFloat: parsing {quoted(text)}: value out of range")
    return value


def lenient_int(text: str) -> int:
    """The integer that a text begins with before a point; 0 if it is none.

    >>> lenient_int("223.25"), lenient_int("0x10"), lenient_int("1e3"), lenient_int("-.5")
    (223, 16, 0, 0)
    """
    if "." in text and (found := _DECIMAL_TEXT.fullmatch(text)):
        text = found[1] if found[1].strip("+-") else found[1] + "0"
    try:
        return parse_int(text, 0)
    except GoError:
        return 0


def lenient_float(text: str) -> float:
    """The number that a text is; 0 if it is none."""
    try:
        return parse_float(text)
    except GoError:
        return 0.0


def parse_duration(text: str) -> int:
    """Nanoseconds of a text such as `1h15m30.918s`."""
    invalid = GoError(f"time: invalid duration {quoted(text)}")
    negative, rest = text[:1] == "-", text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0
    if not rest:
        raise invalid
    total = 0
    while rest:
        found = _DURATION_PART.match(rest)
        assert found is not None
        whole, fraction, unit = found[1], found[2] or "", found[3]
        if not whole and len(fraction) < 2:
            raise invalid
        if not unit:
            raise GoError(f"time: missing unit in duration {quoted(text)}")
        if unit not in _DURATION_UNITS:
            raise GoError(f"time: unknown unit {quoted(unit)} in duration {quoted(text)}")
        scale = _DURATION_UNITS[unit]
        total += int(whole or 0) * scale + _fraction(fraction[1:], scale)
        if total > 1 << 63:
            raise invalid
        rest = rest[found.end() :]
    if negative:
        return -total
    if total > INT_MAX:
        raise invalid
    return total


def _fraction(digits: str, scale: int) -> int:
    """A fraction of the scale, with the digits that an int64 holds and rounded as floats are."""
    value, power = 0, 1.0
    for digit in digits:
        if value > INT_MAX // 10:
            break
        longer = value * 10 + int(digit)
        if longer > 1 << 63:
            break
        value, power = longer, power * 10
    return int(float(value) * (float(scale) / power)) if value else 0


def parse_size(text: str) -> float:
    """Bytes of a text such as `2.5 MiB`, in any case."""
    at = 0
    while at < len(text) and (text[at].isdecimal() or text[at] in ".,"):
        at += 1
    # The library counts characters but cuts bytes.
    raw = text.encode(errors="surrogateescape")
    number, unit = raw[:at].decode(errors="surrogateescape"), raw[at:].decode(errors="surrogateescape")
    value = parse_float(number.replace(",", ""))
    unit = unit.strip().lower()
    if unit not in _SIZES:
        raise GoError(f"unhandled size name: {unit}")
    value *= _SIZES[unit]
    if value >= 2.0**64:
        raise GoError(f"too large: {text}")
    return float(int(value))


def shortest(value: float) -> tuple[str, int]:
    """The fewest digits that identify a float, and the position of its point relative to their start."""
    _, digits, exponent = Decimal(repr(abs(value))).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).lstrip("0")
    point = len(text) + exponent
    text = text.rstrip("0")
    return (text, point) if text else ("0", 1)
