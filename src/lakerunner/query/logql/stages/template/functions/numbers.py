"""Functions of numbers. They take texts too; a text that is no number counts as 0."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

from lakerunner.query.logql.stages.go_errors import GoError
from lakerunner.query.logql.stages.quantities import nanoseconds, size
from lakerunner.query.logql.stages.template.functions.signature import ANY, FLOAT, INT, STRING, Function, takes
from lakerunner.query.logql.stages.template.go_fmt import printed
from lakerunner.query.logql.stages.template.go_numbers import (
    from_float,
    lenient_float,
    lenient_int,
    wrapped,
)
from lakerunner.query.logql.stages.template.go_types import Int64, Value

#: Digits after the point of a quotient.
_QUOTIENT_DIGITS = 16
_SECOND_NS = 1_000_000_000


def to_int(value: Value) -> int:
    if isinstance(value, str):
        return lenient_int(value) if value else 0
    if isinstance(value, float):
        return from_float(value)
    return int(value) if isinstance(value, int) else 0


def to_float(value: Value) -> float:
    if isinstance(value, str):
        return lenient_float(value) if value else 0.0
    return float(value) if isinstance(value, int | float) else 0.0


def _add(*values: Value) -> Int64:
    return Int64(wrapped(sum(map(to_int, values))))


def _mul(first: Value, *values: Value) -> Int64:
    product = to_int(first)
    for value in values:
        product = wrapped(product * to_int(value))
    return Int64(product)


def _div(a: Value, b: Value) -> Int64:
    """The quotient, rounded towards zero."""
    dividend, divisor = to_int(a), to_int(b)
    if divisor == 0:
        raise GoError("runtime error: integer divide by zero")
    quotient = abs(dividend) // abs(divisor)
    return Int64(wrapped(-quotient if (dividend < 0) != (divisor < 0) else quotient))


def _mod(a: Value, b: Value) -> Int64:
    """The rest, with the sign of the dividend."""
    dividend, divisor = to_int(a), to_int(b)
    if divisor == 0:
        raise GoError("runtime error: integer divide by zero")
    rest = abs(dividend) % abs(divisor)
    return Int64(-rest if dividend < 0 else rest)


def _decimal(value: Value) -> Fraction:
    """The decimal number that a float shows as, exactly."""
    number = to_float(value)
    if not math.isfinite(number):
        raise GoError(f"Cannot create a Decimal from {printed(number)}")
    return Fraction(Decimal(repr(number)))


def _quotient(a: Fraction, b: Fraction) -> Fraction:
    if b == 0:
        raise GoError("decimal division by 0")
    exact = abs(a / b) * 10**_QUOTIENT_DIGITS
    rounded = Fraction(math.floor(exact + Fraction(1, 2)), 10**_QUOTIENT_DIGITS)
    return -rounded if (a < 0) != (b < 0) else rounded


def _nearest(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _folded(combine: Callable[[Fraction, Fraction], Fraction]) -> Callable[..., float]:
    def call(first: Value, *values: Value) -> float:
        result = _decimal(first)
        for value in values:
            result = combine(result, _decimal(value))
        return _nearest(result)

    return call


def _addf(*values: Value) -> float:
    return _nearest(sum(map(_decimal, values), Fraction(0)))


def _maxf(first: Value, *values: Value) -> float:
    result = to_float(first)
    for value in map(to_float, values):
        if math.inf in (result, value):
            result = math.inf
        elif math.isnan(result) or math.isnan(value):
            result = math.nan
        elif value > result or (value == result == 0 and math.copysign(1, result) < 0):
            result = value
    return result


def _minf(first: Value, *values: Value) -> float:
    result = to_float(first)
    for value in map(to_float, values):
        if -math.inf in (result, value):
            result = -math.inf
        elif math.isnan(result) or math.isnan(value):
            result = math.nan
        elif value < result or (value == result == 0 and math.copysign(1, value) < 0):
            result = value
    return result


def _ceil(value: float) -> float:
    return math.copysign(float(math.ceil(value)), value) if math.isfinite(value) else value


def _floor(value: float) -> float:
    return math.copysign(float(math.floor(value)), value) if math.isfinite(value) else value


def _round(value: Value, places: int, *threshold: float) -> float:
    """Rounded to some places after the point; up from the threshold on, which is 0.5."""
    try:
        power = 10.0**places
    except OverflowError:
        power = math.inf
    scaled = power * to_float(value)
    fraction = math.modf(scaled)[0]
    rounded = _ceil(scaled) if fraction >= (threshold[0] if threshold else 0.5) else _floor(scaled)
    if power == 0:
        return math.nan if rounded == 0 or math.isnan(rounded) else math.copysign(math.inf, rounded)
    return rounded / power


def _seconds(text: str) -> float:
    duration = nanoseconds(text)
    whole, rest = divmod(abs(duration), _SECOND_NS)
    return math.copysign(float(whole) + rest / 1e9, duration) if duration else 0.0


_ONE, _TWO, _MANY = (ANY,), (ANY, ANY), (ANY,)

FUNCTIONS: tuple[Function, ...] = (
    takes("add", _MANY, _add, variadic=True),
    takes("sub", _TWO, lambda a, b: Int64(wrapped(to_int(a) - to_int(b)))),
    takes("mul", _TWO, _mul, variadic=True),
    takes("div", _TWO, _div),
    takes("mod", _TWO, _mod),
    takes("addf", _MANY, _addf, variadic=True),
    takes("subf", _TWO, _folded(operator.sub), variadic=True),
    takes("mulf", _TWO, _folded(operator.mul), variadic=True),
    takes("divf", _TWO, _folded(_quotient), variadic=True),
    takes("max", _TWO, lambda *values: Int64(max(map(to_int, values))), variadic=True),
    takes("min", _TWO, lambda *values: Int64(min(map(to_int, values))), variadic=True),
    takes("maxf", _TWO, _maxf, variadic=True),
    takes("minf", _TWO, _minf, variadic=True),
    takes("ceil", _ONE, lambda value: _ceil(to_float(value))),
    takes("floor", _ONE, lambda value: _floor(to_float(value))),
    takes("round", (ANY, INT, FLOAT), _round, variadic=True),
    takes("int", _ONE, to_int),
    takes("float64", _ONE, to_float),
    takes("bytes", (STRING,), size),
    takes("duration", (STRING,), _seconds),
    takes("duration_seconds", (STRING,), _seconds),
)
