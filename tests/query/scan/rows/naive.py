"""The meaning of predicates over plain Python rows, written as plainly as possible."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from lakerunner.formats.number_text import float_text
from lakerunner.query.scan.rows.conditions.predicate import (
    NUMBER_TEXT,
    And,
    Bool,
    Column,
    Compare,
    Contains,
    Exists,
    In,
    Literal,
    Matches,
    Not,
    Op,
    Or,
    Predicate,
    Ref,
    Text,
)

#: A row: stored name -> value. Times are integers of nanoseconds; attributes have their names of columns.
Row = Mapping[str, Any]


def satisfies(row: Row, predicate: Predicate) -> bool:
    match predicate:
        case And(parts):
            return all(satisfies(row, part) for part in parts)
        case Or(parts):
            return any(satisfies(row, part) for part in parts)
        case Not(part):
            return not satisfies(row, part)
        case Exists(ref):
            return value_of(row, ref) is not None
        case Compare(ref, op, literal):
            value = value_of(row, ref)
            return value is not None and compared(value, op, literal)
        case In(ref, literals):
            value = value_of(row, ref)
            return value is not None and any(compared(value, Op.EQUAL, literal) for literal in literals)
        case Matches(ref, pattern, anchored):
            value = value_of(row, ref)
            if value is None:
                return False
            found = re.fullmatch(pattern, text_of(value), re.S) if anchored else re.search(pattern, text_of(value))
            return found is not None
        case Contains(ref, text):
            value = value_of(row, ref)
            return value is not None and text in text_of(value)


def value_of(row: Row, ref: Ref) -> Any:
    names = ref.names() if not isinstance(ref, Column) else (ref.name,)
    return next((row[name] for name in names if row.get(name) is not None), None)


def text_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return float_text(value) if math.isfinite(value) else str(value)
    return str(value)


def compared(value: Any, op: Op, literal: Literal) -> bool:
    if isinstance(literal, Text):
        return ordered(text_of(value).encode(), op, literal.value.encode())
    if isinstance(literal, Bool):
        return op is Op.EQUAL and text_of(value) == ("true" if literal.value else "false")
    number = number_of(value)
    return number is not None and ordered(number, op, literal.value)


def number_of(value: Any) -> int | float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    if not re.match(NUMBER_TEXT, value):
        return None
    if re.fullmatch(r"[+-]?[0-9]{1,18}", value):
        return int(value)
    return float(value)


def ordered(one: Any, op: Op, other: Any) -> bool:
    if isinstance(one, float) and math.isnan(one):
        return False
    match op:
        case Op.EQUAL:
            return bool(one == other)
        case Op.LESS:
            return bool(one < other)
        case Op.LESS_EQUAL:
            return bool(one <= other)
        case Op.GREATER:
            return bool(one > other)
        case Op.GREATER_EQUAL:
            return bool(one >= other)
