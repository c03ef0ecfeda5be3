"""Numbers as Go prints them: label values made from numbers must equal those of Prometheus."""

from __future__ import annotations

import math
from decimal import Decimal

#: Go's threshold for numbers that are printed with as many digits as needed.
_EXPONENT_FROM = 6


def _special(value: float) -> str | None:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return None


def plain(value: float) -> str:
    """Shortest digits, never an exponent.

    >>> plain(6.0), plain(1e21), plain(-0.001)
    ('6', '1000000000000000000000', '-0.001')
    """
    special = _special(value)
    if special is not None:
        return special
    text = format(Decimal(repr(value)), "f")
    return text[:-2] if text.endswith(".0") else text


def general(value: float) -> str:
    """Shortest digits, with an exponent below 1e-4 and from 1e6 on (the verb `%g`).

    >>> general(0.5), general(10.0), general(1e6), general(123456789.0), general(1e-7)
    ('0.5', '10', '1e+06', '1.23456789e+08', '1e-07')
    """
    special = _special(value)
    if special is not None:
        return special
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).rstrip("0")
    point = len(digits) + exponent - 1
    if -4 <= point < _EXPONENT_FROM:
        return plain(value)
    mantissa = text[0] + ("." + text[1:] if len(text) > 1 else "")
    return f"{'-' if sign else ''}{mantissa}e{'-' if point < 0 else '+'}{abs(point):02d}"


def exponent(value: float) -> str:
    """Shortest digits, always with an exponent (the verb `%e`).

    >>> exponent(1.5), exponent(0.0), exponent(123456.0), exponent(float("nan"))
    ('1.5e+00', '0e+00', '1.23456e+05', 'NaN')
    """
    special = _special(value)
    if special is not None:
        return special
    return next(text for digits in range(18) if float(text := f"{value:.{digits}e}") == value)


def open_metrics(value: float) -> str:
    """A float as OpenMetrics writes label values: always with a point or an exponent.

    >>> open_metrics(1.0), open_metrics(0.99), open_metrics(-0.0)
    ('1.0', '0.99', '0.0')
    """
    text = general(value or 0.0)
    if _special(value) is not None or "e" in text or "." in text:
        return text
    return text + ".0"
