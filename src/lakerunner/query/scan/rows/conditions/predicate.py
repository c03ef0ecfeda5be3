"""Predicates on rows: a typed tree that travels as JSON.

Its semantics do not depend on where a value is stored (in its own column, of any type, or in the overflow):

- Logic has two values. A row that lacks the column satisfies no comparison, set, pattern, substring or `Exists`. `Not`
  negates that: `!=` and `!~`, which are `Not` of their positive form, match rows that lack the column.
- A number, time or duration compares with numbers, times (nanoseconds since 1970) and texts that read as a number
  (`NUMBER_TEXT`); it is unequal to, and unordered with, any other value. Integers and doubles compare exactly. NaN
  equals nothing and has no order.
- A text compares with the text of the value, by code points: 200 and 200.0 have the text `200`, true has `true`.
- A boolean is equal to booleans and to the texts `true` and `false`, and has no order.
- Patterns and substrings apply to the text of the value. An empty text is a value, not an absent one.
- Lists and maps (events and links of a span) have no text: only `Exists` matches them.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from lakerunner.model.errors import BadInput
from lakerunner.model.labels import attribute_column
from lakerunner.query.series.patterns import Pattern, compiled

#: Texts that read as a number, in the syntax of RE2 and of Python's `re`. Longer texts never count as numbers.
NUMBER_TEXT = r"^[+-]?(?:(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,4})?|inf)$"
#: Deeper trees are refused, because every level costs stack frames.
MAX_DEPTH = 200
#: The levels at which an original attribute key is looked up, the nearest to the row first.
LEVELS = ("attr", "scope", "resource")


@dataclass(frozen=True, slots=True)
class Column:
    """A stored name: `severity_number`, or an attribute's column such as `attr_http_status`."""

    name: str

    def names(self) -> tuple[str, ...]:
        return (self.name,)


@dataclass(frozen=True, slots=True)
class Key:
    """An attribute by its original key, like `http.status`: the row's own, else its scope's, else its resource's.

    Keys that map to the same column name are one attribute, since they share that column.
    """

    key: str

    def names(self) -> tuple[str, ...]:
        found = tuple(attribute_column(level, self.key) for level in LEVELS)
        # Ingest stores this resource attribute in a column of the signal.
        return (*found, "service_name") if self.key == "service.name" else found


@dataclass(frozen=True, slots=True)
class FirstOf:
    """The first of these stored names that has a value in the row."""

    columns: tuple[str, ...]

    def names(self) -> tuple[str, ...]:
        return self.columns


Ref: TypeAlias = Column | Key | FirstOf


@dataclass(frozen=True, slots=True)
class Text:
    value: str

    def __post_init__(self) -> None:
        _check_unicode(self.value)


@dataclass(frozen=True, slots=True)
class Int:
    value: int


@dataclass(frozen=True, slots=True)
class Float:
    value: float


@dataclass(frozen=True, slots=True)
class Bool:
    value: bool


@dataclass(frozen=True, slots=True)
class Time:
    """Nanoseconds since 1970."""

    value: int


@dataclass(frozen=True, slots=True)
class Duration:
    """Nanoseconds."""

    value: int


Literal: TypeAlias = Text | Int | Float | Bool | Time | Duration
_LITERALS: dict[str, type[Any]] = {
    "text": Text,
    "int": Int,
    "float": Float,
    "bool": Bool,
    "time": Time,
    "duration": Duration,
}
_LITERAL_NAMES = {kind: name for name, kind in _LITERALS.items()}
_PLAIN = {Text: str, Int: int, Float: float, Bool: bool, Time: int, Duration: int}


class Op(enum.StrEnum):
    EQUAL = "="
    LESS = "<"
    LESS_EQUAL = "<="
    GREATER = ">"
    GREATER_EQUAL = ">="


@dataclass(frozen=True, slots=True)
class Compare:
    ref: Ref
    op: Op
    value: Literal


@dataclass(frozen=True, slots=True)
class In:
    """Equal to one of the values."""

    ref: Ref
    values: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class Matches:
    """The text matches an RE2 pattern. If anchored, the whole text must match, newlines included."""

    ref: Ref
    pattern: str
    anchored: bool = True

    def __post_init__(self) -> None:
        _check_unicode(self.pattern)
        self.compiled  # noqa: B018  (refuses an invalid pattern)

    @property
    def expression(self) -> str:
        return f"^(?s:{self.pattern})$" if self.anchored else self.pattern

    @property
    def compiled(self) -> Pattern:
        """The pattern as Arrow compiles it: with captures, though it never asks for them."""
        return compiled(self.expression, True, dot_nl=False)


