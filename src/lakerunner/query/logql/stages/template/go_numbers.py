"""Integers as Go has them, and numbers in texts as template functions read them."""

from __future__ import annotations

import re
from decimal import Decimal

from lakerunner.query.logql.stages.go_errors import GoError
from lakerunner.query.logql.stages.quantities import number
from lakerunner.query.syntax.strings import quote

INT_MIN, INT_MAX = -(1 << 63), (1 << 63) - 1

_DIGITS = {2: re.compile("[01]+"), 8: re.compile("[0-7]+"), 10: re.compile("[0-9]+"), 16: re.compile("[0-9a-fA-F]+")}
_PREFIXES = {"0x": 16, "0b": 2, "0o": 8}
_DECIMAL_TEXT = re.compile(r"([-+]?[0-9]*)(?:\.[0-9]*)?")


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
        raise GoError(f"strconv.{function}: parsing {quote(text)}: invalid syntax")
    value = int(digits, radix)
    value = -value if text[0] == "-" else value
    if not INT_MIN <= value <= INT_MAX:
        raise GoError(f"strconv.{function}: parsing {quote(text)}: value out of range")
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
        return number(text)
    except GoError:
        return 0.0


def shortest(value: float) -> tuple[str, int]:
    """The fewest digits that identify a float, and the position of its point relative to their start."""
    _, digits, exponent = Decimal(repr(abs(value))).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).lstrip("0")
    point = len(text) + exponent
    text = text.rstrip("0")
    return (text, point) if text else ("0", 1)
