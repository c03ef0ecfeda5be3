"""Go's `fmt`: `print`, `println` and `printf` with every verb and flag, for the values that templates have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lakerunner.query.logql.stages.template.go_fmt_numbers import complex_number, float_number, integer
from lakerunner.query.logql.stages.template.go_fmt_texts import Spec, formatted_text, padded
from lakerunner.query.logql.stages.template.go_time import Time, Zone
from lakerunner.query.logql.stages.template.go_types import (
    NIL,
    Duration,
    Month,
    Struct,
    Value,
    Weekday,
    joined,
    to_bytes,
    type_name,
)

_STRINGERS = (Time, Zone, Month, Weekday, Duration)


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
                spec = replace(spec, sharp_v=spec.sharp, sharp=False, plus=False)
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
            return padded("<nil>", spec)
        return f"%!{verb}(<nil>)"
    if verb == "T":
        return formatted_text(type_name(value), "s", spec)
    if verb == "p":
        return _bad(value, verb, spec)
    if isinstance(value, _STRINGERS) and not spec.sharp_v and verb in "vsxXq":
        return formatted_text(str(value), "s" if verb == "v" else verb, spec)
    return _by_type(value, verb, spec)


def _by_type(value: Value, verb: str, spec: Spec) -> str:
    if isinstance(value, bool):
        return padded("true" if value else "false", spec) if verb in "tv" else _bad(value, verb, spec)
    if isinstance(value, int | float | complex):
        shown = _number(value, verb, spec)
        return _bad(value, verb, spec) if shown is None else shown
    if isinstance(value, str):
        return _string_verb(value, verb, spec)
    if isinstance(value, dict):
        return _map(value, verb, spec)
    if isinstance(value, list):
        parts = [_element(each, verb, spec) for each in value]
        return f"[]interface {{}}{{{', '.join(parts)}}}" if spec.sharp_v else f"[{' '.join(parts)}]"
    if isinstance(value, Struct):
        return _struct(value, verb, spec)
    if spec.sharp_v:
        return str(value.go_string())
    return _bad(value, verb, spec)


def _struct(value: Struct, verb: str, spec: Spec) -> str:
    """The fields of a struct. Of a pointer within something else Go shows the address, which means nothing here."""
    if value.go_type.startswith("*"):
        return "0xc000000000"
    return "{" + " ".join(_element(each, verb, spec) for each in value.fields.values()) + "}"


def _number(value: int | float | complex, verb: str, spec: Spec) -> str | None:
    if isinstance(value, int):
        return integer(value, verb, spec)
    return float_number(value, verb, spec) if isinstance(value, float) else complex_number(value, verb, spec)


def _element(value: Value, verb: str, spec: Spec) -> str:
    if value is None or value is NIL:
        return "interface {}(nil)" if spec.sharp_v else "<nil>"
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


def _string_verb(value: str, verb: str, spec: Spec) -> str:
    if verb == "v":
        return formatted_text(value, "q" if spec.sharp_v else "s", spec)
    return formatted_text(value, verb, spec) if verb in "sxXq" else _bad(value, verb, spec)
