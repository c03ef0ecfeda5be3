"""Values of templates: Python's own where they behave as Go's, and a class for each other type that Go tells apart.

    string                  str, with bytes that are not UTF-8 as lone surrogates
    int, float64, bool      int, float, bool
    int64, uint8            Int64, Uint8
    time.Time and the like  Time (`go_time.py`), Month, Weekday, Duration
    map[string]string       Labels
    map[string]interface{}  dict
    []interface{}           list
    a struct                Struct

None is the absence of a value (an invalid `reflect.Value`); NIL is an interface that holds nothing.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from lakerunner.query.logql.durations import format_go_duration

Value: TypeAlias = Any


class Int64(int):
    __slots__ = ()


class Uint8(int):
    __slots__ = ()


class Month(int):
    __slots__ = ()

    def __str__(self) -> str:
        return MONTHS[self - 1] if 1 <= self <= 12 else f"%!Month({int(self)})"


class Weekday(int):
    __slots__ = ()

    def __str__(self) -> str:
        return WEEKDAYS[self] if 0 <= self <= 6 else f"%!Weekday({int(self)})"


class Duration(int):
    """Nanoseconds between two times."""

    __slots__ = ()

    def __str__(self) -> str:
        return format_go_duration(int(self))


class Labels(dict[str, str]):
    """The labels of an entry: the dot of a template."""


class Struct:
    """A Go struct: fields by name, and the name of its type."""

    __slots__ = ("fields", "go_type")

    def __init__(self, go_type: str, fields: dict[str, Value]) -> None:
        self.go_type = go_type
        self.fields = fields


class _Nil:
    def __repr__(self) -> str:
        return "nil"


NIL = _Nil()

MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")

_NAMES: dict[type, str] = {
    str: "string",
    int: "int",
    float: "float64",
    bool: "bool",
    complex: "complex128",
    Int64: "int64",
    Uint8: "uint8",
    Month: "time.Month",
    Weekday: "time.Weekday",
    Duration: "time.Duration",
    Labels: "map[string]string",
    dict: "map[string]interface {}",
    list: "[]interface {}",
    _Nil: "interface {}",
}


def type_name(value: Value) -> str:
    """The type as Go's errors call it.

    >>> type_name(1), type_name(Int64(1)), type_name([])
    ('int', 'int64', '[]interface {}')
    """
    return _NAMES.get(type(value)) or str(value.go_type)


def is_true(value: Value) -> bool:
    """Whether `if` takes the value for true: it is not the zero of its type. A struct always is."""
    if value is None or value is NIL:
        return False
    if isinstance(value, str | int | float | complex | dict | list):
        return bool(value)
    return True


def joined(*texts: str) -> str:
    """The texts as one. Halves of a character that meet become one character again."""
    text = "".join(texts)
    return text if text.isascii() else normal(text)


def normal(text: str) -> str:
    """The text whose lone surrogates are only bytes that really are not UTF-8."""
    if text.isascii() or not any("\udc80" <= c <= "\udcff" for c in text):
        return text
    return text.encode(errors="surrogateescape").decode(errors="surrogateescape")


def to_bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def from_bytes(raw: bytes) -> str:
    return raw.decode(errors="surrogateescape")


def runes(text: str) -> str:
    """The text with U+FFFD for each byte that is not UTF-8, as Go's conversion to runes gives it."""
    if text.isascii():
        return text
    return "".join("\ufffd" if "\udc80" <= c <= "\udcff" else c for c in text)
