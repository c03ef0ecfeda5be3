"""Numbers as Go reads them, and constant expressions computed while parsing."""

from __future__ import annotations

import math

from lakerunner.model.errors import BadInput


def parse_number(text: str) -> float:
    """The value of a number literal.

    >>> parse_number("1_000"), parse_number(".5e3"), parse_number("0x1p4")
    (1000.0, 500.0, 16.0)
    """
    hexadecimal = text[:2].lower() == "0x"
    try:
        if hexadecimal and "p" not in text.lower():
            raise BadInput(f"cannot read number {text!r}", hint="write it with decimal digits")
        value = float.fromhex(text.replace("_", "")) if hexadecimal else float(text)
    except (ValueError, OverflowError):
        value = math.inf
    if math.isinf(value):
        raise BadInput(f"cannot read number {text!r}: out of range")
    return value


def fold(op: str, left: float, right: float) -> float:
    """The value of an operator between two numbers. Comparisons yield 0 or 1.

    >>> fold("^", 2.0, 3.0), fold("/", 1.0, 0.0), fold(">", 2.0, 1.0)
    (8.0, nan, 1.0)
    """
    match op:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return left / right if right else math.nan
        case "%":
            return math.fmod(left, right) if right and not math.isinf(left) else math.nan
        case "^":
            return _power(left, right)
        case "==":
            return float(left == right)
        case "!=":
            return float(left != right)
        case ">":
            return float(left > right)
        case ">=":
            return float(left >= right)
        case "<":
            return float(left < right)
    assert op == "<="
    return float(left <= right)


def _power(base: float, exponent: float) -> float:
    """Go's `math.Pow`, which never raises."""
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and exponent % 2 == 1 else math.inf
    except ValueError:
        # A zero to a negative power, or a negative number to a fraction.
        if base:
            return math.nan
        odd = exponent % 2 == 1
        return math.copysign(math.inf, base) if odd else math.inf