@dataclass(frozen=True, slots=True)
class Contains:
    ref: Ref
    text: str

    def __post_init__(self) -> None:
        _check_unicode(self.text)


@dataclass(frozen=True, slots=True)
class Exists:
    ref: Ref


@dataclass(frozen=True, slots=True)
class And:
    """All parts hold. Without parts, every row matches."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one part holds. Without parts, no row matches."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Not:
    part: Predicate


Leaf: TypeAlias = Compare | In | Matches | Contains | Exists
Predicate: TypeAlias = Leaf | And | Or | Not

#: Every row.
EVERYTHING = And(())


def _check_unicode(text: str) -> None:
    """Refuse lone surrogates: no stored text has one, and neither JSON nor Arrow accepts them."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise BadInput(f"cannot compare with {text!r}: it is not valid Unicode") from None


def leaves(predicate: Predicate) -> Iterator[Leaf]:
    """The conditions of the tree, from left to right."""
    match predicate:
        case And(parts) | Or(parts):
            for part in parts:
                yield from leaves(part)
        case Not(part):
            yield from leaves(part)
        case _:
            yield predicate


def to_json(predicate: Predicate) -> dict[str, Any]:
    match predicate:
        case Compare(ref, op, value):
            return {"compare": op.value, **_ref_json(ref), "value": _literal_json(value)}
        case In(ref, values):
            return {"in": [_literal_json(value) for value in values], **_ref_json(ref)}
        case Matches(ref, pattern, anchored):
            return {"matches": pattern, **_ref_json(ref), "anchored": anchored}
        case Contains(ref, text):
            return {"contains": text, **_ref_json(ref)}
        case Exists(ref):
            return {"exists": True, **_ref_json(ref)}
        case And(parts):
            return {"and": [to_json(part) for part in parts]}
        case Or(parts):
            return {"or": [to_json(part) for part in parts]}
        case Not(part):
            return {"not": to_json(part)}


def from_json(document: Mapping[str, Any]) -> Predicate:
    """The tree that `to_json` wrote. Raises BadInput for anything else."""
    try:
        return _read(document, 0)
    except (KeyError, TypeError, ValueError, AttributeError) as reason:
        raise BadInput(f"cannot read a predicate: {reason!r}") from None


def _read(document: Mapping[str, Any], depth: int) -> Predicate:
    if depth > MAX_DEPTH:
        raise ValueError(f"it nests deeper than {MAX_DEPTH} levels")
    match document:
        case {"and": list(parts)}:
            return And(tuple(_read(part, depth + 1) for part in parts))
        case {"or": list(parts)}:
            return Or(tuple(_read(part, depth + 1) for part in parts))
        case {"not": part}:
            return Not(_read(part, depth + 1))
    ref = _ref(document)
    match document:
        case {"compare": op, "value": value}:
            return Compare(ref, Op(op), _literal(value))
        case {"in": list(values)}:
            return In(ref, tuple(_literal(value) for value in values))
        case {"matches": str(pattern), "anchored": bool(anchored)}:
            return Matches(ref, pattern, anchored)
        case {"contains": str(text)}:
            return Contains(ref, text)
        case {"exists": True}:
            return Exists(ref)
    raise ValueError(f"unknown condition with {sorted(document)}")


def _ref_json(ref: Ref) -> dict[str, Any]:
    match ref:
        case Column(name):
            return {"column": name}
        case Key(key):
            return {"key": key}
        case FirstOf(columns):
            return {"first_of": list(columns)}


def _ref(document: Mapping[str, Any]) -> Ref:
    match document:
        case {"column": str(name)}:
            return Column(name)
        case {"key": str(key)}:
            return Key(key)
        case {"first_of": list(names)} if all(isinstance(name, str) for name in names):
            return FirstOf(tuple(names))
    raise ValueError("a condition names no column")


def _literal_json(value: Literal) -> dict[str, Any]:
    plain: Any = value.value
    if isinstance(value, Float) and not math.isfinite(value.value):
        plain = str(value.value)  # JSON has no infinities.
    return {_LITERAL_NAMES[type(value)]: plain}


def _literal(document: Mapping[str, Any]) -> Literal:
    ((name, plain),) = document.items()
    kind = _LITERALS[name]
    if kind is Float:
        return Float(float(plain))
    wanted = _PLAIN[kind]
    if not isinstance(plain, wanted) or (wanted is int and isinstance(plain, bool)):
        raise ValueError(f"{plain!r} is not a value of type {name}")
    made: Literal = kind(plain)
    return made
