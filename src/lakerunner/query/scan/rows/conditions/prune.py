"""Simplifies a predicate by bounds of values: some parts certainly hold, or certainly fail, before a value is read."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from lakerunner.query.scan.rows.conditions.predicate import (
    EVERYTHING,
    And,
    Bool,
    Compare,
    Exists,
    In,
    Leaf,
    Literal,
    Not,
    Op,
    Or,
    Predicate,
    Ref,
    Text,
)

NOTHING = Or(())


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of one stored column over some rows. Texts are UTF-8 bytes, times are nanoseconds; None if unknown.

    All values lie between `low` and `high`, which need not be values themselves.
    """

    kind: pa.DataType
    rows: int
    nulls: int | None = None
    low: Any = None
    high: Any = None

    @property
    def all_null(self) -> bool:
        return self.nulls == self.rows


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a row may satisfy the condition, and whether a row may fail it."""

    may: bool
    fail: bool


UNKNOWN, NEVER, ALWAYS = Verdict(True, True), Verdict(False, True), Verdict(True, False)
#: The bounds of every column that may hold the reference's value, in order of precedence; None for the overflow.
BoundsOf: TypeAlias = Callable[[Ref], Sequence[Bounds | None]]

_ORDER = {
    Op.LESS: operator.lt,
    Op.LESS_EQUAL: operator.le,
    Op.GREATER: operator.gt,
    Op.GREATER_EQUAL: operator.ge,
}


def simplified(predicate: Predicate, verdict: Callable[[Leaf], Verdict]) -> Predicate:
    """The predicate without the parts that are decided; `EVERYTHING` or `NOTHING` if all of it is decided."""
    match predicate:
        case And(parts):
            left = []
            for part in parts:
                simple = simplified(part, verdict)
                if simple == NOTHING:
                    return NOTHING
                if simple != EVERYTHING:
                    left.append(simple)
            return left[0] if len(left) == 1 else And(tuple(left))
        case Or(parts):
            left = []
            for part in parts:
                simple = simplified(part, verdict)
                if simple == EVERYTHING:
                    return EVERYTHING
                if simple != NOTHING:
                    left.append(simple)
            return left[0] if len(left) == 1 else Or(tuple(left))
        case Not(part):
            simple = simplified(part, verdict)
            if simple == EVERYTHING:
                return NOTHING
            return EVERYTHING if simple == NOTHING else Not(simple)
        case _:
            decided = verdict(predicate)
            if not decided.may:
                return NOTHING
            return predicate if decided.fail else EVERYTHING


def verdict_of(leaf: Leaf, bounds_of: BoundsOf) -> Verdict:
    """Decide a condition by the bounds of all columns that may hold the value. Without any, no row has a value."""
    places = bounds_of(leaf.ref)
    if not places:
        return NEVER
    verdicts = [UNKNOWN if bounds is None else _verdict(leaf, bounds) for bounds in places]
    may = any(verdict.may for verdict in verdicts)
    # If the first column has a value for every row, it decides alone.
    first = places[0]
    return Verdict(may, verdicts[0].fail if first is not None and first.nulls == 0 else True)


def _verdict(leaf: Leaf, bounds: Bounds) -> Verdict:
    if bounds.all_null:
        return NEVER
    match leaf:
        case Exists():
            return ALWAYS if bounds.nulls == 0 else UNKNOWN
        case Compare(_, op, value):
            return _compared(bounds, op, value)
        case In(_, values):
            verdicts = [_compared(bounds, Op.EQUAL, value) for value in values]
            return Verdict(any(verdict.may for verdict in verdicts), all(verdict.fail for verdict in verdicts))
        case _:
            return UNKNOWN


def _compared(bounds: Bounds, op: Op, value: Literal) -> Verdict:
    if isinstance(value, Bool) and op is not Op.EQUAL:
        return NEVER  # A boolean has no order.
    wanted = _comparable(bounds.kind, value)
    if wanted is None:
        return UNKNOWN
    if isinstance(wanted, Verdict):
        return wanted
    if bounds.low is None or bounds.high is None:
        return UNKNOWN
    low, high = bounds.low, bounds.high
    # Statistics leave NaN out, so bounds of doubles never prove that all rows match.
    whole = bounds.nulls == 0 and not pa.types.is_floating(bounds.kind)
    if op is Op.EQUAL:
        return Verdict(bool(low <= wanted <= high), not (whole and low == wanted == high))
    test = _ORDER[op]
    extreme, other = (low, high) if op in (Op.LESS, Op.LESS_EQUAL) else (high, low)
    return Verdict(bool(test(extreme, wanted)), not (whole and test(other, wanted)))


def _comparable(kind: pa.DataType, value: Literal) -> Any:
    """The literal, comparable with the bounds; None if bounds cannot decide, `NEVER` if the types never match."""
    text, boolean = pa.types.is_string(kind), pa.types.is_boolean(kind)
    if isinstance(value, Text):
        return value.value.encode() if text else None
    if isinstance(value, Bool):
        if text:
            return b"true" if value.value else b"false"
        return value.value if boolean else NEVER
    if text:
        return None
    return NEVER if boolean else value.value
