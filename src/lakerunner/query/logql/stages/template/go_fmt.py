"""Go's `fmt`: `print`, `println` and `printf` with every verb and flag, for the values that templates have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from lakerunner.query.logql.stages.template.go_numbers import shortest
from lakerunner.query.logql.stages.template.go_time import Time, Zone
from lakerunner.query.logql.stages.template.go_types import (
    NIL,
    Duration,
    Month,
    Uint8,
    Value,
    Weekday,
    joined,
    to_bytes,
    type_name,
)

#: From this exponent on, and below 1e-4, `%v` writes a float with an exponent.
_EXPONENT_FROM = 6
_STRINGERS = (Time, Zone, Month, Weekday, Duration)
_ESCAPES = {"\a": "a", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t", "\v": "v", "\\": "\\"}


@dataclass(frozen=True, slots=True)
class Spec:
    """The flags of one verb."""

    minus: bool = False
    plus: bool = False
    sharp: bool = False
    space: bool = False
    zero: bool = False
    width: int | None = None
    precision: int | None = None
    #: `%+v` and `%#v`, whose flags mean something else.
    plus_v: bool = False
    sharp_v: bool = False


_PLAIN = Spec()


def sprint(values: Sequence[Value]) -> str:
    """The values one after another, with a space between two that are both no strings."""
    out: list[str] = []
    for number, value in enumerate(values):
        if number and not isinstance(value, str) and not isinstance(values[number - 1], str):
            out.append(" ")
        out.append(printed(value))
    return joined(*out)


def sprintln(values: Sequence[Value]) -> str:
    return joined(" ".join(map(printed, values)), "\n")


def printed(value: Value) -> str:
    """The value as `%v` writes it."""
    if isinstance(value, str):
        return value
    return _formatted(value, "v", _PLAIN)


def sprintf(pattern: str, values: Sequence[Value]) -> str:
    return joined(*_Printf(pattern, values).run())


class _Printf:
    def __init__(self, pattern: str, values: Sequence[Value]) -> None:
        self._pattern = pattern
        self._values = values
        self._at = 0
        self._number = 0
        self._reordered = False
        self._good = True
        self._out: list[str] = []

    def run(self) -> list[str]:
        pattern, out = self._pattern, self._out
        while self._at < len(pattern):
            found = pattern.find("%", self._at)
            if found < 0:
                out.append(pattern[self._at :])
                break
            out.append(pattern[self._at : found])
            self._at = found + 1
            self._verb()
        if not self._reordered and self._number < len(self._values):
            extra = ", ".join(
                "<nil>" if value is None or value is NIL else f"{type_name(value)}={printed(value)}"
                for value in self._values[self._number :]
            )
            out.append(f"%!(EXTRA {extra})")
        return out

    def _verb(self) -> None:
        spec, after_index = self._flags()
        self._good = True
        after_index = self._index(after_index)
        spec, after_index = self._width(spec, after_index)
        spec, after_index = self._precision(spec, after_index)
        if not after_index:
            self._index(False)
        if self._at >= len(self._pattern):
            self._out.append("%!(NOVERB)")
            return
        verb = self._pattern[self._at]
        self._at += 1
        if verb == "%":
            self._out.append("%")
        elif not self._good:
            self._out.append(f"%!{verb}(BADINDEX)")
        elif self._number >= len(self._values):
            self._out.append(f"%!{verb}(MISSING)")
        else:
            value = self._values[self._number]
            self._number += 1
            if verb == "v":
                spec = replace(spec, sharp_v=spec.sharp, sharp=False, plus_v=spec.plus, plus=False)
            self._out.append(_formatted(value, verb, spec))

    def _flags(self) -> tuple[Spec, bool]:
        names = {"#": "sharp", "0": "zero", "+": "plus", "-": "minus", " ": "space"}
        found = set()
        while self._at < len(self._pattern) and self._pattern[self._at] in names:
            found.add(names[self._pattern[self._at]])
            self._at += 1
        return Spec(**dict.fromkeys(found, True)), False

    def _index(self, after: bool) -> bool:
        """An explicit argument index, `[3]`."""
        if self._pattern[self._at : self._at + 1] != "[":
            return after
        self._reordered = True
        end = self._pattern.find("]", self._at + 1)
        if end < 0:
            self._good = False
            self._at += 1
            return after
        text = self._pattern[self._at + 1 : end]
        self._at = end + 1
        if text.isascii() and text.isdigit() and 1 <= int(text) <= len(self._values):
            self._number = int(text) - 1
            return True
        self._good = False
        return True

    def _star(self) -> tuple[int | None, bool]:
        """The value of the argument for `*`, and whether it is a usable integer."""
        self._at += 1
        if self._number >= len(self._values):
            return None, False
        value = self._values[self._number]
        self._number += 1
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > 1_000_000:
            return None, False
        return int(value), True

    def _digits(self) -> int | None:
        start = self._at
        while self._at < len(self._pattern) and self._pattern[self._at] in "0123456789":
            self._at += 1
        return int(self._pattern[start : self._at]) if self._at > start else None

    def _width(self, spec: Spec, after: bool) -> tuple[Spec, bool]:
        if self._pattern[self._at : self._at + 1] == "*":
            width, good = self._star()
            if not good:
                self._out.append("%!(BADWIDTH)")
            if width is not None and width < 0:
                spec = replace(spec, minus=True)
                width = -width
            return replace(spec, width=width), False
        width = self._digits()
        if after and width is not None:
            self._good = False
        if width is not None and width > 1_000_000:
            width = None
        return replace(spec, width=width), after

    def _precision(self, spec: Spec, after: bool) -> tuple[Spec, bool]:
        if self._pattern[self._at : self._at + 1] != ".":
            return spec, after
        self._at += 1
        if after:
            self._good = False
        after = self._index(after)
        if self._pattern[self._at : self._at + 1] == "*":
            precision, good = self._star()
            if precision is not None and precision < 0:
                precision, good = None, False
            if not good:
                self._out.append("%!(BADPREC)")
            return replace(spec, precision=precision), False
        precision = self._digits()
        return replace(spec, precision=precision or 0), after


# -- one value -----------------------------------------------------------------------------------------------------


def _formatted(value: Value, verb: str, spec: Spec) -> str:
    if value is None or value is NIL:
        if verb == "T" or verb == "v":
            return _padded("<nil>", spec)
        return f"%!{verb}(<nil>)"
    if verb == "T":
        return _text(type_name(value), "s", spec)
    if verb == "p":
        return _bad(value, verb, spec)
    if isinstance(value, _STRINGERS) and not spec.sharp_v and verb in "vsxXq":
        return _text(str(value), "s" if verb == "v" else verb, spec)
    return _by_type(value, verb, spec)


def _by_type(value: Value, verb: str, spec: Spec) -> str:
    if isinstance(value, bool):
        return _padded("true" if value else "false", spec) if verb in "tv" else _bad(value, verb, spec)
    if isinstance(value, int):
        return _integer(value, verb, spec)
    if isinstance(value, float):
        return _float_verb(value, verb, spec)
    if isinstance(value, complex):
        return _complex(value, verb, spec)
    if isinstance(value, str):
        return _string_verb(value, verb, spec)
    if isinstance(value, dict):
        return _map(value, verb, spec)
    if isinstance(value, list):
        parts = [_element(each, verb, spec) for each in value]
        return f"[]interface {{}}{{{', '.join(parts)}}}" if spec.sharp_v else f"[{' '.join(parts)}]"
    if spec.sharp_v:
        return str(value.go_string())
    return _bad(value, verb, spec)


def _element(value: Value, verb: str, spec: Spec) -> str:
    if value is None or value is NIL:
        return _padded("interface {}(nil)" if spec.sharp_v else "<nil>", spec)
    return _formatted(value, verb, spec)


def _map(value: dict[str, Value], verb: str, spec: Spec) -> str:
    keys = sorted(value, key=to_bytes)
    pairs = [f"{_formatted(key, verb, spec)}:{_element(value[key], verb, spec)}" for key in keys]
    if spec.sharp_v:
        return f"{type_name(value)}{{{', '.join(pairs)}}}"
    return f"map[{' '.join(pairs)}]"


def _bad(value: Value, verb: str, spec: Spec) -> str:
    """A verb that does not fit: the value with its type, still with the verb's width."""
    return f"%!{verb}({type_name(value)}={_formatted(value, 'v', spec)})"


