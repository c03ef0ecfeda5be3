"""Durations: literals, and the arithmetic expressions that PromQL allows in their place."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TypeAlias

from lakerunner.model.errors import BadInput
from lakerunner.query.series.go_format import plain
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.syntax.durations import MAX_MS, format_duration_ms

#: The operators that cannot have a zero on the right, by name.
DIVISIONS = {"/": "division", "%": "modulo"}
MAX_SECONDS = MAX_MS // 1000


@dataclass(frozen=True, slots=True)
class DurationNumber:
    """A literal: seconds, written as a number or with units."""

    seconds: float
    with_units: bool
    start: int = field(compare=False, default=0)
    end: int = field(compare=False, default=0)


@dataclass(frozen=True, slots=True)
class DurationOp:
    """A binary operator, or a sign if `left` is None."""

    op: str
    left: Duration | None
    right: Duration
    start: int = field(compare=False, default=0)
    end: int = field(compare=False, default=0)


@dataclass(frozen=True, slots=True)
class DurationCall:
    """`step()`, `range()`, `min_of(a, b)`, `max_of(a, b)`."""

    name: str
    args: tuple[Duration, ...]
    start: int = field(compare=False, default=0)
    end: int = field(compare=False, default=0)


@dataclass(frozen=True, slots=True)
class DurationParen:
    inner: Duration
    start: int = field(compare=False, default=0)
    end: int = field(compare=False, default=0)


Duration: TypeAlias = DurationNumber | DurationOp | DurationCall | DurationParen


def literal_seconds(duration: Duration) -> float | None:
    """The value of a literal, with or without a sign; None for other expressions."""
    match duration:
        case DurationNumber(seconds=seconds):
            return seconds
        case DurationOp(op=op, left=None, right=DurationNumber(seconds=seconds)):
            return -seconds if op == "-" else seconds
        case _:
            return None


def duration_ms(duration: Duration, query: QueryTimes) -> int:
    """The duration in milliseconds, for the times of this query.

    Computed durations are truncated to milliseconds; literals are rounded to nanoseconds first. So `1.001` is 1,001 ms,
    but `(1.001)` is 1,000 ms, as in Prometheus.
    """
    literal = literal_seconds(duration)
    if literal is not None and math.isnan(literal):
        # So far in the future that no samples exist.
        return -MAX_MS
    if literal is not None and abs(literal) * 1000 <= MAX_MS:
        nanoseconds = round(literal * 1e9)
        return nanoseconds // 1_000_000 if nanoseconds >= 0 else -(-nanoseconds // 1_000_000)
    seconds = _seconds(duration, query)
    if math.isnan(seconds) or math.isinf(seconds):
        raise _error(duration, "duration is NaN or infinite")
    if abs(seconds) > MAX_SECONDS:
        raise _error(duration, "duration is out of range")
    return int(seconds * 1000)


def positive_duration_ms(duration: Duration, query: QueryTimes) -> int:
    """As `duration_ms`, for ranges and subquery steps."""
    value_ms = duration_ms(duration, query)
    if value_ms <= 0 and _seconds(duration, query) <= 0:
        raise _error(duration, "duration must be greater than 0")
    return value_ms


def _error(duration: Duration, reason: str) -> BadInput:
    """The error in Prometheus' words, with the position as offsets into the query."""
    start, end = _extent(duration)
    return BadInput(f"{start}:{end}: {reason}")


def _extent(duration: Duration) -> tuple[int, int]:
    """The range that Prometheus reports: parentheses only around literals, and a function's arguments only."""
    match duration:
        case DurationParen(inner=inner, start=start) if literal_seconds(inner) is not None:
            return start, inner.end
        case DurationParen(inner=inner):
            return _extent(inner)
        case DurationCall(args=(first, *_, last)):
            return _extent(first)[0], _extent(last)[1]
        case DurationOp(left=None, right=right, start=start):
            return start, _extent(right)[1]
        case DurationOp(left=left, right=right):
            assert left is not None
            return _extent(left)[0], _extent(right)[1]
        case _:
            return duration.start, duration.end


def _seconds(duration: Duration, query: QueryTimes) -> float:
    match duration:
        case DurationNumber(seconds=seconds):
            return seconds
        case DurationParen(inner=inner):
            return _seconds(inner, query)
        case DurationCall(name="step"):
            return query.step_ms / 1000
        case DurationCall(name="range"):
            return query.range_ms / 1000
        case DurationCall(name=name, args=args):
            values = [_seconds(arg, query) for arg in args]
            return min(values) if name == "min_of" else max(values)
        case DurationOp(op=op, left=None, right=right):
            value = _seconds(right, query)
            return -value if op == "-" else value
        case DurationOp(op=op, left=left, right=right):
            assert left is not None
            divisor = _seconds(right, query)
            if op in DIVISIONS and divisor == 0:
                raise _error(duration, f"{DIVISIONS[op]} by zero")
            return _apply(op, _seconds(left, query), divisor)


def _apply(op: str, left: float, right: float) -> float:
    match op:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return left / right
        case "%":
            return math.fmod(left, right)
        case _:
            try:
                return math.pow(left, right)
            except (OverflowError, ValueError):
                return math.nan


def print_duration(duration: Duration) -> str:
    """Text that parses to the same duration. Literals get units, even if they were written without."""
    literal = literal_seconds(_without_signs(duration))
    if literal is not None and not math.isnan(literal):
        return _with_units(literal)
    return _computed(duration)


def _with_units(seconds: float) -> str:
    return ("-" if seconds < 0 else "") + format_duration_ms(round(abs(seconds) * 1e9) // 1_000_000)


def _without_signs(duration: Duration) -> Duration:
    """Fold consecutive signs into one, and drop plus signs."""
    signs = 0
    while isinstance(duration, DurationOp) and duration.left is None:
        signs += duration.op == "-"
        duration = duration.right
    return DurationOp("-", None, duration) if signs % 2 else duration


def _computed(duration: Duration) -> str:
    match duration:
        case DurationNumber(seconds=seconds, with_units=True):
            return format_duration_ms(int(seconds * 1000))
        case DurationNumber(seconds=seconds):
            return plain(seconds)
        case DurationParen(inner=DurationParen() as inner):
            return _computed(inner)
        case DurationParen(inner=inner):
            return f"({_computed(inner)})"
        case DurationCall(name=name, args=args):
            return f"{name}({', '.join(map(_computed, args))})"
        case DurationOp(op=op, left=None, right=right):
            return f"{op}{_computed(right)}"
        case DurationOp(op=op, left=left, right=right):
            assert left is not None
            return f"{_computed(left)} {op} {_computed(right)}"
