"""Numbers by the verbs of Go's `fmt`. None: the verb does not fit."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal

from lakerunner.query.logql.stages.template.go_fmt_texts import Spec, escaped_rune, padded
from lakerunner.query.logql.stages.template.go_numbers import shortest
from lakerunner.query.logql.stages.template.go_types import Uint8

#: From this exponent on, and below 1e-4, `%v` writes a float with an exponent.
_EXPONENT_FROM = 6
_LEAST_NORMAL = 2.0**-1022


def integer(value: int, verb: str, spec: Spec) -> str | None:
    number = int(value)
    if verb == "v":
        if spec.sharp_v and isinstance(value, Uint8):
            return _digits(number, 16, "x", replace(spec, sharp=True))
        return _digits(number, 10, verb, spec)
    if verb == "d":
        return _digits(number, 10, verb, spec)
    bases = {"b": 2, "o": 8, "O": 8, "x": 16, "X": 16}
    if verb in bases:
        return _digits(number, bases[verb], verb, spec)
    if verb in "cqU":
        return _character(number, verb, spec)
    return None


def _digits(number: int, base: int, verb: str, spec: Spec) -> str:
    digits = {2: "b", 8: "o", 10: "d", 16: "x"}[base]
    text = format(abs(number), digits)
    if verb == "X":
        text = text.upper()
    sign = "-" if number < 0 else "+" if spec.plus else " " if spec.space else ""
    if spec.precision is not None:
        if spec.precision == 0 and number == 0:
            return padded("", replace(spec, zero=False))
        text = text.zfill(spec.precision)
    elif spec.zero and not spec.minus and spec.width is not None:
        text = text.zfill(spec.width - len(sign))
    if spec.sharp:
        if base == 8 and not text.startswith("0"):
            text = "0" + text
        text = {2: "0b", 16: "0X" if verb == "X" else "0x"}.get(base, "") + text
    if verb == "O":
        text = "0o" + text
    return padded(sign + text, replace(spec, zero=False))


def _character(number: int, verb: str, spec: Spec) -> str:
    valid = 0 <= number <= 0x10FFFF and not 0xD800 <= number <= 0xDFFF
    c = chr(number) if valid else "\ufffd"
    if verb == "c":
        return padded(c, spec)
    if verb == "q":
        return padded(f"'{escaped_rune(c, chr(39), spec.plus)}'", spec)
    text = f"U+{number if number >= 0 else number + (1 << 64):04X}"
    if spec.precision is not None and spec.precision > 4:
        text = "U+" + text[2:].zfill(spec.precision)
    if spec.sharp and valid and c.isprintable():
        text += f" '{c}'"
    return padded(text, replace(spec, zero=False))


def float_number(value: float, verb: str, spec: Spec) -> str | None:
    if verb == "v":
        return _float(value, "g", spec)
    if verb in "beEfFgGxX":
        default = 6 if verb in "eEfF" else None
        precision = default if spec.precision is None else spec.precision
        return _float(value, "f" if verb == "F" else verb, replace(spec, precision=precision))
    return None


def _float(value: float, verb: str, spec: Spec) -> str:
    """A float with its sign, padded."""
    if math.isnan(value) or math.isinf(value):
        text = "NaN" if math.isnan(value) else "Inf"
        sign = "-" if value == -math.inf else "+" if spec.plus or (value == math.inf) else " " if spec.space else ""
        return padded(sign + text, replace(spec, zero=False))
    negative = math.copysign(1, value) < 0
    text = _unsigned(abs(value), verb, spec.precision)
    if spec.sharp and verb not in "bX":
        text = _with_point(text, verb, spec)
    sign = "-" if negative else "+" if spec.plus else " " if spec.space else ""
    if spec.zero and not spec.minus and spec.width is not None:
        text = text.zfill(spec.width - len(sign))
    return padded(sign + text, replace(spec, zero=False))


def _unsigned(value: float, verb: str, precision: int | None) -> str:
    if verb in "xX":
        return _hexadecimal(value, verb, precision)
    if verb == "b":
        if value < _LEAST_NORMAL:
            return f"{int(math.ldexp(value, 1074))}p-1074"
        mantissa, exponent = math.frexp(value)
        return f"{int(mantissa * (1 << 53))}p{exponent - 53:+d}"
    lower = verb.lower()
    if lower == "f":
        return format(Decimal(value), f".{precision}f")
    if lower == "e":
        return _exponent_text(value, precision or 0, verb)
    if precision is None:
        digits, point = shortest(value)
        threshold = _EXPONENT_FROM
    else:
        precision = precision or 1
        digits, point = _rounded(value, precision)
        threshold = precision
        if threshold > len(digits) and len(digits) >= point:
            threshold = len(digits)
    if value and not -4 <= point - 1 < threshold:
        shown = digits[0] + ("." + digits[1:] if len(digits) > 1 else "")
        return f"{shown}{'E' if verb == 'G' else 'e'}{'-' if point < 1 else '+'}{abs(point - 1):02d}"
    if point <= 0:
        return "0." + "0" * -point + digits if value else "0"
    if len(digits) <= point:
        return digits + "0" * (point - len(digits))
    return f"{digits[:point]}.{digits[point:]}"


def _rounded(value: float, precision: int) -> tuple[str, int]:
    """At most `precision` significant digits, without zeros at the end."""
    if value == 0:
        return "0", 1
    mantissa, exponent = format(Decimal(value), f".{precision - 1}e").split("e")
    return mantissa.replace(".", "").rstrip("0") or "0", int(exponent) + 1


def _exponent_text(value: float, precision: int, verb: str) -> str:
    mantissa, exponent = format(Decimal(value), f".{precision}e").split("e")
    power = 0 if value == 0 else int(exponent)
    return f"{mantissa}{verb}{'-' if power < 0 else '+'}{abs(power):02d}"


def _hexadecimal(value: float, verb: str, precision: int | None) -> str:
    mantissa, exponent = value.hex().split("p")
    head, _, fraction = mantissa.partition(".")
    if head == "0x0" and value:
        # Go normalizes the smallest floats.
        fraction_value, power = math.frexp(value)
        mantissa, exponent = (fraction_value * 2).hex().split("p")[0], str(power - 1)
        head, _, fraction = mantissa.partition(".")
    fraction = fraction.rstrip("0")
    if precision is not None:
        scaled = round(Decimal(int(head[2:] + fraction, 16)) / Decimal(16) ** max(len(fraction) - precision, 0))
        digits = format(int(scaled) * 16 ** max(precision - len(fraction), 0), "x").zfill(precision + 1)
        head, fraction = "0x" + digits[: len(digits) - precision], digits[len(digits) - precision :]
    text = f"{head}{'.' + fraction if fraction else ''}p{'-' if int(exponent) < 0 else '+'}{abs(int(exponent)):02d}"
    return text.upper() if verb == "X" else text


def _with_point(text: str, verb: str, spec: Spec) -> str:
    """For the flag `#`: always a point, and for `%g` as many digits as the precision says."""
    mantissa, mark, exponent = text.partition("p" if verb == "x" else "e" if "e" in text else "E")
    wanted = (6 if spec.precision is None else spec.precision) if verb in "gGx" else 0
    digits = len(mantissa.replace(".", "").lstrip("0")) or 1
    if "." not in mantissa:
        mantissa += "."
    return mantissa + "0" * max(0, wanted - digits) + mark + exponent


def complex_number(value: complex, verb: str, spec: Spec) -> str | None:
    if verb not in "vbeEfFgGxX":
        return None
    inner = replace(spec, width=None)
    real = float_number(value.real, verb, inner)
    imaginary = float_number(value.imag, verb, replace(inner, plus=True))
    return padded(f"({real}{imaginary}i)", spec)