def _padded(text: str, spec: Spec) -> str:
    """Padded to the width, which counts characters."""
    if spec.width is None or len(text) >= spec.width:
        return text
    pad = spec.width - len(text)
    if spec.minus:
        return text + " " * pad
    return ("0" if spec.zero else " ") * pad + text


def _string_verb(value: str, verb: str, spec: Spec) -> str:
    if verb == "v":
        return _text(value, "q" if spec.sharp_v else "s", spec)
    return _text(value, verb, spec) if verb in "sxXq" else _bad(value, verb, spec)


def _text(value: str, verb: str, spec: Spec) -> str:
    if verb in "xX":
        return _padded(_hex(to_bytes(value), verb, spec), spec)
    if spec.precision is not None:
        value = value[: spec.precision]
    if verb == "q":
        value = quoted_text(value, spec.sharp, spec.plus)
    return _padded(value, spec)


def _hex(raw: bytes, verb: str, spec: Spec) -> str:
    if spec.precision is not None:
        raw = raw[: spec.precision]
    if not raw:
        return ""
    prefix = ("0X" if verb == "X" else "0x") if spec.sharp else ""
    digits = raw.hex().upper() if verb == "X" else raw.hex()
    if not spec.space:
        return prefix + digits
    return " ".join(prefix + digits[at : at + 2] for at in range(0, len(digits), 2))


