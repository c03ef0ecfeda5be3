"""Remembers what was found out about a condition in a row group: segments never change, and queries repeat.

Of every row group: what statistics and filters leave undecided of the condition, and, once it was asked for twice with
the whole row group in the time range, the rows that satisfy it. A few rows, and what was read of them, are remembered
at once. The time range is not part of the condition, so that a dashboard that moves on, and a search that is repeated,
find again what lies behind them.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lakerunner.query.scan.rows.conditions.predicate import And, Compare, In, Matches, Not, Or, Predicate, leaves
from lakerunner.runtime.byte_lru import ByteLru

Ints = npt.NDArray[np.int64]
#: Python's overhead of a remembered thing, about.
_ENTRY_BYTES = 256
_NUMBERS_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Condition:
    """A predicate without times, and the number under which findings about it are remembered; None: they are not."""

    predicate: Predicate
    number: int | None


@dataclass(frozen=True, slots=True)
class Left:
    """What is left of a condition in a row group, and the counter of the tally that counts the group if none is."""

    predicate: Predicate
    excluded_by: str = ""


class Conditions:
    """Numbers conditions, and remembers what was left of them. Safe to share between threads."""

    def __init__(self, limit_bytes: int) -> None:
        self._numbers: ByteLru[int] = ByteLru(min(limit_bytes, _NUMBERS_BYTES))
        self._left: ByteLru[Left] = ByteLru(limit_bytes)
        self._next = itertools.count()
        self._last = Condition(Or(()), None)

    def condition(self, predicate: Predicate) -> Condition:
        # The segments of a scan are asked for the same, and comparing trees takes a while.
        if self._last.predicate is predicate:
            return self._last
        self._last = found = self._numbered(predicate)
        return found

    def _numbered(self, predicate: Predicate) -> Condition:
        number = self._numbers.get(predicate)
        if number is None:
            size_bytes = weight(predicate)
            # An equal condition that comes at the same time may get another number: then it is found out twice.
            self._numbers.put(predicate, next(self._next), size_bytes)
            number = self._numbers.get(predicate)
        return Condition(predicate, number)

    def get(self, place: tuple[Any, ...], condition: Condition) -> Left | None:
        return None if condition.number is None else self._left.get((place, condition.number))

    def put(self, place: tuple[Any, ...], condition: Condition, left: Left) -> None:
        if condition.number is not None:
            self._left.put((place, condition.number), left, _ENTRY_BYTES + weight(left.predicate))

    def clear(self) -> None:
        self._numbers.clear()
        self._left.clear()
        self._last = Condition(Or(()), None)


def weight(predicate: Predicate) -> int:
    """The bytes that a predicate takes in memory, about."""
    total = _ENTRY_BYTES
    for leaf in leaves(predicate):
        total += _ENTRY_BYTES
        match leaf:
            case In(_, values):
                total += sum(_ENTRY_BYTES + len(str(value.value)) for value in values)
            case Compare(_, _, value):
                total += len(str(value.value))
            case Matches(_, pattern):
                total += len(pattern)
            case _:
                total += len(getattr(leaf, "text", ""))
    return total + _ENTRY_BYTES * _inner(predicate)


def _inner(predicate: Predicate) -> int:
    match predicate:
        case And(parts) | Or(parts):
            return 1 + sum(map(_inner, parts))
        case Not(part):
            return 1 + _inner(part)
        case _:
            return 0
