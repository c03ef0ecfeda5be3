"""A predicate as text of the filter language: it parses to the same tree."""

from __future__ import annotations

import datetime as dt
import math
import re

from lakerunner.model.errors import Bug
from lakerunner.model.time import NS_PER_S
from lakerunner.query.rows.lexer import UNITS_NS
from lakerunner.query.rows.parser import KEYWORDS
from lakerunner.query.scan.rows.conditions.predicate import (
    And,
    Bool,
    Compare,
    Contains,
    Duration,
    Exists,
    FirstOf,
    Float,
    In,
    Int,
    Key,
    Literal,
    Matches,
    Not,
    Op,
    Or,
    Predicate,
    Ref,
    Text,
    Time,
)
from lakerunner.query.syntax.strings import quote

_IDENTIFIER = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_EPOCH = dt.datetime(1970, 1, 1)


def printed(predicate: Predicate) -> str:
    """The text. A tree that no text has (an `And` of one part) is printed as one that means the same.

    >>> from lakerunner.query.scan.rows.conditions.predicate import Column
    >>> printed(Not(Compare(Column("severity"), Op.EQUAL, Text("INFO"))))
    'severity != "INFO"'
    """
    match predicate:
        case And(()):
            return "()"
        case Or(()):
            return "not ()"
        case And((part,)) | Or((part,)):
            return printed(part)
        case And(parts):
            return " and ".join(_inner(part, And | Or) for part in parts)
        case Or(parts):
            return " or ".join(_inner(part, Or) for part in parts)
        case Not(part):
            return _negated(part)
        case _:
            return f"{_name(predicate.ref)} {_condition(predicate)}"


def _inner(part: Predicate, loose: object) -> str:
    """In parentheses where it binds less tightly, or is a list of its own kind within one."""
    text = printed(part)
    needs = isinstance(part, And | Or) and len(part.parts) > 1 and isinstance(part, loose)  # type: ignore[arg-type]
    return f"({text})" if needs else text


def _negated(part: Predicate) -> str:
    match part:
        case Compare(ref, Op.EQUAL, value):
            return f"{_name(ref)} != {literal_text(value)}"
        case Matches(ref, pattern, True):
            return f"{_name(ref)} !~ {quote(pattern)}"
        case Compare() | Not():
            return f"not {printed(part)}"
        case And() | Or():
            return f"not ({printed(part)})" if part.parts else f"not {printed(part)}"
        case _:
            return f"{_name(part.ref)} not {_condition(part)}"


def _condition(leaf: Compare | In | Matches | Contains | Exists) -> str:
    match leaf:
        case Compare(_, op, value):
            return f"{op.value} {literal_text(value)}"
        case In(_, values):
            return f"in ({', '.join(map(literal_text, values))})"
        case Matches(_, pattern, anchored):
            return f"{'=~' if anchored else 'search'} {quote(pattern)}"
        case Contains(_, text):
            return f"contains {quote(text)}"
        case Exists():
            return "exists"


def _name(ref: Ref) -> str:
    if isinstance(ref, FirstOf):
        raise Bug("cannot write a choice of columns as a row filter: other languages make those")
    if isinstance(ref, Key):
        return quote(ref.key)
    plain = _IDENTIFIER.fullmatch(ref.name) and ref.name.lower() not in KEYWORDS and ref.name not in ("inf", "nan")
    return ref.name if plain else f"column {quote(ref.name)}"


def literal_text(value: Literal) -> str:
    """
    >>> literal_text(Duration(250_000_000)), literal_text(Time(1_700_000_000_000_000_001)), literal_text(Float(2.0))
    ('250ms', '2023-11-14T22:13:20.000000001Z', '2.0')
    """
    match value:
        case Text(text):
            return quote(text)
        case Bool(flag):
            return "true" if flag else "false"
        case Int(number):
            return str(number)
        case Float(number):
            return repr(number) if math.isfinite(number) else str(number)
        case Duration(value_ns):
            return _duration(value_ns)
        case Time(value_ns):
            return _time(value_ns)


def _duration(value_ns: int) -> str:
    out, rest = [], abs(value_ns)
    for unit, size in UNITS_NS.items():
        count, rest = divmod(rest, size)
        if count:
            out.append(f"{count}{unit}")
    return ("-" if value_ns < 0 else "") + ("".join(out) or "0ns")


def _time(value_ns: int) -> str:
    seconds, rest = divmod(value_ns, NS_PER_S)
    moment = (_EPOCH + dt.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{moment}.{rest:09}Z" if rest else f"{moment}Z"