def quoted_text(value: str, raw: bool = False, ascii_only: bool = False) -> str:
    """The text as a string literal; between back quotes if `raw` and possible.

    >>> print(quoted_text('a"b\\n'))
    "a\\"b\\n"
    """
    if raw and "`" not in value and all(c == "\t" or (c.isprintable() and c != "\ufeff") for c in value):
        return f"`{value}`"
    return '"' + "".join(escaped_rune(c, '"', ascii_only) for c in value) + '"'


def escaped_rune(c: str, quote: str, ascii_only: bool = False) -> str:
    code = ord(c)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if c == quote or c == "\\":
        return "\\" + c
    if c.isprintable() and (code < 0x80 or not ascii_only):
        return c
    if c in _ESCAPES:
        return "\\" + _ESCAPES[c]
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


# -- numbers -------------------------------------------------------------------------------------------------------


def _integer(value: int, verb: str, spec: Spec) -> str:
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
    return _bad(value, verb, spec)


def _digits(number: int, base: int, verb: str, spec: Spec) -> str:
    digits = {2: "b", 8: "o", 10: "d", 16: "x"}[base]
    text = format(abs(number), digits)
    if verb == "X":
        text = text.upper()
    sign = "-" if number < 0 else "+" if spec.plus else " " if spec.space else ""
    if spec.precision is not None:
        if spec.precision == 0 and number == 0:
            return _padded("", replace(spec, zero=False))
        text = text.zfill(spec.precision)
    elif spec.zero and not spec.minus and spec.width is not None:
        text = text.zfill(spec.width - len(sign))
    if spec.sharp:
        if base == 8 and not text.startswith("0"):
            text = "0" + text
        text = {2: "0b", 16: "0X" if verb == "X" else "0x"}.get(base, "") + text
    if verb == "O":
        text = "0o" + text
    return _padded(sign + text, replace(spec, zero=False))


def _character(number: int, verb: str, spec: Spec) -> str:
    valid = 0 <= number <= 0x10FFFF and not 0xD800 <= number <= 0xDFFF
    c = chr(number) if valid else "\ufffd"
    if verb == "c":
        return _padded(c, spec)
    if verb == "q":
        return _padded(f"'{escaped_rune(c, chr(39), spec.plus)}'", spec)
    text = f"U+{number if number >= 0 else number + (1 << 64):04X}"
    if spec.precision is not None and spec.precision > 4:
        text = "U+" + text[2:].zfill(spec.precision)
    if spec.sharp and valid and c.isprintable():
        text += f" '{c}'"
    return _padded(text, replace(spec, zero=False))


def _float_verb(value: float, verb: str, spec: Spec) -> str:
    if verb == "v":
        return _float(value, "g", spec)
    if verb in "beEfFgGxX":
        default = 6 if verb in "eEfF" else None
        precision = default if spec.precision is None else spec.precision
        return _float(value, "f" if verb == "F" else verb, replace(spec, precision=precision))
    return _bad(value, verb, spec)


def _float(value: float, verb: str, spec: Spec) -> str:
    """A float with its sign, padded."""
    if math.isnan(value) or math.isinf(value):
        text = "NaN" if math.isnan(value) else "Inf"
        sign = "-" if value == -math.inf else "+" if spec.plus or (value == math.inf) else " " if spec.space else ""
        if spec.plus_v and not sign:
            sign = "+"
        return _padded(sign + text, replace(spec, zero=False))
    negative = math.copysign(1, value) < 0
    text = _unsigned(abs(value), verb, spec.precision)
    if spec.sharp and verb not in "bX":
        text = _with_point(text, verb, spec)
    sign = "-" if negative else "+" if spec.plus or spec.plus_v else " " if spec.space else ""
    if spec.zero and not spec.minus and spec.width is not None:
        text = text.zfill(spec.width - len(sign))
    return _padded(sign + text, replace(spec, zero=False))


def _unsigned(value: float, verb: str, precision: int | None) -> str:
    if verb in "xX":
        return _hexadecimal(value, verb, precision)
    if verb == "b":
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


def _complex(value: complex, verb: str, spec: Spec) -> str:
    if verb not in "vbeEfFgGxX":
        return _bad(value, verb, spec)
    inner = replace(spec, width=None)
    real = _float_verb(value.real, verb, inner)
    imaginary = _float_verb(value.imag, verb, replace(inner, plus=True))
    return _padded(f"({real}{imaginary}i)", spec)
