"""What bounds of values decide before any value is read: which parts of a predicate surely hold, or surely fail."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from lakerunner.query.scan.rows.predicate import (
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
    """Of some rows of one stored column. Texts are UTF-8 bytes, times nanoseconds; None where unknown.

    `low` and `high` hold all values, but need not be values themselves.
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
#: The bounds of everything that may hold a row's value of the reference: columns first, then None for the overflow.
BoundsOf: TypeAlias = Callable[[Ref], Sequence[Bounds | None]]

_ORDER = {
    Op.LESS: operator.lt,
    Op.LESS_EQUAL: operator.le,
    Op.GREATER: operator.gt,
    Op.GREATER_EQUAL: operator.ge,
}


def simplified(predicate: Predicate, verdict: Callable[[Leaf], Verdict]) -> Predicate:
    """The predicate without what is decided: `EVERYTHING` or `NOTHING` where all of it is."""
    match predicate:
        case And(parts):
            left = []
            for part in parts:
                one = simplified(part, verdict)
                if one == NOTHING:
                    return NOTHING
                if one != EVERYTHING:
                    left.append(one)
            return left[0] if len(left) == 1 else And(tuple(left))
        case Or(parts):
            left = []
            for part in parts:
                one = simplified(part, verdict)
                if one == EVERYTHING:
                    return EVERYTHING
                if one != NOTHING:
                    left.append(one)
            return left[0] if len(left) == 1 else Or(tuple(left))
        case Not(part):
            one = simplified(part, verdict)
            if one == EVERYTHING:
                return NOTHING
            return EVERYTHING if one == NOTHING else Not(one)
        case _:
            decided = verdict(predicate)
            if not decided.may:
                return NOTHING
            return predicate if decided.fail else EVERYTHING


def verdict_of(leaf: Leaf, bounds_of: BoundsOf) -> Verdict:
    """By the bounds of all places that may hold the value; of none, no row has one."""
    places = bounds_of(leaf.ref)
    if not places:
        return NEVER
    verdicts = [UNKNOWN if bounds is None else _verdict(leaf, bounds) for bounds in places]
    may = any(one.may for one in verdicts)
    # The first place decides alone where it has a value for every row.
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
            return Verdict(any(one.may for one in verdicts), all(one.fail for one in verdicts))
        case _:
            return UNKNOWN


def _compared(bounds: Bounds, op: Op, value: Literal) -> Verdict:
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
    """The literal in the order of the bounds; None where bounds say nothing, `NEVER` where the kinds never match."""
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
